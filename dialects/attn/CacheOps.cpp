#include "dialects/attn/CacheOps.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace attn;

//===----------------------------------------------------------------------===//
// KvAppendOp
//===----------------------------------------------------------------------===//

LogicalResult KvAppendOp::verify() {
  auto rows = cast<RankedTensorType>(getRows().getType()), cache = cast<RankedTensorType>(getCache().getType()),
       result = cast<RankedTensorType>(getType());
  int64_t dim = getDim();
  // C1
  if (dim < 0 || dim >= cache.getRank())
    return emitOpError("expects dim to be a dimension of ") << cache << ", got " << dim;
  // C2
  for (RankedTensorType type : {rows, result})
    if (type.getRank() != cache.getRank() || type.getElementType() != cache.getElementType())
      return emitOpError("expects tensors of the rank and element type of ") << cache << ", got " << type;
  // C3
  for (int64_t d = 0; d < cache.getRank(); ++d) {
    if (d != dim) {
      for (RankedTensorType type : {rows, result})
        if (!cache.isDynamicDim(d) && !type.isDynamicDim(d) && type.getDimSize(d) != cache.getDimSize(d))
          return emitOpError("expects size ")
                 << cache.getDimSize(d) << " in dimension " << d << ", got " << type.getDimSize(d);
    } else if (!cache.isDynamicDim(d) && !rows.isDynamicDim(d) && !result.isDynamicDim(d) &&
               result.getDimSize(d) != cache.getDimSize(d) + rows.getDimSize(d)) {
      return emitOpError("expects size ") << cache.getDimSize(d) + rows.getDimSize(d) << " in dimension " << d
                                          << " of the result, got " << result.getDimSize(d);
    }
  }
  // C4
  if (getState() && static_cast<int32_t>(*getState()) < 0)
    return emitOpError("expects a state that is not negative, got ") << static_cast<int32_t>(*getState());
  if (getState() && (!cache.isDynamicDim(dim) || !result.isDynamicDim(dim)))
    return emitOpError("expects a cache with a state to be dynamic in dimension ") << dim << ", got " << cache;
  return success();
}

LogicalResult KvAppendOp::reifyResultShapes(OpBuilder &b, ReifiedRankedShapedTypeDims &shapes) {
  auto type = cast<RankedTensorType>(getType());
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, getLoc(), getCache());
  for (int64_t d = 0; d < type.getRank(); ++d) {
    if (!type.isDynamicDim(d)) {
      sizes[d] = b.getIndexAttr(type.getDimSize(d));
    } else if (d == static_cast<int64_t>(getDim())) {
      Value past = tensor::DimOp::create(b, getLoc(), getCache(), d),
            more = b.createOrFold<tensor::DimOp>(getLoc(), getRows(), d);
      sizes[d] = b.createOrFold<arith::AddIOp>(getLoc(), past, more);
    } else if (isa<Attribute>(sizes[d])) {
      // Reified dynamic sizes are values.
      sizes[d] = arith::ConstantIndexOp::create(b, getLoc(), cast<RankedTensorType>(getCache().getType()).getDimSize(d))
                     .getResult();
    }
  }
  shapes.push_back(std::move(sizes));
  return success();
}

//===----------------------------------------------------------------------===//
// KvOpenOp
//===----------------------------------------------------------------------===//

LogicalResult KvOpenOp::verify() {
  // C2
  if (static_cast<int32_t>(getState()) < 0)
    return emitOpError("expects a state that is not negative, got ") << static_cast<int32_t>(getState());
  return success();
}

LogicalResult KvOpenOp::reifyResultShapes(OpBuilder &b, ReifiedRankedShapedTypeDims &shapes) {
  shapes.push_back(tensor::getMixedSizes(b, getLoc(), getCache()));
  return success();
}

//===----------------------------------------------------------------------===//
// CacheOp
//===----------------------------------------------------------------------===//

