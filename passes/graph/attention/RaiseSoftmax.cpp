#include "dialects/attn/AttnOps.h"
#include "passes/Passes.h"
#include "passes/graph/Pipeline.h"
#include "passes/graph/Structured.h"
#include "passes/graph/attention/Normalization.h"
#include "passes/graph/element/Access.h"
#include "passes/graph/element/AssumeRequired.h"
#include "passes/graph/element/LowerBound.h"
#include "passes/graph/element/RowReduction.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/IR/Remarks.h"
#include <cmath>
#include <limits>

using namespace mlir;

namespace attn {
#define GEN_PASS_DEF_RAISESOFTMAXPASS
#include "passes/Passes.h.inc"

namespace {

/// Dimensions that follow each other.
struct DimRange {
  int64_t first, count;
};

/// The dimensions of what is read at `rows` that `keys` are, in their order.
std::optional<DimRange> findDims(const Access &rows, const Atoms &keys) {
  for (int64_t first = 0, rank = rows.size(); first != rank; ++first) {
    Atoms found = rows[first];
    int64_t end = first + 1;
    for (; found != keys && !found.empty() && end != rank; ++end)
      llvm::append_range(found, rows[end]);
    if (found == keys)
      return DimRange{first, end - first};
  }
  return std::nullopt;
}

/// A softmax over several dimensions is one over what they merge to.
Value softmaxOver(RewriterBase &rewriter, Location loc, Value scores, DimRange dims) {
  auto type = cast<RankedTensorType>(scores.getType());
  if (dims.count == 1)
    return SoftmaxOp::create(rewriter, loc, type, scores, dims.first, false);
  SmallVector<ReassociationIndices> groups;
  for (int64_t dim = 0; dim < type.getRank(); dim += dim == dims.first ? dims.count : 1)
    groups.push_back(llvm::to_vector<2>(llvm::seq<int64_t>(dim, dim + (dim == dims.first ? dims.count : int64_t(1)))));
  Value merged = tensor::CollapseShapeOp::create(rewriter, loc, scores, groups);
  Value weights = SoftmaxOp::create(rewriter, loc, merged.getType(), merged, dims.first, false);
  return tensor::ExpandShapeOp::create(rewriter, loc, type, weights, groups,
                                       tensor::getMixedSizes(rewriter, loc, scores));
}

class SoftmaxFinder {
public:
  /// Raises `op` = e / sum(e) or exp(log softmax), if it is one of them.
  LogicalResult raise(RewriterBase &rewriter, linalg::LinalgOp op);

private:
  bool reducesRowsOf(Read reduced, Read rows, Combiner combiner, const Atoms &keys);
  std::optional<Atoms> findKeys(Read reduced, Read rows, Combiner combiner) {
    return findReducedAtoms(space, std::move(reduced), std::move(rows), combiner, unitDim);
  }

