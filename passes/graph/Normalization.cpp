#include "passes/graph/Normalization.h"

#include "passes/graph/AttentionMatch.h"
#include "passes/graph/RowReduction.h"
#include "passes/graph/Structured.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Transforms/RegionUtils.h"
#include <cmath>

using namespace mlir;

namespace attn {

bool isStatic(Value value) {
  SmallVector<Value> front{value};
  DenseSet<Value> seen;
  while (!front.empty()) {
    Value next = front.pop_back_val();
    Operation *op = next.getDefiningOp();
    // Sizes do not count: a table is cut to them, positions are counted up to them.
    if (next.getType().isIndex() || !seen.insert(next).second)
      continue;
    if (!op || op->getNumRegions() > 1 || seen.size() > 256)
      return false;
    llvm::append_range(front, op->getOperands());
    // What a body reads besides its op's operands, as a gather does.
    visitUsedValuesDefinedAbove(op->getRegions(), [&](OpOperand *used) { front.push_back(used->get()); });
  }
  return true;
}

/// Whether two scalars are one, or elements that a linalg op reads at one place of one tensor.
static bool isSameElement(Value x, Value y) {
  auto a = dyn_cast<BlockArgument>(x), b = dyn_cast<BlockArgument>(y);
  auto op = a && b && a.getOwner() == b.getOwner() ? dyn_cast<linalg::LinalgOp>(a.getOwner()->getParentOp())
                                                   : linalg::LinalgOp();
  if (!op)
    return x == y;
  OpOperand *first = op.getMatchingOpOperand(a), *second = op.getMatchingOpOperand(b);
  return first->get() == second->get() && op.getMatchingIndexingMap(first) == op.getMatchingIndexingMap(second);
}

/// Whether no element of `value` is below 0, as far as a few ops show; NaN is none.
static bool isNonNegative(Value value, unsigned depth = 16) {
  if (depth-- == 0)
    return false;
  if (auto number = dyn_cast_or_null<FloatAttr>(splatConstant(value)))
    return !number.getValue().isNegative() || number.getValue().isZero();
  Operation *op = nullptr;
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    auto owner = dyn_cast<linalg::LinalgOp>(argument.getOwner()->getParentOp());
    return owner && isPointwise(owner) && owner.isDpsInput(owner.getMatchingOpOperand(argument)) &&
           isNonNegative(owner.getMatchingOpOperand(argument)->get(), depth);
  }
  op = value.getDefiningOp();
  if (isa<tensor::CollapseShapeOp, tensor::ExpandShapeOp, tensor::CastOp>(op))
    return isNonNegative(op->getOperand(0), depth);
  if (auto softmax = dyn_cast<SoftmaxOp>(op))
    return !softmax.getLog();
  if (isPointwise(op))
    return isNonNegative(cast<linalg::LinalgOp>(op).getBlock()->getTerminator()->getOperand(0), depth);
  auto all = [&](ValueRange values) {
    return llvm::all_of(values, [&](Value operand) { return isNonNegative(operand, depth); });
  };
  if (isa<math::ExpOp, math::Exp2Op, math::AbsFOp, arith::UIToFPOp>(op))
    return true;
  if (isa<math::PowFOp>(op))
    return isNonNegative(op->getOperand(0), depth);
  if (auto product = dyn_cast<arith::MulFOp>(op); product && isSameElement(product.getLhs(), product.getRhs()))
    return true;
  if (isa<arith::MaximumFOp, arith::MaxNumFOp>(op))
    return isNonNegative(op->getOperand(0), depth) || isNonNegative(op->getOperand(1), depth);
  if (isa<arith::AddFOp, arith::MulFOp, arith::DivFOp, arith::ExtFOp, arith::TruncFOp, arith::MinimumFOp>(op))
    return all(op->getOperands());
  if (auto select = dyn_cast<arith::SelectOp>(op)) {
    // relu: x < 0 ? 0 : x
    auto compare = select.getCondition().getDefiningOp<arith::CmpFOp>();
    bool isRelu =
        compare && compare.getLhs() == select.getFalseValue() &&
        (compare.getPredicate() == arith::CmpFPredicate::OLT || compare.getPredicate() == arith::CmpFPredicate::ULT) &&
        isNonNegative(compare.getRhs(), depth);
    return isNonNegative(select.getTrueValue(), depth) && (isRelu || isNonNegative(select.getFalseValue(), depth));
  }
  return false;
}

/// Whether `value` is computed by elementwise ops and views from a sum of what `terms` is a view of.
static bool holdsSumOf(Value value, Value terms) {
  auto root = [](Value value) {
    while (isView(value.getDefiningOp()))
      value = value.getDefiningOp()->getOperand(0);
    return value;
  };
  terms = root(terms);
  SmallVector<Value> front{value};
  DenseSet<Value> seen;
  while (!front.empty()) {
    Value next = front.pop_back_val();
    Operation *op = next.getDefiningOp();
    if (!op || !seen.insert(next).second)
      continue;
    if (getReduction(op) == Combiner::sum && root(op->getOperand(0)) == terms)
      return true;
    if (isView(op) || isPointwise(op))
      llvm::copy_if(op->getOperands(), std::back_inserter(front),
                    [](Value operand) { return isa<RankedTensorType>(operand.getType()); });
  }
  return false;
}

