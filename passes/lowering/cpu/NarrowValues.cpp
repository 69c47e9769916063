#include "passes/lowering/cpu/NarrowValues.h"
#include "passes/graph/Structured.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;

namespace attn {

Value convertElements(RewriterBase &rewriter, Location loc, Value value, Type element) {
  AffineMap identity = rewriter.getMultiDimIdentityMap(cast<RankedTensorType>(value.getType()).getRank());
  return elementwise(
      rewriter, loc, tensor::getMixedSizes(rewriter, loc, value), element, value, identity,
      [&](OpBuilder &b, Location loc, ValueRange args) { return convertFloat(b, loc, args.front(), element); });
}

bool isRounding(Operation *op) {
  linalg::GenericOp generic = getConversion<arith::TruncFOp>(op);
  return generic && getElementTypeOrSelf(generic.getResult(0)).isBF16() &&
         getElementTypeOrSelf(generic->getOperand(0)).isF32();
}

/// The op, if it is a view of its first operand.
static Operation *getView(Value value) {
  Operation *op = value.getDefiningOp();
  return isa_and_nonnull<tensor::ExpandShapeOp, tensor::CollapseShapeOp, tensor::CastOp, tensor::ExtractSliceOp>(op)
             ? op
             : nullptr;
}

/// The same view of `source`.
static Value cloneView(RewriterBase &rewriter, Operation *view, Value source) {
  Operation *twin = rewriter.clone(*view);
  twin->setOperand(0, source);
  auto type = cast<RankedTensorType>(view->getResult(0).getType());
  twin->getResult(0).setType(type.clone(getElementTypeOrSelf(source.getType())));
  return twin->getResult(0);
}

Value getUnwidened(RewriterBase &rewriter, Value value) {
  if (Operation *view = getView(value)) {
    Value source = getUnwidened(rewriter, view->getOperand(0));
    if (!source)
      return {};
    OpBuilder::InsertionGuard guard(rewriter);
    rewriter.setInsertionPoint(view);
    return cloneView(rewriter, view, source);
  }
  linalg::GenericOp generic = getConversion<arith::ExtFOp>(value.getDefiningOp());
  Type element = generic && getElementTypeOrSelf(value).isF32() ? getElementTypeOrSelf(generic->getOperand(0)) : Type();
  return element && (element.isBF16() || element.isF16()) ? generic->getOperand(0) : Value();
}

bool RoundedValues::isComputed(Value value) {
  while (Operation *view = getView(value))
    value = view->getOperand(0);
  return isa_and_nonnull<linalg::LinalgOp>(value.getDefiningOp()) && getElementTypeOrSelf(value.getType()).isF32();
}

Value RoundedValues::get(RewriterBase &rewriter, Value value) {
  if (Value half = getUnwidened(rewriter, value); half && getElementTypeOrSelf(half.getType()).isBF16())
    return half;
  if (Operation *view = getView(value))
    return cloneView(rewriter, view, get(rewriter, view->getOperand(0)));
  Value &known = rounded[value];
  if (!known) {
    OpBuilder::InsertionGuard guard(rewriter);
    rewriter.setInsertionPointAfterValue(value);
    known = convertElements(rewriter, value.getLoc(), value, rewriter.getBF16Type());
  }
  return known;
}

} // namespace attn
