#include "dialects/attn/AttnOps.h"
#include "dialects/attn/LoopOps.h"
#include "passes/Passes.h"
#include "passes/kernels/spec/KernelAttrs.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "llvm/Support/CheckedArithmetic.h"

namespace attn {
#define GEN_PASS_DEF_POLLLOOPSPASS
#include "passes/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {
/// Scalar operations between two looks: a tenth of a millisecond, or some if all of them miss the caches. A look takes
/// some 30 ns.
constexpr int64_t kBudget = int64_t(1) << 18;
/// Iterations of a loop inside another of which only the run knows how many it has each time.
constexpr int64_t kUnknownTrips = 256, kWhileTrips = 32;

/// How far behind `from` an end `to` is at most, where that is known: of a share of a loop, min(from + share, end).
std::optional<int64_t> getSpan(Value from, Value to) {
  std::optional<int64_t> first = getConstantIntValue(from), last = getConstantIntValue(to);
  if (first && last)
    return llvm::checkedSub(*last, *first);
  if (Operation *op = to.getDefiningOp(); isa_and_nonnull<arith::MinUIOp, arith::MinSIOp>(op))
    for (Value end : op->getOperands())
      if (auto sum = end.getDefiningOp<arith::AddIOp>(); sum && sum.getLhs() == from)
        return getConstantIntValue(sum.getRhs());
  return std::nullopt;
}

/// How often `loop` runs at most, where that is known.
std::optional<int64_t> getTrips(scf::ForOp loop) {
  std::optional<int64_t> span = getSpan(loop.getLowerBound(), loop.getUpperBound()),
                         step = getConstantIntValue(loop.getStep());
  if (!span || !step)
    return std::nullopt;
  return *span <= 0 ? 0 : (*span - 1) / *step + 1;
}

/// What one execution takes, at most kBudget: a number, or where it depends on sizes also an expression.
class CostModel {
public:
  /// The expression is written where `b` stands, in front of the loop `scope`, whose own values it can't use.
  CostModel(OpBuilder &b, Operation *scope) : b(b), scope(scope) {}

  Value of(Block &block) {
    Value total = number(0);
    int64_t plain = 0;
    for (Operation &op : block) {
      if (op.getNumRegions() == 0)
        plain += isa<math::MathDialect>(op.getDialect()) ? 16 : 1;
      else
        total = add(total, ofRegions(&op));
    }
    return add(total, number(plain));
  }

private:
  Value ofRegions(Operation *op) {
    Value total = number(1);
    for (Region &region : op->getRegions())
      for (Block &block : region)
        total = add(total, of(block));
    if (auto loop = dyn_cast<scf::ForOp>(op))
      return capped(b.createOrFold<arith::MulIOp>(scope->getLoc(), total, trips(loop)));
    return isa<LoopLikeOpInterface>(op)
               ? capped(b.createOrFold<arith::MulIOp>(scope->getLoc(), total, number(kWhileTrips)))
               : total;
  }

  Value trips(scf::ForOp loop) {
    if (std::optional<int64_t> known = getTrips(loop))
      return number(std::min(*known, kBudget));
    SmallVector<Value, 3> bounds{loop.getLowerBound(), loop.getUpperBound(), loop.getStep()};
    for (Value &bound : bounds) {
      if (std::optional<int64_t> known = getConstantIntValue(bound))
        bound = number(*known);
      else if (!bound.getType().isIndex() || scope->isAncestor(bound.getParentRegion()->getParentOp()))
        return number(kUnknownTrips);
    }
    Location loc = scope->getLoc();
    Value span = b.createOrFold<arith::SubIOp>(loc, bounds[1], bounds[0]);
    span = b.createOrFold<arith::MaxSIOp>(loc, span, number(0));
    Value filled = b.createOrFold<arith::AddIOp>(loc, span, b.createOrFold<arith::SubIOp>(loc, bounds[2], number(1)));
    return capped(b.createOrFold<arith::DivUIOp>(loc, filled, bounds[2]));
  }

  Value number(int64_t value) { return arith::ConstantIndexOp::create(b, scope->getLoc(), value); }
  Value capped(Value cost) { return b.createOrFold<arith::MinSIOp>(scope->getLoc(), cost, number(kBudget)); }
  Value add(Value x, Value y) { return capped(b.createOrFold<arith::AddIOp>(scope->getLoc(), x, y)); }

