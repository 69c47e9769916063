#include "passes/lowering/choose/RowsInBytes.h"
#include "dialects/attn/CacheOps.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;

namespace attn {

SmallVector<Value> getOperandsInBytes(AttentionOp op, bool readsFloat8) {
  SmallVector<Value> operands(op->getOperands());
  for (unsigned n = 1, value = op.getKey() ? 2 : 1; n <= value; ++n)
    if (auto rows = operands[n].getDefiningOp<WidenRowsOp>();
        rows && (readsFloat8 || getElementTypeOrSelf(rows.getBytes()).isInteger(8)))
      operands[n] = rows.getBytes();
  return operands;
}

void readSizesOfBytes(ValueRange values) {
  for (Value value : values)
    if (auto rows = value.getDefiningOp<WidenRowsOp>())
      rows.getResult().replaceUsesWithIf(rows.getBytes(), [&](OpOperand &use) {
        auto dim = dyn_cast<tensor::DimOp>(use.getOwner());
        std::optional<int64_t> index = dim ? dim.getConstantIndex() : std::nullopt;
        return index && *index + 1 < rows.getType().getRank();
      });
}

} // namespace attn
