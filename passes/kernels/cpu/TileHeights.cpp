#include "passes/kernels/cpu/TileHeights.h"

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/Sequence.h"

using namespace mlir;

namespace attn {

SmallVector<int64_t> tileHeights(int64_t rows, int64_t most) {
  if (ShapedType::isDynamic(rows))
    return llvm::to_vector(llvm::seq_inclusive<int64_t>(1, most));
  if (rows == 0)
    return {};
  int64_t count = llvm::divideCeil(rows, most);
  if (rows % count)
    return {rows / count, rows / count + 1};
  return {rows / count};
}

void atHeight(OpBuilder &builder, Location loc, Value height, ArrayRef<int64_t> heights,
              llvm::function_ref<void(int64_t)> emitHeight) {
  if (heights.empty())
    return;
  int64_t tallest = heights.back();
  heights = heights.drop_back();
  if (heights.empty())
    return emitHeight(tallest);
  auto choice = scf::IndexSwitchOp::create(builder, loc, TypeRange(), height, heights, heights.size());
  OpBuilder::InsertionGuard guard(builder);
  auto fill = [&](Region &region, int64_t rows) {
    builder.setInsertionPointToStart(&region.emplaceBlock());
    emitHeight(rows);
    scf::YieldOp::create(builder, loc);
  };
  for (auto [region, rows] : llvm::zip_equal(choice.getCaseRegions(), heights))
    fill(region, rows);
  fill(choice.getDefaultRegion(), tallest);
}

} // namespace attn
