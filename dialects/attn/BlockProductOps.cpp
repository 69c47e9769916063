#include "dialects/attn/BlockProductOps.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace attn;

namespace {

RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }

/// The element types of what is stored, and its parameters.
LogicalResult verifyStored(Operation *op, Value codes, Value scales, Value zeros, int64_t block, int64_t bits) {
  Type scale = typeOf(scales).getElementType();
  if (!typeOf(codes).getElementType().isInteger(8))
    return op->emitOpError("expects codes of i8, got ") << codes.getType();
  if (!isa<FloatType>(scale))
    return op->emitOpError("expects scales that are floats, got ") << scales.getType();
  if (zeros && !typeOf(zeros).getElementType().isInteger(8) && typeOf(zeros).getElementType() != scale)
    return op->emitOpError("expects zero points of i8 or of the scales' type, got ") << zeros.getType();
  if ((bits != 2 && bits != 4 && bits != 8) || block < 1)
    return op->emitOpError("expects 2, 4 or 8 bits and a positive block, got ") << bits << " and " << block;
  return success();
}

LogicalResult verifyShape(Operation *op, StringRef what, Value stored, ArrayRef<int64_t> shape) {
  if (succeeded(verifyCompatibleShape(typeOf(stored).getShape(), shape)))
    return success();
  return op->emitOpError("expects ") << what << " of the shape of "
                                     << RankedTensorType::get(shape, typeOf(stored).getElementType()) << ", got "
                                     << stored.getType();
}

LogicalResult verifyShapes(Operation *op, ArrayRef<int64_t> shape, int64_t axis, Value codes, Value scales, Value zeros,
                           int64_t block) {
  SmallVector<int64_t> blocks(shape);
  if (!ShapedType::isDynamic(blocks[axis]))
    blocks[axis] = llvm::divideCeil(blocks[axis], block);
  if (failed(verifyShape(op, "codes", codes, shape)) || failed(verifyShape(op, "scales", scales, blocks)))
    return failure();
  return zeros ? verifyShape(op, "zero points", zeros, blocks) : success();
}

} // namespace

LogicalResult DequantizeBlocksOp::verify() {
  RankedTensorType result = typeOf(getResult());
  // C1
  if (failed(verifyStored(*this, getCodes(), getScales(), getZeros(), getBlock(), getBits()))) // C2
    return failure();
  if (result.getElementType() != typeOf(getScales()).getElementType())
    return emitOpError("expects a result of the scales' type, got ") << result << " and " << getScales().getType();
  // C2
  int64_t axis = getAxis();
  if (axis < 0 || axis >= result.getRank())
    return emitOpError("expects blocks along one of ") << result.getRank() << " dimensions, got " << axis;
  // C5
  if (getIsE4m3() && (getBits() != 8 || getZeros() || getZeroPoint() || getIsUnsigned()))
    return emitOpError("expects codes of e4m3 in 8 bits, with a sign and without zero points, got ")
           << getBits() << " bits" << (getZeros() ? " and zero points" : "");
  // C3 C4
  return verifyShapes(*this, result.getShape(), axis, getCodes(), getScales(), getZeros(), getBlock());
}

LogicalResult DequantizeBlocksOp::reifyResultShapes(OpBuilder &b, ReifiedRankedShapedTypeDims &shapes) {
  RankedTensorType type = typeOf(getResult());
  SmallVector<OpFoldResult> &sizes = shapes.emplace_back();
  for (int64_t dim = 0; dim < type.getRank(); ++dim)
    sizes.push_back(type.isDynamicDim(dim) ? tensor::getMixedSize(b, getLoc(), getCodes(), dim)
                                           : b.getIndexAttr(type.getDimSize(dim)));
  return success();
}

LogicalResult BlockProductOp::verify() {
  RankedTensorType lhs = typeOf(getLhs()), result = typeOf(getResult());
  // C1
  if (!lhs.getElementType().isF32() || !result.getElementType().isF32())
    return emitOpError("expects rows and a result of f32, got ") << lhs << " and " << result;
  if (failed(verifyStored(*this, getCodes(), getScales(), getZeros(), getBlock(), getBits())))
    return failure();
  // C2
  if (typeOf(getCodes()).getRank() != 2)
    return emitOpError("expects a matrix of codes, got ") << getCodes().getType();
  // C3
  if (lhs.getRank() < 1 || ShapedType::isDynamic(lhs.getShape().back()))
    return emitOpError("expects rows of a static length, got ") << lhs;
  SmallVector<int64_t> shape = {getDepth(), getColumns()};
  if (getTransposed())
    std::swap(shape[0], shape[1]);
  if (failed(verifyShapes(*this, shape, getTransposed() ? 1 : 0, getCodes(), getScales(), getZeros(), getBlock())))
    return failure();
  // C4
  SmallVector<int64_t> sizes(lhs.getShape());
  sizes.back() = getColumns();
  if (failed(verifyCompatibleShape(sizes, result.getShape())))
    return emitOpError("expects a result of the shape of ")
           << RankedTensorType::get(sizes, result.getElementType()) << ", got " << result;
  return success();
}

LogicalResult BlockProductOp::reifyResultShapes(OpBuilder &b, ReifiedRankedShapedTypeDims &shapes) {
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, getLoc(), getLhs());
  sizes.back() = tensor::getMixedSize(b, getLoc(), getScales(), getTransposed() ? 0 : 1);
  // The result's type is what its sizes must be written as.
  RankedTensorType type = typeOf(getResult());
  for (auto [n, size] : llvm::enumerate(sizes))
    if (!type.isDynamicDim(n))
      size = b.getIndexAttr(type.getDimSize(n));
  shapes.assign(1, sizes);
  return success();
}

#define GET_OP_CLASSES
#include "dialects/attn/BlockProductOps.cpp.inc"