  OpBuilder &b;
  Operation *scope;
};

/// `loop`, or the outermost op around it outside of which all sizes are made that its cost depends on: what divides by
/// a cost is not hoisted later.
Operation *findPlace(scf::ForOp loop) {
  SmallVector<Value> sizes{loop.getStep()};
  loop.walk([&](scf::ForOp inner) {
    if (inner != loop)
      sizes.append({inner.getLowerBound(), inner.getUpperBound(), inner.getStep()});
  });
  llvm::erase_if(sizes, [&](Value size) {
    return getConstantIntValue(size) || loop->isAncestor(size.getParentRegion()->getParentOp());
  });
  Operation *place = loop;
  for (Operation *parent = loop->getParentOp(); !isa<func::FuncOp>(parent); parent = parent->getParentOp()) {
    if (llvm::any_of(sizes, [&](Value size) { return parent->isAncestor(size.getParentRegion()->getParentOp()); }))
      break;
    place = parent;
  }
  return place;
}

/// Whether `loop` is known to end soon, whatever a run brings.
bool isShort(scf::ForOp loop, const std::optional<int64_t> &cost) {
  std::optional<int64_t> trips = getTrips(loop);
  return cost && trips && *trips <= kBudget / *cost;
}

/// The end of a piece of `outer` that would go on to `end`.
Value leave(OpBuilder &b, Location loc, scf::ForOp outer, Value end) {
  Value from = outer.getInductionVar();
  Value isFirst = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, from, outer.getLowerBound());
  auto goOn = [&](OpBuilder &inner, Location at) { scf::YieldOp::create(inner, at, end); };
  auto look = [&](OpBuilder &inner, Location at) {
    Value ends = IsEndingOp::create(inner, at, inner.getI1Type());
    scf::YieldOp::create(inner, at, arith::SelectOp::create(inner, at, ends, from, end).getResult());
  };
  return scf::IfOp::create(b, loc, isFirst, goOn, look).getResult(0);
}

/// for i = a to b -> for o = a to b by pieces { for i = o to min(o + piece, b); poll if that is not b }: a loop shorter
/// than a piece pays a comparison. Where the loop `isLeft`, a piece behind the first looks and has no iterations where
/// the run is to end: the function goes on behind the loop.
void split(scf::ForOp loop, bool isLeft) {
  OpBuilder b(findPlace(loop));
  Location loc = loop.getLoc();
  Value cost = CostModel(b, loop).of(*loop.getBody());
  if (isShort(loop, getConstantIntValue(cost)))
    return;
  Value piece = b.createOrFold<arith::DivSIOp>(loc, arith::ConstantIndexOp::create(b, loc, kBudget), cost);
  // A constant may stand further in than where this goes.
  std::optional<int64_t> known = getConstantIntValue(loop.getStep());
  Value step = known ? arith::ConstantIndexOp::create(b, loc, *known).getResult() : loop.getStep();
  Value stride = b.createOrFold<arith::MulIOp>(loc, piece, step);
  b.setInsertionPoint(loop);
  auto outer = scf::ForOp::create(b, loc, loop.getLowerBound(), loop.getUpperBound(), stride, loop.getInitArgs());
  if (!outer.getBody()->empty() && outer.getBody()->mightHaveTerminator())
    outer.getBody()->getTerminator()->erase();
  loop.replaceAllUsesWith(outer.getResults());
  b.setInsertionPointToEnd(outer.getBody());
  Value next = arith::AddIOp::create(b, loc, outer.getInductionVar(), stride);
  Value end = arith::MinSIOp::create(b, loc, next, loop.getUpperBound());
  if (isLeft)
    end = leave(b, loc, outer, end);
  loop->moveBefore(outer.getBody(), outer.getBody()->end());
  if (!isLeft) {
    Value isLast = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, end, loop.getUpperBound());
    scf::IfOp::create(b, loc, isLast, [&](OpBuilder &inner, Location at) {
      PollOp::create(inner, at);
      scf::YieldOp::create(inner, at);
    });
  }
  scf::YieldOp::create(b, loc, loop.getResults());
  loop.getLowerBoundMutable().assign(outer.getInductionVar());
  loop.getUpperBoundMutable().assign(end);
  loop.getInitArgsMutable().assign(outer.getRegionIterArgs());
}

struct PollLoopsPass : attn::impl::PollLoopsPassBase<PollLoopsPass> {
  void runOnOperation() override {
    func::FuncOp function = getOperation();
    bool isWhole = function->hasAttr(AttnDialect::kEntryAttr) || function->hasAttr(kPollsAttr);
    SmallVector<scf::ForOp> loops;
    function.walk<WalkOrder::PreOrder>([&](scf::ForOp loop) {
      if (!isWhole && !loop->removeAttr(kPollsAttr))
        return;
      bool isPlain = true; // a look ends the function: nothing but control flow stands around it
      for (Operation *parent = loop->getParentOp(); parent != function; parent = parent->getParentOp())
        isPlain &= isa<scf::SCFDialect>(parent->getDialect());
      if (isPlain && loop.getInductionVar().getType().isIndex())
        loops.push_back(loop);
    });
    for (scf::ForOp loop : loops) // outer ones first: the cost of what is cut depends on its pieces
      split(loop, /*isLeft=*/!isWhole);
  }
};
} // namespace
