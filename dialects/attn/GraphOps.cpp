#include "dialects/attn/AttnOps.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace attn;

//===----------------------------------------------------------------------===//
// SoftmaxOp
//===----------------------------------------------------------------------===//

LogicalResult SoftmaxOp::verify() {
  int64_t rank = cast<RankedTensorType>(getInput().getType()).getRank();
  // C1
  if (getDim() >= static_cast<uint64_t>(rank))
    return emitOpError("expects dim in [0, ") << rank << "), got " << int64_t(getDim());
  // C2
  if (!isa<FloatType>(getElementTypeOrSelf(getInput())))
    return emitOpError("expects a float element type, got ") << getElementTypeOrSelf(getInput());
  return success();
}

LogicalResult SoftmaxOp::reifyResultShapes(OpBuilder &b, ReifiedRankedShapedTypeDims &shapes) {
  shapes.push_back(tensor::getMixedSizes(b, getLoc(), getInput()));
  return success();
}

//===----------------------------------------------------------------------===//
// LayerNormOp
//===----------------------------------------------------------------------===//

LogicalResult LayerNormOp::verify() {
  auto input = cast<RankedTensorType>(getInput().getType());
  // C1
  if (getAxis() >= static_cast<uint64_t>(input.getRank()))
    return emitOpError("expects axis in [0, ") << input.getRank() << "), got " << int64_t(getAxis());
  // C2
  ArrayRef<int64_t> normalised = input.getShape().drop_front(getAxis());
  for (Value parameter : {getScale(), getBias()}) {
    if (!parameter)
      continue;
    auto type = cast<RankedTensorType>(parameter.getType());
    if (failed(verifyCompatibleShape(normalised, type.getShape())))
      return emitOpError("expects scale and bias to have the shape of the normalised dimensions, got ")
             << type << " for " << input << " from dimension " << int64_t(getAxis());
    // C3
    if (!isa<FloatType>(input.getElementType()) || type.getElementType() != input.getElementType())
      return emitOpError("expects input, scale and bias to have one float element type, got ")
             << input.getElementType() << " and " << type.getElementType();
  }
  return success();
}

LogicalResult LayerNormOp::reifyResultShapes(OpBuilder &b, ReifiedRankedShapedTypeDims &shapes) {
  shapes.push_back(tensor::getMixedSizes(b, getLoc(), getInput()));
  return success();
}
