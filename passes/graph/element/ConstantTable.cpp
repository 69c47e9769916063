#include "passes/graph/element/ConstantTable.h"

#include "dialects/attn/AttnOps.h"
#include "dialects/attn/WeightStore.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;

namespace attn {

/// The bytes of a weight that is an initialiser or a part of one that lies in
/// one piece, under any shape.
static ArrayRef<char> bytesOf(GlobalOp global, const SymbolTable &symbols, const WeightStore &weights, int64_t width,
                              unsigned depth = 64) {
  if (!global || depth == 0)
    return {};
  if (auto initializer = dyn_cast<InitializerAttr>(global.getExpression()))
    return weights.lookup(initializer.getName());
  if (auto reshape = dyn_cast<ReshapeAttr>(global.getExpression()))
    return bytesOf(symbols.lookup<GlobalOp>(reshape.getSource().getValue()), symbols, weights, width, depth - 1);
  auto slice = dyn_cast<SliceAttr>(global.getExpression());
  auto source = slice ? symbols.lookup<GlobalOp>(slice.getSource().getValue()) : GlobalOp();
  auto type = source ? dyn_cast<RankedTensorType>(source.getType()) : RankedTensorType();
  if (!type || slice.getDim() < 0 || slice.getDim() >= type.getRank() ||
      llvm::any_of(type.getShape().take_front(slice.getDim()), [](int64_t size) { return size != 1; }))
    return {};
  ArrayRef<char> whole = bytesOf(source, symbols, weights, width, depth - 1);
  size_t row = width;
  for (int64_t size : type.getShape().drop_front(slice.getDim() + 1))
    row *= size;
  size_t first = slice.getOffset() * row, count = slice.getSize() * row;
  return first <= whole.size() && count <= whole.size() - first ? whole.slice(first, count) : ArrayRef<char>();
}

ConstantTable ConstantTable::read(Value value, const SymbolTable &symbols, const WeightStore *weights) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  Type element = type ? type.getElementType() : Type();
  int64_t width = element && element.isIntOrFloat() ? element.getIntOrFloatBitWidth() / 8 : 0;
  if (width == 0 || width > 8 || !type.hasStaticShape() || type.getNumElements() > kMaxEntries)
    return {{}, 1};
  ArrayRef<char> bytes;
  if (auto constant = value.getDefiningOp<arith::ConstantOp>()) {
    if (auto dense = dyn_cast<DenseElementsAttr>(constant.getValue()); dense && !dense.isSplat())
      bytes = dense.getRawData();
  } else if (auto weight = value.getDefiningOp<WeightOp>(); weight && weights) {
    bytes = bytesOf(symbols.lookup<GlobalOp>(weight.getGlobal()), symbols, *weights, width);
  }
  return {bytes.size() == size_t(type.getNumElements() * width) ? bytes : ArrayRef<char>(), width};
}

} // namespace attn