std::optional<Normalization> findSumNormalization(linalg::LinalgOp op) {
  for (unsigned side : {0, 1}) {
    AtomSpace space;
    std::optional<Quotient> quotient = readQuotient(op, side, space);
    if (!quotient || !isa<FloatType>(getElementTypeOrSelf(op->getResult(0))) ||
        !isNonNegative(quotient->numerator->get()))
      continue;
    Value terms = quotient->numerator->get(), result = op->getResult(0);
    if (terms.getType() != result.getType() || !op.getMatchingIndexingMap(quotient->numerator).isIdentity())
      continue;
    Read sum = quotient->denominator;
    // exp(x) / (c + sum(exp(x))): one more score, log(c).
    std::optional<double> more;
    space.walkUp(sum.value, sum.access);
    auto shifted = sum.value.getDefiningOp<linalg::LinalgOp>();
    auto exponential = terms.getDefiningOp<linalg::LinalgOp>();
    auto exp = dyn_cast_or_null<math::ExpOp>(getScalarOp(exponential));
    OpOperand *exponent = exp ? getInput(exponential, exp.getOperand()) : nullptr;
    if (auto add = dyn_cast_or_null<arith::AddFOp>(getScalarOp(shifted)); add && exponent)
      for (unsigned n : {0, 1}) {
        auto constant = dyn_cast_or_null<FloatAttr>(splatConstant(add->getOperand(n)));
        OpOperand *rest = getInput(shifted, add->getOperand(1 - n));
        double number = constant ? constant.getValueAsDouble() : 0;
        if (!rest || !(number > 0) || !std::isfinite(number) || !isAligned(exponential, exponent) ||
            exponent->get().getType() != result.getType())
          continue;
        if (std::optional<Access> at = AtomSpace::operandAccess(shifted.getMatchingIndexingMap(rest),
                                                                AtomSpace::loopAtoms(shifted, sum.access))) {
          sum = {rest->get(), *at};
          more = std::log(number);
          break;
        }
      }
    std::optional<unsigned> unitDim;
    std::optional<Atoms> keys = findReducedAtoms(space, sum, {terms, quotient->result}, Combiner::sum, unitDim);
    Access at(quotient->result);
    if (keys) {
      space.resolve(at);
      space.resolve(*keys);
      auto *dim = unitDim ? at.begin() + *unitDim : llvm::find(at, *keys);
      if (dim != at.end()) {
        Normalization found(more ? Normalizer::softmax : Normalizer::sum, more ? exponent->get() : terms, result,
                            dim - at.begin());
        found.sinkScore = more;
        return found;
      }
    }
    if (!keys && holdsSumOf(quotient->denominator.value, terms)) {
      Normalization found(Normalizer::sum, terms, result, 0);
      found.flaw = "the weights are not divided by the sum of their row alone";
      return found;
    }
  }
  return std::nullopt;
}

std::optional<Normalization> findSink(SoftmaxOp softmax) {
  auto column = softmax.getInput().getDefiningOp<tensor::InsertSliceOp>();
  auto scores = column ? column.getDest().getDefiningOp<tensor::InsertSliceOp>() : tensor::InsertSliceOp();
  int64_t dim = softmax.getDim(), rank = softmax.getType().getRank();
  if (!scores || softmax.getLog() || !softmax->hasOneUse() || column.getSourceType().getRank() != rank ||
      scores.getSourceType().getRank() != rank || column.getSourceType().getDimSize(dim) != 1)
    return std::nullopt;
  auto cut = dyn_cast<tensor::ExtractSliceOp>(*softmax->user_begin());
  if (!cut || cut.getType().getRank() != rank ||
      cut.getType().getElementType() != scores.getSourceType().getElementType())
    return std::nullopt;
  SmallVector<OpFoldResult> total = tensor::getMixedSizes(*std::make_unique<OpBuilder>(softmax), softmax.getLoc(), cut);
  for (int64_t n = 0; n != rank; ++n) {
    for (OffsetSizeAndStrideOpInterface slice :
         {OffsetSizeAndStrideOpInterface(column), OffsetSizeAndStrideOpInterface(scores),
          OffsetSizeAndStrideOpInterface(cut)})
      if (!isConstantIntValue(slice.getMixedStrides()[n], 1))
        return std::nullopt;
    Extent size = Extent::of(scores.getMixedSizes()[n]);
    bool isEnd =
        n == dim ? Extent::of(column.getMixedOffsets()[n]) == size
                 : isConstantIntValue(column.getMixedOffsets()[n], 0) && Extent::of(column.getMixedSizes()[n]) == size;
    if (!isEnd || !isConstantIntValue(scores.getMixedOffsets()[n], 0) ||
        !isConstantIntValue(cut.getMixedOffsets()[n], 0) || !(Extent::of(cut.getMixedSizes()[n]) == size))
      return std::nullopt;
  }
  Normalization found(softmax);
  found.input = scores.getSource();
  found.result = cut.getResult();
  found.sink = column.getSource();
  return found;
}

OpOperand *findGate(linalg::LinalgOp sum) {
  if (!isContraction(sum) || sum->getResult(0).use_empty())
    return nullptr;
  for (unsigned n : {0, 1}) {
    Value weights = sum->getOperand(n);
    if (isStatic(sum->getOperand(1 - n)))
      continue;
    SmallVector<Value> front{weights};
    DenseSet<Value> seen;
    bool isGate = false, isScore = false, isOther = false;
    while (!front.empty()) {
      Value next = front.pop_back_val();
      Operation *op = next.getDefiningOp();
      if (!seen.insert(next).second || !op)
        continue;
      isOther |= isa<SoftmaxOp, AttentionOp>(op);
      if (isContraction(op))
        isScore |= !isStatic(op->getOperand(0)) && !isStatic(op->getOperand(1));
      if (!isView(op) && !isPointwise(op))
        continue;
      isGate |= !isView(op) && isNonNegative(next);
      llvm::copy_if(op->getOperands(), std::back_inserter(front),
                    [](Value operand) { return isa<RankedTensorType>(operand.getType()); });
    }
    if (isGate && isScore && !isOther)
      return &sum->getOpOperand(n);
  }
  return nullptr;
}

} // namespace attn
