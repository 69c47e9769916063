#include "dialects/attn/IntegerProductOp.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace attn;

LogicalResult IntegerProductOp::verify() {
  auto lhs = cast<RankedTensorType>(getLhs().getType()), rhs = cast<RankedTensorType>(getRhs().getType()),
       result = cast<RankedTensorType>(getResult().getType());
  // C1
  for (Value operand : getOperands())
    if (!getElementTypeOrSelf(operand).isInteger(8))
      return emitOpError("expects operands of i8, got ") << operand.getType();
  if (!result.getElementType().isInteger(32))
    return emitOpError("expects a result of i32, got ") << result;
  // C2
  if (lhs.getRank() < 1 || rhs.getRank() < 2 || getNumBatch() >= lhs.getRank())
    return emitOpError("expects rows by a matrix, got ") << lhs << " by " << rhs;
  if (failed(verifyCompatibleShape(rhs.getShape().drop_back(2), lhs.getShape().take_front(getNumBatch()))))
    return emitOpError("expects a matrix for each of the first dimensions of lhs, got ") << lhs << " by " << rhs;
  // C3
  if (failed(verifyCompatibleShape({lhs.getShape().back()}, {getDepth()})))
    return emitOpError("expects the rows of lhs to be as long as the columns of rhs, got ")
           << lhs.getShape().back() << " and " << getDepth();
  // C4
  SmallVector<int64_t> shape(lhs.getShape());
  shape.back() = getColumns();
  if (failed(verifyCompatibleShape(shape, result.getShape())))
    return emitOpError("expects a result of the shape of ")
           << RankedTensorType::get(shape, result.getElementType()) << ", got " << result;
  // C5
  if (getLhsZero() && cast<RankedTensorType>(getLhsZero().getType()).getRank() != 0)
    return emitOpError("expects one zero point for lhs, got ") << getLhsZero().getType();
  if (getRhsZero())
    if (auto zero = cast<RankedTensorType>(getRhsZero().getType());
        zero.getRank() != 0 && failed(verifyCompatibleShape(zero.getShape(), {getColumns()})))
      return emitOpError("expects one zero point for rhs, or one for each of its ")
             << getColumns() << " columns, got " << zero;
  return success();
}

LogicalResult IntegerProductOp::reifyResultShapes(OpBuilder &b, ReifiedRankedShapedTypeDims &shapes) {
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, getLoc(), getLhs());
  sizes.back() = tensor::getMixedSize(b, getLoc(), getRhs(), getNumBatch() + (getTransposed() ? 0 : 1));
  // The result's type is what its sizes must be written as.
  auto type = cast<RankedTensorType>(getResult().getType());
  for (auto [n, size] : llvm::enumerate(sizes))
    if (!type.isDynamicDim(n))
      size = b.getIndexAttr(type.getDimSize(n));
  shapes.assign(1, sizes);
  return success();
}

#define GET_OP_CLASSES
#include "dialects/attn/IntegerProductOp.cpp.inc"
