#include "dialects/attn/TopKOp.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace attn;

//===----------------------------------------------------------------------===//
// TopKOp
//===----------------------------------------------------------------------===//

LogicalResult TopKOp::verify() {
  auto input = cast<RankedTensorType>(getInput().getType()), values = cast<RankedTensorType>(getValues().getType()),
       positions = cast<RankedTensorType>(getPositions().getType());
  // C1
  if (getDim() >= static_cast<uint64_t>(input.getRank()))
    return emitOpError("expects dim in [0, ") << input.getRank() << "), got " << int64_t(getDim());
  // C2
  SmallVector<int64_t> shape(input.getShape());
  for (RankedTensorType type : {values, positions}) {
    if (type.getRank() == input.getRank())
      shape[getDim()] = type.getDimSize(getDim());
    if (failed(verifyCompatibleShape(shape, type.getShape())))
      return emitOpError("expects results of the input's sizes but for dimension ")
             << int64_t(getDim()) << ", got " << type << " for " << input;
  }
  if (failed(verifyCompatibleShape(values.getShape(), positions.getShape())))
    return emitOpError("expects results of one shape, got ") << values << " and " << positions;
  // C3
  if (!isa<FloatType, IntegerType>(input.getElementType()) || values.getElementType() != input.getElementType() ||
      !positions.getElementType().isInteger(64))
    return emitOpError("expects values of the input's type, floats or integers, and positions in i64, got ")
           << values << " and " << positions << " for " << input;
  return success();
}

LogicalResult TopKOp::reifyResultShapes(OpBuilder &b, ReifiedRankedShapedTypeDims &shapes) {
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, getLoc(), getInput());
  int64_t count = cast<RankedTensorType>(getValues().getType()).getDimSize(getDim());
  sizes[getDim()] = ShapedType::isDynamic(count) ? OpFoldResult(getCount()) : b.getIndexAttr(count);
  shapes.assign(2, sizes);
  return success();
}

#define GET_OP_CLASSES
#include "dialects/attn/TopKOp.cpp.inc"