  AtomSpace space;
  /// Set by findKeys where the dimension has size 1.
  std::optional<unsigned> unitDim;
};

bool SoftmaxFinder::reducesRowsOf(Read reduced, Read rows, Combiner combiner, const Atoms &keys) {
  std::optional<Atoms> found = findKeys(std::move(reduced), std::move(rows), combiner);
  if (!found)
    return false;
  Atoms expected(keys);
  space.resolve(expected);
  space.resolve(*found);
  return *found == expected;
}

/// The x of e^x, 2^x or c^x, which is e^(factor x).
OpOperand *readExponent(linalg::LinalgOp op, double &factor) {
  Operation *scalar = getScalarOp(op);
  if (isa_and_nonnull<math::ExpOp>(scalar))
    return getInput(op, scalar->getOperand(0));
  if (isa_and_nonnull<math::Exp2Op>(scalar)) {
    factor = std::log(2.0);
    return getInput(op, scalar->getOperand(0));
  }
  auto power = dyn_cast_or_null<math::PowFOp>(scalar);
  if (!power)
    return nullptr;
  OpOperand *tensor = getInput(op, power.getLhs());
  auto base = dyn_cast_or_null<FloatAttr>(splatConstant(tensor ? tensor->get() : stripConversions(power.getLhs())));
  double number = base ? base.getValueAsDouble() : 0;
  factor = number > 0 ? std::log(number) : 0;
  return std::isfinite(factor) && factor != 0 ? getInput(op, power.getRhs()) : nullptr;
}

/// `value` before products with constants, which `factor` gets.
Value stripFactors(Value value, double &factor) {
  while (auto op = value.getDefiningOp<linalg::LinalgOp>()) {
    std::optional<double> constant = constantFactor(op);
    if (!constant || !llvm::all_of(op.getIndexingMapsArray(), [](AffineMap map) { return map.isIdentity(); }) ||
        op->getOperand(0).getType() != value.getType())
      break;
    factor *= *constant;
    value = op->getOperand(0);
  }
  return value;
}

/// Whether a body of `op` asks whether a number is NaN or infinite, or (`any`) compares numbers in any way.
bool comparesFloats(Operation *op, bool any) {
  auto isInfinite = [](Value value) {
    auto number = dyn_cast_or_null<FloatAttr>(splatConstant(value));
    return number && number.getValue().isInfinity();
  };
  auto isTest = [&](Operation *inner) {
    auto compare = dyn_cast<arith::CmpFOp>(inner);
    return isa<math::IsNaNOp, math::IsInfOp, math::IsFiniteOp>(inner) ||
           (compare &&
            (any || compare.getLhs() == compare.getRhs() || isInfinite(compare.getLhs()) ||
             isInfinite(compare.getRhs()) ||
             llvm::is_contained({arith::CmpFPredicate::UNO, arith::CmpFPredicate::ORD}, compare.getPredicate())));
  };
  return op->walk([&](Operation *inner) { return isTest(inner) ? WalkResult::interrupt() : WalkResult::advance(); })
      .wasInterrupted();
}

/// Whether the graph does something about rows whose `exponentials` are all 0 or overflow: their sum or the quotient is
/// compared, or what becomes of them is asked whether it is a number.
bool hasGuard(Value exponentials) {
  using Reached = std::pair<Value, unsigned>; // and whether it is near
  return worklist(SmallVector<Reached>{{exponentials, true}}, [](Reached reached, SmallVectorImpl<Reached> &list) {
    auto [value, isNear] = reached;
    for (Operation *user : value.getUsers()) {
      if (comparesFloats(user, isNear))
        return true;
      bool staysNear = isNear && (isView(user) || isPointwise(user) || getReduction(user) == Combiner::sum);
      ValueRange results =
          user->hasTrait<OpTrait::IsTerminator>() ? user->getParentOp()->getResults() : ValueRange(user->getResults());
      for (Value result : results)
        list.push_back({result, staysNear});
    }
    return false;
  });
}

/// Whether the greatest of each row of `scores` along `dim` is 0: a factor > 0 times x - max(x), or < 0 times
/// max(x) - x.
bool isBelowOwnMaximum(Value scores, int64_t dim) {
  double factor = 1;
  auto shift = stripFactors(scores, factor).getDefiningOp<linalg::LinalgOp>();
  return findUnshifted(shift, factor > 0 ? 0 : 1, dim) != nullptr;
}

/// factor * scores.
Value scaled(RewriterBase &rewriter, Location loc, Value scores, double factor) {
  if (factor == 1)
    return scores;
  AffineMap identity = rewriter.getMultiDimIdentityMap(cast<RankedTensorType>(scores.getType()).getRank());
  return elementwise(rewriter, loc, tensor::getMixedSizes(rewriter, loc, scores), getElementTypeOrSelf(scores), scores,
                     identity, [&](OpBuilder &b, Location loc, ValueRange args) -> Value {
                       Value scale = floatConstant(b, loc, args.front().getType(), factor);
                       return arith::MulFOp::create(b, loc, args.front(), scale);
                     });
}

LogicalResult SoftmaxFinder::raise(RewriterBase &rewriter, linalg::LinalgOp op) {
  for (unsigned side : {0, 1}) {
    space = AtomSpace();
    unitDim = std::nullopt;
    std::optional<Quotient> quotient = readQuotient(op, side, space);
    if (!quotient)
      continue;
    OpOperand *numerator = quotient->numerator;

    // The numerator up to the exponential, and the views between.
    Read exponential{numerator->get(), quotient->result};
    SmallVector<Operation *> views;
    while (isView(exponential.value.getDefiningOp())) {
      views.push_back(exponential.value.getDefiningOp());
      if (!space.stepUp(exponential.value, exponential.access))
        break;
    }
    auto exp = exponential.value.getDefiningOp<linalg::LinalgOp>();
    double factor = 1;
    OpOperand *exponent = readExponent(exp, factor);
    if (!exponent || !isAligned(exp, exponent))
      continue;
    std::optional<Atoms> keys = findKeys(quotient->denominator, exponential, Combiner::sum);
    if (!keys)
      continue;

    // exp(s - max(s)): without the maximum is the same softmax. So is any other shift of the row, but that all of its
    // exponentials may be 0 then, or overflow; a graph that replaces such rows means what it says.
    Value scores = exponent->get();
    bool isOwnMaximum = false;
    auto shift = scores.getDefiningOp<linalg::LinalgOp>();
    if (auto difference = dyn_cast_or_null<arith::SubFOp>(getScalarOp(shift))) {
      OpOperand *shifted = getInput(shift, difference.getLhs()), *maximum = getInput(shift, difference.getRhs());
      space.resolve(exponential.access);
      std::optional<Access> at;
      if (shifted && maximum && isAligned(shift, shifted))
        at = AtomSpace::operandAccess(shift.getMatchingIndexingMap(maximum),
                                      AtomSpace::loopAtoms(shift, exponential.access));
      if (at && reducesRowsOf({maximum->get(), *at}, {shifted->get(), exponential.access}, Combiner::maximum, *keys)) {
        scores = shifted->get();
        isOwnMaximum = true;
      } else if (at) {
        isOwnMaximum = isFiniteMaximum(space, {maximum->get(), *at}, {shifted->get(), exponential.access}, *keys);
      }
    }
    space.resolve(exponential.access);
    space.resolve(*keys);
    std::optional<DimRange> dims = unitDim ? std::optional(DimRange{*unitDim, 1}) : findDims(exponential.access, *keys);
    if (!dims || getElementTypeOrSelf(scores) != getElementTypeOrSelf(exponential.value.getType()))
      continue;
    isOwnMaximum |= factor > 0 && dims->count == 1 && isBelowOwnMaximum(exponent->get(), dims->first);
    if (!isOwnMaximum && hasGuard(exponential.value)) {
      remark::missed(op.getLoc(), remark::RemarkOpts::name("Softmax").category("attn-raise-softmax"))
          << "rows whose exponentials are all 0 are replaced, and what is subtracted is not their maximum";
      continue;
    }

    rewriter.setInsertionPoint(op);
    Value raised = softmaxOver(rewriter, op.getLoc(), scaled(rewriter, op.getLoc(), scores, factor), *dims);
    if (raised.getType() != exponential.value.getType())
      raised = tensor::CastOp::create(rewriter, op.getLoc(), exponential.value.getType(), raised);
    IRMapping mapping;
    mapping.map(exponential.value, raised);
    for (Operation *view : llvm::reverse(views))
      rewriter.clone(*view, mapping);
    raised = mapping.lookup(numerator->get());
    if (raised.getType() != op->getResult(0).getType()) // rounded to a half type by the division
      return failure();
    remark::passed(op.getLoc(), remark::RemarkOpts::name("Softmax").category("attn-raise-softmax"))
        << "an exponential over its sum is a softmax";
    rewriter.replaceOp(op, raised);
    return success();
  }
  return failure();
}

/// Drops the row's maximum: softmax(s - max(s)) -> softmax(s), softmax(max(s) - s) -> softmax(-s), and with factors
/// around and inside, softmax(a (c s - max(c s))) -> softmax(a c s). Not where |c| or |a c| > 1: the least float as a
/// mask, of which a hidden row has nothing else, is or would become -inf; nor where a c is nearly 0, and -inf a NaN.
void dropMaximum(RewriterBase &rewriter, SoftmaxOp softmax) {
  double outer = 1;
  auto shift = stripFactors(softmax.getInput(), outer).getDefiningOp<linalg::LinalgOp>();
  for (unsigned side : {0, 1}) {
    OpOperand *scores = findUnshifted(shift, side, softmax.getDim());
    if (!scores)
      continue;
    double inner = 1;
    Value input = outer == 1 ? scores->get() : stripFactors(scores->get(), inner);
    double factor = (side == 1 ? -outer : outer) * inner;
    if (std::abs(inner) > 1 || std::abs(factor) > 1 || std::abs(factor) < std::numeric_limits<float>::min())
      return;
    rewriter.setInsertionPoint(softmax);
    if (factor != 1) {
      AffineMap identity = rewriter.getMultiDimIdentityMap(softmax.getType().getRank());
      input = elementwise(rewriter, softmax.getLoc(), tensor::getMixedSizes(rewriter, softmax.getLoc(), input),
                          softmax.getType().getElementType(), input, identity,
                          [&](OpBuilder &b, Location loc, ValueRange args) -> Value {
                            if (factor == -1)
                              return arith::NegFOp::create(b, loc, args.front());
                            Value scale = floatConstant(b, loc, args.front().getType(), factor);
                            return arith::MulFOp::create(b, loc, args.front(), scale);
                          });
    }
    rewriter.modifyOpInPlace(softmax, [&] { softmax.getInputMutable().assign(input); });
    return;
  }
}

/// x - (log(sum(exp(x - max(x)))) + max(x)): x, and the dimensions of the sum.
struct LogWeights {
  Value scores;
  DimRange dims;
};

std::optional<LogWeights> readLogWeights(Value value) {
  auto op = value.getDefiningOp<linalg::LinalgOp>();
  auto difference = dyn_cast_or_null<arith::SubFOp>(getScalarOp(op));
  OpOperand *scores = difference ? getInput(op, difference.getLhs()) : nullptr;
  OpOperand *logs = difference ? getInput(op, difference.getRhs()) : nullptr;
  if (!scores || !logs || !isAligned(op, scores) || scores->get().getType() != value.getType() ||
      !op.getMatchingIndexingMap(scores).isIdentity() || !isa<RankedTensorType>(logs->get().getType()))
    return std::nullopt;
  AtomSpace space;
  Access rows;
  for (int64_t dim = 0, rank = cast<RankedTensorType>(value.getType()).getRank(); dim != rank; ++dim)
    rows.push_back(space.add(Extent::of(value, dim)));
  std::optional<Access> at = AtomSpace::operandAccess(op.getMatchingIndexingMap(logs), AtomSpace::loopAtoms(op, rows));
  std::optional<Atoms> keys = at ? findLogSumExpAtoms(space, {logs->get(), *at}, {scores->get(), rows}) : std::nullopt;
  if (!keys)
    return std::nullopt;
  space.resolve(rows);
  space.resolve(*keys);
  std::optional<DimRange> dims = findDims(rows, *keys);
  return dims ? std::optional(LogWeights{scores->get(), *dims}) : std::nullopt;
}

/// exp(log_softmax(x)), exp(x - log(sum(exp(x)))) -> softmax(x), views between them too
LogicalResult raiseExponential(RewriterBase &rewriter, linalg::LinalgOp op) {
  auto exp = dyn_cast_or_null<math::ExpOp>(getScalarOp(op));
  OpOperand *input = exp ? getInput(op, exp.getOperand()) : nullptr;
  if (!input || !isAligned(op, input))
    return failure();
  SmallVector<Operation *> views;
  Value source = input->get();
  while (isView(source.getDefiningOp())) {
    views.push_back(source.getDefiningOp());
    source = views.back()->getOperand(0);
  }
  auto type = cast<RankedTensorType>(op->getResult(0).getType());
  Value scores;
  DimRange dims{0, 1};
  if (auto log = source.getDefiningOp<SoftmaxOp>(); log && log.getLog()) {
    scores = log.getInput();
    dims.first = log.getDim();
  } else if (std::optional<LogWeights> difference = readLogWeights(source)) {
    scores = difference->scores;
    dims = difference->dims;
  }
  if (!scores || getElementTypeOrSelf(scores) != type.getElementType())
    return failure();
  rewriter.setInsertionPoint(op);
  Value weights = softmaxOver(rewriter, op.getLoc(), scores, dims);
  for (Operation *view : llvm::reverse(views)) {
    IRMapping mapping;
    mapping.map(view->getOperand(0), weights);
    weights = rewriter.clone(*view, mapping)->getResult(0);
  }
  if (weights.getType() != type)
    weights = tensor::CastOp::create(rewriter, op.getLoc(), type, weights);
  rewriter.replaceOp(op, weights);
  return success();
}

/// A sum of |x| where no x is below 0, as an L1 norm of weights is, sums x.
void dropMagnitudes(RewriterBase &rewriter, linalg::LinalgOp op) {
  if (op.getNumDpsInputs() != 1 || op.getNumReductionLoops() == 0)
    return;
  for (auto magnitude : llvm::make_early_inc_range(op.getBlock()->getOps<math::AbsFOp>()))
    if (stripConversions(magnitude.getOperand()) == op.getBlock()->getArgument(0) && isNonNegative(op->getOperand(0)))
      rewriter.replaceOp(magnitude, magnitude.getOperand());
}

struct RaiseSoftmaxPass : impl::RaiseSoftmaxPassBase<RaiseSoftmaxPass> {
  using RaiseSoftmaxPassBase::RaiseSoftmaxPassBase;
  explicit RaiseSoftmaxPass(bool isExact) { exact = isExact; }

