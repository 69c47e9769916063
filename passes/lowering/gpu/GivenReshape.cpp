#include "passes/lowering/gpu/GivenReshape.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

using namespace mlir;

Value attn::reshapeAsGiven(memref::ExpandShapeOp op, OpBuilder &inside, IRMapping &map) {
  if (!op.getResultType().getLayout().isIdentity()) {
    inside.clone(*op, map);
    return map.lookup(op.getResult());
  }
  SmallVector<OpFoldResult> sizes = op.getMixedOutputShape(), strides(sizes.size());
  OpFoldResult stride = inside.getIndexAttr(1);
  for (size_t n = sizes.size(); n-- > 0;) {
    strides[n] = stride;
    if (auto size = dyn_cast<Value>(sizes[n]))
      sizes[n] = map.lookupOrDefault(size);
    std::optional<int64_t> x = getConstantIntValue(stride), y = getConstantIntValue(sizes[n]);
    if (x && y)
      stride = inside.getIndexAttr(*x * *y);
    else
      stride = arith::MulIOp::create(inside, op.getLoc(), getValueOrCreateConstantIndexOp(inside, op.getLoc(), stride),
                                     getValueOrCreateConstantIndexOp(inside, op.getLoc(), sizes[n]))
                   .getResult();
  }
  Value shaped =
      memref::ReinterpretCastOp::create(inside, op.getLoc(), op.getResultType(), map.lookupOrDefault(op.getSrc()),
                                        inside.getIndexAttr(0), sizes, strides);
  map.map(op.getResult(), shaped);
  return shaped;
}
