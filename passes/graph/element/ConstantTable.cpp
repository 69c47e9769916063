#include "passes/graph/element/ConstantTable.h"

#include "dialects/attn/AttnOps.h"
#include "dialects/attn/WeightStore.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include <vector>

using namespace mlir;

namespace attn {

static int64_t widthOf(Type element) {
  return element && element.isIntOrFloat() ? element.getIntOrFloatBitWidth() / 8 : 0;
}

/// The f32 that each 16 bits of `type` are.
static std::vector<float> readAll(const llvm::fltSemantics &type) {
  std::vector<float> numbers;
  for (unsigned bits = 0; bits != 1 << 16; ++bits) {
    APFloat number(type, APInt(16, bits));
    bool isInexact = false;
    number.convert(APFloat::IEEEsingle(), APFloat::rmNearestTiesToEven, &isInexact);
    numbers.push_back(number.convertToFloat());
  }
  return numbers;
}

static const float *numbersOf(FloatType type) {
  static const std::vector<float> ofF16 = readAll(APFloat::IEEEhalf());
  static const std::vector<float> ofBf16 = readAll(APFloat::BFloat());
  return (type.isF16() ? ofF16 : ofBf16).data();
}

/// A weight that is an initialiser or a part of one that lies in one piece,
/// under any shape, widened or not.
static ConstantTable tableOf(GlobalOp global, const SymbolTable &symbols, const WeightStore &weights,
                             unsigned depth = 64) {
  ConstantTable none;
  if (!global || depth == 0)
    return none;
  Type element = cast<RankedTensorType>(global.getType()).getElementType();
  if (auto initializer = dyn_cast<InitializerAttr>(global.getExpression()))
    return {weights.lookup(initializer.getName()), std::max<int64_t>(widthOf(element), 1)};
  auto sourceOf = [&](FlatSymbolRefAttr symbol) { return symbols.lookup<GlobalOp>(symbol.getValue()); };
  if (auto reshape = dyn_cast<ReshapeAttr>(global.getExpression())) {
    GlobalOp source = sourceOf(reshape.getSource());
    ConstantTable table = tableOf(source, symbols, weights, depth - 1);
    Type stored = source ? cast<RankedTensorType>(source.getType()).getElementType() : element;
    if (stored == element)
      return table;
    if (!element.isF32() || !(stored.isF16() || stored.isBF16()) || table.widened)
      return none;
    return {table.bytes, sizeof(float), numbersOf(cast<FloatType>(stored))};
  }
  auto slice = dyn_cast<SliceAttr>(global.getExpression());
  auto source = slice ? sourceOf(slice.getSource()) : GlobalOp();
  auto type = source ? dyn_cast<RankedTensorType>(source.getType()) : RankedTensorType();
  if (!type || slice.getDim() < 0 || slice.getDim() >= type.getRank() ||
      llvm::any_of(type.getShape().take_front(slice.getDim()), [](int64_t size) { return size != 1; }))
    return none;
  ConstantTable table = tableOf(source, symbols, weights, depth - 1);
  size_t row = table.storedWidth();
  for (int64_t size : type.getShape().drop_front(slice.getDim() + 1))
    row *= size;
  size_t first = slice.getOffset() * row, count = slice.getSize() * row;
  if (first > table.bytes.size() || count > table.bytes.size() - first)
    return none;
  table.bytes = table.bytes.slice(first, count);
  return table;
}

ConstantTable ConstantTable::read(Value value, const SymbolTable &symbols, const WeightStore *weights) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  int64_t width = type ? widthOf(type.getElementType()) : 0;
  if (width == 0 || width > 8 || !type.hasStaticShape() || type.getNumElements() > kMaxEntries)
    return {};
  ConstantTable table;
  if (auto constant = value.getDefiningOp<arith::ConstantOp>()) {
    if (auto dense = dyn_cast<DenseElementsAttr>(constant.getValue()); dense && !dense.isSplat())
      table.bytes = dense.getRawData();
  } else if (auto weight = value.getDefiningOp<WeightOp>(); weight && weights) {
    table = tableOf(symbols.lookup<GlobalOp>(weight.getGlobal()), symbols, *weights);
  }
  table.width = width;
  table.element = type.getElementType();
  return table.bytes.size() == size_t(type.getNumElements() * table.storedWidth()) ? table : ConstantTable{{}, width};
}

TypedAttr ConstantTable::attributeAt(int64_t n) const {
  APInt bits(8 * width, bitsAt(n));
  if (auto real = dyn_cast<FloatType>(element))
    return FloatAttr::get(element, APFloat(real.getFloatSemantics(), bits));
  return IntegerAttr::get(element, bits);
}

std::optional<SmallVector<int64_t>> findSteps(ArrayRef<int64_t> shape, llvm::function_ref<int64_t(int64_t)> number) {
  int64_t count = ShapedType::getNumElements(shape), stride = count;
  if (count == 0)
    return std::nullopt;
  SmallVector<int64_t> steps, at(shape.size(), 0);
  for (int64_t size : shape) {
    stride /= size;
    steps.push_back(size == 1 ? 0 : int64_t(uint64_t(number(stride)) - uint64_t(number(0))));
  }
  uint64_t expected = number(0); // what leaves 64 bits is found to differ, too
  for (int64_t n = 0; n != count; ++n) {
    if (uint64_t(number(n)) != expected)
      return std::nullopt;
    for (size_t d = at.size(); d-- > 0;) {
      expected += uint64_t(steps[d]);
      if (++at[d] != shape[d])
        break;
      expected -= uint64_t(steps[d]) * uint64_t(shape[d]);
      at[d] = 0;
    }
  }
  return steps;
}

} // namespace attn
