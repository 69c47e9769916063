#include "dialects/attn/AttnOps.h"
#include "passes/Passes.h"
#include "passes/graph/Collect.h"
#include "passes/graph/Formulas.h"
#include "passes/graph/Pipeline.h"
#include "passes/graph/element/Cases.h"
#include "passes/graph/element/EdgeTable.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/IR/Remarks.h"

using namespace mlir;

namespace attn {
#define GEN_PASS_DEF_MARKPLACESPASS
#include "passes/Passes.h.inc"

namespace {

constexpr unsigned kMaxReadingSteps = 2000;

/// What a nest of loops does to a tensor: puts one number into whole planes of it.
struct Planes {
  EdgeTable::Nest nest;
  SmallVector<bool> isWhole;  ///< for each loop: goes along all of a dimension, on which no place depends
  SmallVector<unsigned> dims; ///< that say which plane
};

/// Reads the places of a nest as numbers that are linear in its turns.
class PlaneReader {
public:
  PlaneReader(const EdgeTable::Nest &nest, const SymbolTable &symbols, const WeightStore *weights)
      : nest(nest), reader(symbols, weights, shared) {
    shared.numSteps = kMaxReadingSteps;
    for (scf::ForOp loop : nest.loops)
      turns.push_back(Linear::variable(reader.addVariable(reader.getSize(getAsOpFoldResult(loop.getUpperBound())))));
  }

  std::optional<Planes> read() {
    tensor::InsertOp insert = nest.insert;
    Planes planes{nest, SmallVector<bool>(nest.loops.size(), false), {}};
    SmallVector<CaseExprRef> places;
    for (auto [dim, index] : llvm::enumerate(insert.getIndices())) {
      places.push_back(readPlace(index));
      auto *turn = places.back() && places.back()->kind == CaseExpr::Integer ? llvm::find(turns, places.back()->integer)
                                                                             : turns.end();
      unsigned loop = turn - turns.begin();
      if (turn == turns.end() || planes.isWhole[loop] ||
          !(Extent::of(getAsOpFoldResult(scf::ForOp(nest.loops[loop]).getUpperBound())) == Extent::of(getBase(), dim)))
        planes.dims.push_back(dim);
      else
        planes.isWhole[loop] = true;
    }
    for (unsigned dim : planes.dims)
      for (unsigned loop = 0; loop != turns.size(); ++loop)
        if (planes.isWhole[loop] && (!places[dim] || dependsOn(*places[dim], turns[loop].factors.size() - 1)))
          return std::nullopt;
    bool isAny = llvm::is_contained(planes.isWhole, true) && !planes.dims.empty();
    return isAny ? std::optional(std::move(planes)) : std::nullopt;
  }

private:
  Value getBase() { return scf::ForOp(nest.loops.front()).getInits().front(); }

  /// What is computed from the turns; null for what is not one number, or no linear one.
  CaseExprRef readPlace(Value index) {
    while (Operation *op = index.getDefiningOp()) {
      if (!isa<CheckIndexOp, arith::IndexCastOp>(op))
        break;
      index = op->getOperand(0);
    }
    auto turnOf = [&](Value value) -> std::optional<Linear> {
      if (std::optional<int64_t> constant = getConstantIntValue(value))
        return Linear{*constant};
      for (auto [n, loop] : llvm::enumerate(nest.loops))
        if (value == scf::ForOp(loop).getInductionVar())
          return turns[n];
      return std::nullopt;
    };
    if (std::optional<Linear> turn = turnOf(index))
      return CaseReader::makeInteger(index.getType(), *turn);
    auto extract = index.getDefiningOp<tensor::ExtractOp>();
    if (!extract || scf::ForOp(nest.loops.front())->isAncestor(extract.getTensor().getParentRegion()->getParentOp()))
      return nullptr;
    SmallVector<Linear> place;
    for (Value at : extract.getIndices()) {
      std::optional<Linear> turn = turnOf(at);
      if (!turn)
        return nullptr;
      place.push_back(*turn);
    }
    CaseExprRef found;
    unsigned count = 0;
    reader.read(extract.getTensor(), place, reader.everywhere(), [&](const Guards &, const CaseExprRef &expr) {
      ++count;
      found = expr;
    });
    return count == 1 && !reader.isFailed() ? found : nullptr;
  }

