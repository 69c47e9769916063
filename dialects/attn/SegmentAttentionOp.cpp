#include "dialects/attn/SegmentAttentionOp.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace attn;

//===----------------------------------------------------------------------===//
// SegmentAttentionOp
//===----------------------------------------------------------------------===//

LogicalResult SegmentAttentionOp::verify() {
  auto typeOf = [](Value value) { return cast<RankedTensorType>(value.getType()); };
  RankedTensorType scores = typeOf(getScores()), values = typeOf(getValues()), result = typeOf(getResult());
  auto agree = [](int64_t x, int64_t y) { return x == y || ShapedType::isDynamic(x) || ShapedType::isDynamic(y); };
  // C1
  if (scores.getRank() != 2 || values.getRank() != 3 || result.getRank() != 3)
    return emitOpError("expects scores of rank 2, values and a result of rank 3, got ")
           << scores << ", " << values << " and " << result;
  if (!isa<FloatType>(scores.getElementType()) || values.getElementType() != scores.getElementType() ||
      result.getElementType() != scores.getElementType())
    return emitOpError("expects scores, values and a result of one float type, got ")
           << scores << ", " << values << " and " << result;
  if (!agree(scores.getDimSize(1), values.getDimSize(1)) || !agree(values.getDimSize(1), result.getDimSize(1)) ||
      !agree(values.getDimSize(2), result.getDimSize(2)))
    return emitOpError("expects heads and widths that agree, got ") << scores << ", " << values << " and " << result;
  // C2
  SmallVector<Value> lists{getOrder(), getEnds()};
  if (getRows())
    lists.push_back(getRows());
  for (Value list : lists)
    if (typeOf(list).getRank() != 1 || !typeOf(list).getElementType().isInteger(64))
      return emitOpError("expects lists of i64, got ") << list.getType();
  if (!agree(typeOf(getEnds()).getDimSize(0), result.getDimSize(0)))
    return emitOpError("expects an end for each node, got ") << getEnds().getType() << " for " << result;
  Value edges = getRows() ? getRows() : getValues();
  if (!agree(typeOf(edges).getDimSize(0), scores.getDimSize(0)))
    return emitOpError("expects ") << (getRows() ? "a row" : "values") << " for each edge, got " << edges.getType()
                                   << " for " << scores;
  // C3
  if (!(getEpsilon().convertToDouble() >= 0))
    return emitOpError("expects an epsilon of at least 0, got ") << getEpsilon().convertToDouble();
  return success();
}

LogicalResult SegmentAttentionOp::reifyResultShapes(OpBuilder &b, ReifiedRankedShapedTypeDims &shapes) {
  shapes.assign(1, {tensor::getMixedSize(b, getLoc(), getEnds(), 0), tensor::getMixedSize(b, getLoc(), getValues(), 1),
                    tensor::getMixedSize(b, getLoc(), getValues(), 2)});
  return success();
}

#define GET_OP_CLASSES
#include "dialects/attn/SegmentAttentionOp.cpp.inc"