LogicalResult CacheOp::verify() {
  auto type = cast<MemRefType>(getType());
  // C1
  if (static_cast<size_t>(type.getNumDynamicDims()) != getSizes().size())
    return emitOpError("expects one size a dynamic dimension of ") << type << ", got " << getSizes().size();
  // C2
  if (!type.getLayout().isIdentity())
    return emitOpError("expects a result of identity layout, got ") << type;
  // C3
  if (static_cast<int32_t>(getState()) < 0)
    return emitOpError("expects a state that is not negative, got ") << static_cast<int32_t>(getState());
  // C4
  int64_t dim = getDim().value_or(0);
  if (getDim() && (dim < 0 || dim >= type.getRank() || !type.isDynamicDim(dim)))
    return emitOpError("expects dim to be a dynamic dimension of ") << type << ", got " << dim;
  return success();
}

//===----------------------------------------------------------------------===//
// NarrowRowsOp, WidenRowsOp
//===----------------------------------------------------------------------===//

static LogicalResult verifyRows(Operation *op, RankedTensorType numbers, RankedTensorType bytes) {
  // C1
  Type element = numbers.getElementType();
  bool isFloat = element.isF32() || element.isF16() || element.isBF16();
  if (!isFloat || !isByteOfRow(bytes.getElementType()))
    return op->emitOpError("expects rows of floats and rows of i8 or f8E4M3FN, got ") << numbers << " and " << bytes;
  // C2
  int64_t rank = numbers.getRank();
  if (rank == 0 || bytes.getRank() != rank || numbers.isDynamicDim(rank - 1) ||
      bytes.getDimSize(rank - 1) != numbers.getDimSize(rank - 1) + kScaleBytes ||
      bytes.getShape().drop_back() != numbers.getShape().drop_back())
    return op->emitOpError("expects rows of bytes that are ")
           << kScaleBytes << " longer than those of " << numbers << ", got " << bytes;
  return success();
}

static void reifyRows(OpBuilder &b, Location loc, Value from, Type to, ReifiedRankedShapedTypeDims &shapes) {
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, loc, from);
  sizes.back() = b.getIndexAttr(cast<RankedTensorType>(to).getShape().back());
  shapes.push_back(std::move(sizes));
}

LogicalResult NarrowRowsOp::verify() {
  return verifyRows(*this, cast<RankedTensorType>(getRows().getType()), cast<RankedTensorType>(getType()));
}

LogicalResult NarrowRowsOp::reifyResultShapes(OpBuilder &b, ReifiedRankedShapedTypeDims &shapes) {
  reifyRows(b, getLoc(), getRows(), getType(), shapes);
  return success();
}

LogicalResult WidenRowsOp::verify() {
  return verifyRows(*this, cast<RankedTensorType>(getType()), cast<RankedTensorType>(getBytes().getType()));
}

LogicalResult WidenRowsOp::reifyResultShapes(OpBuilder &b, ReifiedRankedShapedTypeDims &shapes) {
  reifyRows(b, getLoc(), getBytes(), getType(), shapes);
  return success();
}

RankedTensorType attn::getNarrowType(RankedTensorType rows, Type element) {
  SmallVector<int64_t> shape(rows.getShape());
  shape.back() += kScaleBytes;
  return RankedTensorType::get(shape, element);
}

MemRefType attn::getFrontType(RankedTensorType type, int64_t dim) {
  SmallVector<int64_t> strides(type.getRank());
  int64_t stride = 1;
  for (int64_t d = type.getRank(); d-- > 0;) {
    strides[d] = stride;
    bool isKnown = d != dim && !type.isDynamicDim(d) && !ShapedType::isDynamic(stride);
    stride = isKnown ? stride * type.getDimSize(d) : ShapedType::kDynamic;
  }
  auto layout = StridedLayoutAttr::get(type.getContext(), 0, strides);
  return MemRefType::get(type.getShape(), type.getElementType(), layout);
}

#define GET_OP_CLASSES
#include "dialects/attn/CacheOps.cpp.inc"
