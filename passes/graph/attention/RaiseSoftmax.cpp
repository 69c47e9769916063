#include "dialects/attn/AttnOps.h"
#include "passes/Passes.h"
#include "passes/graph/Collect.h"
#include "passes/graph/Formulas.h"
#include "passes/graph/Pipeline.h"
#include "passes/graph/attention/Normalization.h"
#include "passes/graph/element/AssumeRequired.h"
#include "passes/graph/element/LowerBound.h"
#include "passes/graph/element/Rows.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/IR/Remarks.h"
#include <cmath>
#include <limits>

using namespace mlir;

namespace attn {
#define GEN_PASS_DEF_RAISESOFTMAXPASS
#include "passes/Passes.h.inc"

namespace {

/// The first of some dimensions that follow each other, and how many they are.
using DimRange = std::pair<int64_t, int64_t>;

/// A softmax over several dimensions is one over what they merge to.
Value softmaxOver(RewriterBase &rewriter, Location loc, Value scores, DimRange dims) {
  auto type = cast<RankedTensorType>(scores.getType());
  auto [first, count] = dims;
  if (count == 1)
    return SoftmaxOp::create(rewriter, loc, type, scores, first, false);
  SmallVector<ReassociationIndices> groups;
  for (int64_t dim = 0; dim < type.getRank(); dim += groups.back().size())
    groups.push_back(llvm::to_vector<2>(llvm::seq(dim, dim + (dim == first ? count : int64_t(1)))));
  Value merged = tensor::CollapseShapeOp::create(rewriter, loc, scores, groups);
  Value weights = SoftmaxOp::create(rewriter, loc, merged.getType(), merged, first, false);
  return tensor::ExpandShapeOp::create(rewriter, loc, type, weights, groups,
                                       tensor::getMixedSizes(rewriter, loc, scores));
}

/// An exponential of an element of `scores`, times a number.
struct Exponential {
  Element scores;
  double factor = 1;
};

/// e^x, 2^x or c^x as e^(factor x).
std::optional<Exponential> readExponential(RowReader &rows, const Element &element) {
  auto make = [&](unsigned n, double factor) -> std::optional<Exponential> {
    std::optional<Element> scores = rows.tensor(rows.operand(element, n));
    return scores ? std::optional(Exponential{*scores, factor}) : std::nullopt;
  };
  if (getAs<math::ExpOp>(element))
    return make(0, 1);
  if (getAs<math::Exp2Op>(element))
    return make(0, std::log(2.0));
  std::optional<double> base = getAs<math::PowFOp>(element) ? numberOf(rows.of(element, 0)) : std::nullopt;
  double factor = base && *base > 0 ? std::log(*base) : 0;
  return std::isfinite(factor) && factor != 0 ? make(1, factor) : std::nullopt;
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

/// Whether the greatest of each row of `scores` along `dim` is 0: a factor > 0 times x - max(x), or < 0 times
/// max(x) - x.
bool isBelowOwnMaximum(Value scores, int64_t dim) {
  double factor = 1;
  Value shift = stripFactors(scores, factor);
  return static_cast<bool>(findUnshifted(shift, factor > 0 ? 0 : 1, dim));
}

/// factor * scores.
Value scaled(RewriterBase &rewriter, Location loc, Value scores, double factor) {
  if (factor == 1)
    return scores;
  AffineMap identity = rewriter.getMultiDimIdentityMap(cast<RankedTensorType>(scores.getType()).getRank());
  return elementwise(rewriter, loc, tensor::getMixedSizes(rewriter, loc, scores), getElementTypeOrSelf(scores), scores,
                     identity, formula([&](ArrayRef<Num> x) { return factor == -1 ? -x[0] : x[0] * factor; }));
}

/// Exponentials, up to views, over their sum: a softmax of `scores`.
struct RaisedSoftmax {
  Value exponentials;
  SmallVector<Operation *> views; ///< between them and the quotient, the last one first
  Value scores;
  double factor = 1;
  DimRange dims;
  /// What is subtracted from the scores is the maximum of their row, where that is finite.
  bool isOwnMaximum = false;
};

std::optional<RaisedSoftmax> readSoftmax(RowReader &rows, const Quotient &quotient) {
  RaisedSoftmax found;
  Element exponential = rows.throughViews(quotient.numerator, &found.views);
  Element scalar = rows.strip(exponential);
  std::optional<Exponential> power =
      scalar.getOp() && scalar.getOp()->getParentOp() == exponential.value.getDefiningOp()
          ? readExponential(rows, scalar)
          : std::nullopt;
  std::optional<Places> keys = power && power->scores.at == exponential.at
                                   ? rows.combined(quotient.denominator, exponential, Combiner::sum)
                                   : std::nullopt;
  std::optional<DimRange> dims = keys ? rows.findDims(exponential.at, *keys) : std::nullopt;
  if (!dims)
    return std::nullopt;
  // exp(s - max(s)): without the maximum is the same softmax. So is any other shift of the row, but that all of its
  // exponentials may be 0 then, or overflow; a graph that replaces such rows means what it says.
  found.exponentials = exponential.value;
  found.scores = power->scores.value;
  found.factor = power->factor;
  found.dims = *dims;
  Element difference = rows.strip(power->scores);
  if (getAs<arith::SubFOp>(difference) && difference.getOp()->getParentOp() == found.scores.getDefiningOp()) {
    std::optional<Element> shifted = rows.tensor(rows.operand(difference, 0));
    Element shift = rows.operand(difference, 1);
    if (shifted && shifted->at == exponential.at && rows.combines(shift, *shifted, Combiner::maximum, *keys)) {
      found.scores = shifted->value;
      found.isOwnMaximum = true;
    } else if (shifted && shifted->at == exponential.at) {
      found.isOwnMaximum = rows.isFiniteMaximum(shift, *shifted, *keys);
    }
  }
  found.isOwnMaximum |= found.factor > 0 && dims->second == 1 && isBelowOwnMaximum(power->scores.value, dims->first);
  bool isOneType = getElementTypeOrSelf(found.scores) == getElementTypeOrSelf(found.exponentials);
  return isOneType ? std::optional(found) : std::nullopt;
}

/// Raises `op` = e / sum(e).
LogicalResult raiseQuotient(RewriterBase &rewriter, linalg::LinalgOp op) {
  for (unsigned side : {0, 1}) {
    RowReader rows(op->getResult(0));
    std::optional<Quotient> quotient = rows.quotient(side);
    std::optional<RaisedSoftmax> found = quotient ? readSoftmax(rows, *quotient) : std::nullopt;
    if (!found)
      continue;
    if (!found->isOwnMaximum && hasGuard(found->exponentials)) {
      remark::missed(op.getLoc(), remark::RemarkOpts::name("Softmax").category("attn-raise-softmax"))
          << "rows whose exponentials are all 0 are replaced, and what is subtracted is not their maximum";
      continue;
    }
    rewriter.setInsertionPoint(op);
    Value raised =
        softmaxOver(rewriter, op.getLoc(), scaled(rewriter, op.getLoc(), found->scores, found->factor), found->dims);
    raised = castTo(rewriter, op.getLoc(), raised, found->exponentials.getType());
    raised = viewAgain(rewriter, found->views, found->exponentials, raised);
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
  Value shift = stripFactors(softmax.getInput(), outer);
  for (unsigned side : {0, 1}) {
    Value scores = findUnshifted(shift, side, softmax.getDim());
    if (!scores)
      continue;
    double inner = 1;
    Value input = outer == 1 ? scores : stripFactors(scores, inner);
    double factor = (side == 1 ? -outer : outer) * inner;
    if (std::abs(inner) > 1 || std::abs(factor) > 1 || std::abs(factor) < std::numeric_limits<float>::min())
      return;
    rewriter.setInsertionPoint(softmax);
    input = scaled(rewriter, softmax.getLoc(), input, factor);
    rewriter.modifyOpInPlace(softmax, [&] { softmax.getInputMutable().assign(input); });
    return;
  }
}

/// What is normalised in `value`, log(softmax(x)), and the dimensions of its sum: an op, or x - (log(sum(exp(x -
/// max(x)))) + max(x)).
std::optional<std::pair<Value, DimRange>> readLogWeights(Value value) {
  if (auto log = value.getDefiningOp<SoftmaxOp>())
    return log.getLog() ? std::optional(std::pair(Value(log.getInput()), DimRange(log.getDim(), 1))) : std::nullopt;
  if (!isPointwise(value.getDefiningOp()))
    return std::nullopt;
  RowReader rows(value);
  std::optional<Element> difference = rows.own();
  std::optional<Element> scores =
      difference && getAs<arith::SubFOp>(*difference) ? rows.tensor(rows.operand(*difference, 0)) : std::nullopt;
  std::optional<Places> keys =
      scores && rows.isWhole(*scores) ? rows.logSumExp(rows.operand(*difference, 1), *scores) : std::nullopt;
  std::optional<DimRange> dims = keys ? rows.findDims(scores->at, *keys) : std::nullopt;
  return dims ? std::optional(std::pair(scores->value, *dims)) : std::nullopt;
}

/// exp(log_softmax(x)), exp(x - log(sum(exp(x)))) -> softmax(x), views between them too
LogicalResult raiseExponential(RewriterBase &rewriter, linalg::LinalgOp op) {
  RowReader rows(op->getResult(0));
  std::optional<Element> exp = rows.own();
  std::optional<Element> logs = exp && getAs<math::ExpOp>(*exp) ? rows.tensor(rows.operand(*exp, 0)) : std::nullopt;
  if (!logs || logs->at != rows.at(logs->value).at)
    return failure();
  SmallVector<Operation *> views;
  Value source = rows.throughViews(*logs, &views).value;
  auto type = cast<RankedTensorType>(op->getResult(0).getType());
  auto found = readLogWeights(source);
  if (!found || getElementTypeOrSelf(found->first) != type.getElementType())
    return failure();
  rewriter.setInsertionPoint(op);
  Value weights = softmaxOver(rewriter, op.getLoc(), found->first, found->second);
  weights = viewAgain(rewriter, views, source, weights);
  weights = castTo(rewriter, op.getLoc(), weights, type);
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
    IRRewriter rewriter(&getContext());
    for (linalg::LinalgOp op : collect<linalg::LinalgOp>(getOperation())) {
      dropMagnitudes(rewriter, op);
      if (isPointwise(op))
        (void)divideFirst(rewriter, op);
    }
    for (linalg::LinalgOp op : collect<linalg::LinalgOp>(getOperation()))
      if (isPointwise(op) && failed(raiseQuotient(rewriter, op)))
        (void)raiseExponential(rewriter, op);
    getOperation()->walk([&](SoftmaxOp op) { dropMaximum(rewriter, op); });
    if (exact)
      return;
    for (linalg::LinalgOp op : collect<linalg::LinalgOp>(
             getOperation(), [](linalg::LinalgOp op) { return isa_and_nonnull<arith::DivFOp>(getScalarOp(op)); }))
      (void)raiseRenormalized(rewriter, op);
  }
};

} // namespace

std::unique_ptr<Pass> createRaiseSoftmaxPass(bool exact) { return std::make_unique<RaiseSoftmaxPass>(exact); }

} // namespace attn
