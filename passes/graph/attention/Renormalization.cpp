#include "passes/graph/Structured.h"
#include "passes/graph/attention/AttentionMatch.h"
#include "passes/graph/attention/Normalization.h"
#include "passes/graph/element/RowReduction.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include <cmath>
#include <limits>

using namespace mlir;

namespace attn {
namespace {

/// Weights of which a softmax is left where a tensor of zeros and ones has ones.
struct MaskedWeights {
  SoftmaxOp softmax;
  OpOperand *shown; ///< of the op that makes the weights
};

/// The byte of a tensor that `condition`, in a body, tests for being set, as an operand of the body's op.
OpOperand *readByte(linalg::LinalgOp op, Value condition) {
  auto test = condition.getDefiningOp<arith::CmpIOp>();
  return test && test.getPredicate() == arith::CmpIPredicate::ne && matchPattern(test.getRhs(), m_Zero())
             ? getInput(op, test.getLhs())
             : nullptr;
}

/// `input` as the softmax whose weights it is.
SoftmaxOp readSoftmax(linalg::LinalgOp op, OpOperand *input) {
  auto softmax = input && isAligned(op, input) ? input->get().getDefiningOp<SoftmaxOp>() : SoftmaxOp();
  return softmax && !softmax.getLog() && softmax.getType() == op->getResult(0).getType() ? softmax : SoftmaxOp();
}

/// `value` as w m, m a bool that became a number, or as m ? w : 0.
std::optional<MaskedWeights> readMaskedWeights(Value value) {
  auto op = value.getDefiningOp<linalg::LinalgOp>();
  Operation *scalar = getScalarOp(op);
  if (!scalar || !op.getMatchingIndexingMap(op.getDpsInitOperand(0)).isIdentity())
    return std::nullopt;
  if (auto select = dyn_cast<arith::SelectOp>(scalar)) {
    SoftmaxOp softmax = readSoftmax(op, getInput(op, select.getTrueValue()));
    OpOperand *shown = readByte(op, select.getCondition()), *zero = getInput(op, select.getFalseValue());
    bool isZero = isZeroFill(zero ? zero->get() : select.getFalseValue());
    return softmax && shown && isZero ? std::optional(MaskedWeights{softmax, shown}) : std::nullopt;
  }
  if (!isa<arith::MulFOp>(scalar))
    return std::nullopt;
  for (unsigned n : {0, 1}) {
    SoftmaxOp softmax = readSoftmax(op, getInput(op, scalar->getOperand(n)));
    OpOperand *shown = getInput(op, scalar->getOperand(1 - n));
    Value source = shown ? shown->get() : Value();
    while (source && isView(source.getDefiningOp()))
      source = source.getDefiningOp()->getOperand(0);
    auto number = source ? source.getDefiningOp<linalg::LinalgOp>() : linalg::LinalgOp();
    auto isOne = dyn_cast_or_null<arith::UIToFPOp>(getScalarOp(number));
    if (softmax && isOne && isOne.getIn().getType().isInteger(1))
      return MaskedWeights{softmax, shown};
  }
  return std::nullopt;
}

/// Whether `condition`, in the body of what it belongs to, tests that the sum of a row of `terms` over `keys` is above
/// 0.
bool testsSum(AtomSpace &space, Scalar condition, const Read &terms, const Atoms &keys) {
  auto isSum = [&](const Scalar &sum) {
    std::optional<unsigned> unitDim;
    std::optional<Atoms> over = sum.op || !isa<RankedTensorType>(sum.value.getType())
                                    ? std::nullopt
                                    : findReducedAtoms(space, {sum.value, sum.at}, terms, Combiner::sum, unitDim);
    Atoms wanted(keys);
    space.resolve(wanted);
    if (over)
      space.resolve(*over);
    return over && !unitDim && *over == wanted;
  };
  // A byte of the graph: it is not 0, and what it is made of is a comparison.
  if (auto test = getAs<arith::CmpIOp>(condition);
      test && test.getPredicate() == arith::CmpIPredicate::ne && matchPattern(test.getRhs(), m_Zero()))
    condition = readOperand(space, condition, 0);
  if (getAs<arith::ExtUIOp>(condition))
    condition = readOperand(space, condition, 0);
  auto above = getAs<arith::CmpFOp>(condition);
  return above && above.getPredicate() == arith::CmpFPredicate::OGT && isZeroFill(above.getRhs()) &&
         isSum(readOperand(space, condition, 0));
}

/// Whether `op` is x over its sum, or (`isGuarded`) over a number where that is 0. `keys` gets what is summed.
bool readRenormalized(linalg::LinalgOp op, AtomSpace &space, std::optional<Quotient> &quotient, Atoms &keys,
                      bool &isGuarded) {
  if (!isa_and_nonnull<arith::DivFOp>(getScalarOp(op)))
    return false;
  quotient = readQuotient(op, 0, space);
  if (!quotient || !op.getMatchingIndexingMap(quotient->numerator).isIdentity())
    return false;
  Read terms{quotient->numerator->get(), quotient->result};
  Scalar divisor = readScalar(space, quotient->denominator);
  isGuarded = bool(getAs<arith::SelectOp>(divisor));
  Scalar sum = isGuarded ? readOperand(space, divisor, 1) : divisor;
  if (sum.op || !isa<RankedTensorType>(sum.value.getType()))
    return false;
  std::optional<unsigned> unitDim;
  std::optional<Atoms> over = findReducedAtoms(space, {sum.value, sum.at}, terms, Combiner::sum, unitDim);
  if (!over || unitDim)
    return false;
  keys = *over;
  auto other =
      isGuarded ? dyn_cast_or_null<FloatAttr>(splatConstant(readOperand(space, divisor, 2).value)) : FloatAttr();
  return !isGuarded || (other && other.getValueAsDouble() > 0 && std::isfinite(other.getValueAsDouble()) &&
                        testsSum(space, readOperand(space, divisor, 0), terms, keys));
}

} // namespace

LogicalResult raiseRenormalized(RewriterBase &rewriter, linalg::LinalgOp op) {
  AtomSpace space;
  std::optional<Quotient> quotient;
  Atoms keys;
  bool isGuarded = false;
  if (!readRenormalized(op, space, quotient, keys, isGuarded))
    return failure();
  Value terms = quotient->numerator->get();
  std::optional<MaskedWeights> weights = readMaskedWeights(terms);
  if (!weights || terms.getType() != op->getResult(0).getType())
    return failure();
  SoftmaxOp softmax = weights->softmax;
  space.resolve(keys);
  Access at(quotient->result);
  space.resolve(at);
  if (at[softmax.getDim()] != keys)
    return failure();

  // A row that sees no key: 0 by the guard behind the quotient.
  linalg::LinalgOp last = op;
  if (op->getResult(0).hasOneUse()) {
    auto guard = dyn_cast<linalg::LinalgOp>(*op->user_begin());
    auto select = dyn_cast_or_null<arith::SelectOp>(getScalarOp(guard));
    OpOperand *kept = select ? getInput(guard, select.getTrueValue()) : nullptr;
    OpOperand *zero = select ? getInput(guard, select.getFalseValue()) : nullptr;
    OpOperand *byte = select ? readByte(guard, select.getCondition()) : nullptr;
    bool isGuard = kept && byte && kept->get() == op->getResult(0) && isAligned(guard, kept) &&
                   guard->getResult(0).getType() == terms.getType() &&
                   guard.getMatchingIndexingMap(kept).isIdentity() &&
                   isZeroFill(zero ? zero->get() : select.getFalseValue());
    std::optional<Read> row = isGuard ? readOperand(space, guard, byte, quotient->result) : std::nullopt;
    if (row && testsSum(space, readScalar(space, *row), {terms, quotient->result}, keys))
      last = guard;
  }
  if (isGuarded && last == op)
    return failure(); // scores of NaN would become 0 with those rows

  rewriter.setInsertionPoint(last);
  auto masking = cast<linalg::LinalgOp>(terms.getDefiningOp());
  Location loc = softmax.getLoc();
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(rewriter, loc, softmax.getInput());
  Type element = softmax.getType().getElementType();
  AffineMap identity = masking.getMatchingIndexingMap(masking.getDpsInitOperand(0));
  Value scores = elementwise(rewriter, loc, sizes, element, {softmax.getInput(), weights->shown->get()},
                             {identity, masking.getMatchingIndexingMap(weights->shown)},
                             [&](OpBuilder &b, Location loc, ValueRange args) -> Value {
                               Value zero = arith::ConstantOp::create(b, loc, b.getZeroAttr(args[1].getType())),
                                     isShown;
                               if (isa<FloatType>(args[1].getType()))
                                 isShown = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::UNE, args[1], zero);
                               else
                                 isShown = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, args[1], zero);
                               Value hidden = floatConstant(b, loc, element, -std::numeric_limits<double>::infinity());
                               return arith::SelectOp::create(b, loc, isShown, args[0], hidden);
                             });
  auto raised = SoftmaxOp::create(rewriter, loc, scores.getType(), scores, softmax.getDim(), false);
  raised->setAttr(kAssumesAttr,
                  rewriter.getStringAttr("|score| < 40: what a mask behind the softmax hides outweighs no other key"));
  Value result = raised;
  if (last != op)
    result = elementwise(rewriter, loc, sizes, element, result, identity,
                         [&](OpBuilder &b, Location loc, ValueRange args) -> Value {
                           Value none = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::UNO, args[0], args[0]);
                           Value zero = floatConstant(b, loc, element, 0);
                           return arith::SelectOp::create(b, loc, none, zero, args[0]);
                         });
  rewriter.replaceOp(last, result);
  return success();
}

} // namespace attn