  static bool dependsOn(const CaseExpr &expr, unsigned variable) {
    return expr.kind == CaseExpr::Unknown || expr.kind == CaseExpr::Product || expr.integer.factor(variable) != 0 ||
           llvm::any_of(expr.place, [&](const Linear &along) { return along.factor(variable) != 0; }) ||
           llvm::any_of(expr.operands, [&](const CaseExprRef &operand) { return dependsOn(*operand, variable); });
  }

  const EdgeTable::Nest &nest;
  CaseReader::Shared shared;
  CaseReader reader;
  SmallVector<Linear> turns;
};

/// Writes the loops once more, around a mark in a table of planes.
void markPlanes(RewriterBase &b, const Planes &planes) {
  scf::ForOp outer = planes.nest.loops.front();
  tensor::InsertOp insert = planes.nest.insert;
  Location loc = insert.getLoc();
  Value base = outer.getInits().front();
  b.setInsertionPoint(outer);
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, loc, base), marked;
  SmallVector<AffineExpr> exprs;
  for (unsigned dim : planes.dims) {
    marked.push_back(sizes[dim]);
    exprs.push_back(b.getAffineDimExpr(dim));
  }
  auto mark = [&](OpBuilder &b, Location loc, ValueRange place, ValueRange carried) -> SmallVector<Value> {
    SmallVector<Value> at = llvm::map_to_vector(planes.dims, [&](unsigned dim) -> Value { return place[dim]; });
    Value one = arith::ConstantOp::create(b, loc, b.getI8IntegerAttr(1));
    return {tensor::InsertOp::create(b, loc, one, carried.front(), at)};
  };
  // One turn says what all do, if there is one.
  auto count = [&](OpBuilder &b, unsigned n) -> Value {
    Value all = scf::ForOp(planes.nest.loops[n]).getUpperBound();
    return planes.isWhole[n] ? b.createOrFold<arith::MinSIOp>(loc, all, arith::ConstantIndexOp::create(b, loc, 1))
                             : all;
  };
  Value marks = planes.nest.again(b, filledTensor(b, loc, marked, b.getI8IntegerAttr(0)), mark, count).front();
  AffineMap identity = b.getMultiDimIdentityMap(sizes.size());
  Value chosen = elementwise(b, loc, sizes, getElementTypeOrSelf(base), {base, marks},
                             {identity, AffineMap::get(sizes.size(), 0, exprs, b.getContext())},
                             formula([&](Code &k, ArrayRef<Num> x) {
                               return select(x[1] != 0, constantOf(k, splatConstant(insert.getScalar())), x[0]);
                             }));
  remark::passed(loc, remark::RemarkOpts::name("Planes").category("attn-mark-places"))
      << "a number that is put at places is chosen by a table of them";
  b.replaceOp(outer, castTo(b, loc, chosen, outer.getResult(0).getType()));
}

bool becomesScores(Value value) {
  return hasUse(
      value, [](OpOperand &use) { return isa<SoftmaxOp>(use.getOwner()); },
      [](Operation *user) {
        return isView(user) || isPointwise(user) || isa<tensor::ExtractSliceOp, tensor::InsertSliceOp>(user);
      });
}

struct MarkPlacesPass : impl::MarkPlacesPassBase<MarkPlacesPass> {
  using MarkPlacesPassBase::MarkPlacesPassBase;
  explicit MarkPlacesPass(const WeightStore *weights) : weights(weights) {}

  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    IRRewriter b(&getContext());
    SmallVector<scf::ForOp> loops = collect<scf::ForOp>(getOperation());
    // An inner loop makes what the outer one carries.
    llvm::erase_if(loops,
                   [](scf::ForOp loop) { return loop.getNumResults() != 1 || loop->getParentOfType<scf::ForOp>(); });
    for (scf::ForOp loop : loops) {
      std::optional<EdgeTable::Nest> nest = EdgeTable::matchNest(loop.getResult(0));
      if (!nest || !splatConstant(nest->insert.getScalar()) || splatConstant(loop.getInits().front()) ||
          !becomesScores(loop.getResult(0)))
        continue;
      if (std::optional<Planes> planes = PlaneReader(*nest, symbols, weights).read())
        markPlanes(b, *planes);
    }
  }

private:
  const WeightStore *weights = nullptr;
};

} // namespace

std::unique_ptr<Pass> createMarkPlacesPass(const WeightStore *weights) {
  return std::make_unique<MarkPlacesPass>(weights);
}

} // namespace attn