  void runOnOperation() override {
    assumeRequiredSizes(getOperation());
    SmallVector<linalg::LinalgOp> ops;
    getOperation()->walk([&](linalg::LinalgOp op) { ops.push_back(op); });
    IRRewriter rewriter(&getContext());
    for (linalg::LinalgOp op : ops) {
      dropMagnitudes(rewriter, op);
      if (isPointwise(op))
        (void)divideFirst(rewriter, op);
    }
    ops.clear();
    getOperation()->walk([&](linalg::LinalgOp op) { ops.push_back(op); });
    for (linalg::LinalgOp op : ops)
      if (isPointwise(op) && failed(SoftmaxFinder().raise(rewriter, op)))
        (void)raiseExponential(rewriter, op);
    getOperation()->walk([&](SoftmaxOp op) { dropMaximum(rewriter, op); });
    if (exact)
      return;
    SmallVector<linalg::LinalgOp> quotients;
    getOperation()->walk([&](linalg::LinalgOp op) {
      if (isa_and_nonnull<arith::DivFOp>(getScalarOp(op)))
        quotients.push_back(op);
    });
    for (linalg::LinalgOp op : quotients)
      (void)raiseRenormalized(rewriter, op);
  }
};

} // namespace

std::unique_ptr<Pass> createRaiseSoftmaxPass(bool exact) { return std::make_unique<RaiseSoftmaxPass>(exact); }

} // namespace attn
