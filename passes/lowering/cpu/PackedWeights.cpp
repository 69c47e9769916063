#include "passes/lowering/cpu/PackedWeights.h"

#include "mlir/IR/BuiltinTypes.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace attn {

/// The expression of `source` if it is matrices side by side.
ConcatAttr PackedWeights::getConcat(FlatSymbolRefAttr source, bool transposed) {
  auto global = symbols.lookup<GlobalOp>(source.getValue());
  auto concat = global ? dyn_cast<ConcatAttr>(global.getExpression()) : ConcatAttr();
  bool isByColumns =
      concat && cast<RankedTensorType>(global.getType()).getRank() == 2 && concat.getDim() == (transposed ? 0 : 1);
  return isByColumns ? concat : ConcatAttr();
}

SmallVector<int64_t> PackedWeights::getParts(const Contraction &match) {
  ConcatAttr concat = match.global ? getConcat(match.global, match.isTransposed) : ConcatAttr();
  SmallVector<int64_t> parts;
  if (concat)
    for (FlatSymbolRefAttr source : concat.getSources())
      parts.push_back(
          cast<RankedTensorType>(symbols.lookup<GlobalOp>(source.getValue()).getType()).getDimSize(concat.getDim()));
  return parts;
}

SmallVector<Value> PackedWeights::get(OpBuilder &builder, const Contraction &match, const GemmSpec &spec,
                                      Location loc) {
  MLIRContext *context = builder.getContext();
  FlatSymbolRefAttr source = match.global;
  bool transposed = match.isTransposed;
  int64_t width = spec.panelWidth();
  if (match.right.getType().getRank() != 2) {
    SmallVector<int64_t> sizes = {spec.k, spec.n};
    if (transposed)
      std::swap(sizes[0], sizes[1]);
    auto matrix = RankedTensorType::get(sizes, builder.getF32Type());
    source = globals.get(source.getValue() + "_matrix", matrix, ReshapeAttr::get(context, source), loc);
  }
  SmallVector<int64_t> columns = getParts(match);
  bool isSplit = !columns.empty() &&
                 llvm::all_of(ArrayRef(columns).drop_back(), [&](int64_t count) { return count % width == 0; });
  using MakeExpression = function_ref<Attribute(FlatSymbolRefAttr)>;
  auto pack = [&](StringRef suffix, RankedTensorType type, MakeExpression makeExpression) -> Value {
    auto packOne = [&](FlatSymbolRefAttr matrix, RankedTensorType packed) {
      return globals.get(matrix.getValue() + (transposed ? "_tpanels" : "_panels") + Twine(width) + suffix, packed,
                         makeExpression(matrix), loc);
    };
    FlatSymbolRefAttr global;
    if (isSplit) {
      SmallVector<FlatSymbolRefAttr> parts;
      SmallVector<int64_t> shape(type.getShape());
      for (auto [part, count] : llvm::zip_equal(getConcat(source, transposed).getSources(), columns)) {
        shape[0] = llvm::divideCeil(count, width);
        parts.push_back(packOne(part, type.clone(shape)));
      }
      global = globals.get(source.getValue() + "_packed" + suffix, type, ConcatAttr::get(context, parts, 0), loc);
    } else {
      global = packOne(source, type);
    }
    return WeightOp::create(builder, loc, type, global);
  };

  auto packed = RankedTensorType::get(spec.panelShape(), elementType(spec.storage, context));
  if (spec.storage == PanelStorage::F32)
    return {pack("", packed,
                 [&](FlatSymbolRefAttr matrix) { return PackPanelsAttr::get(context, matrix, transposed, width); })};
  if (spec.storage == PanelStorage::F16)
    return {pack("_f16", packed, [&](FlatSymbolRefAttr matrix) {
      return PackPanelsAttr::get(context, halves.get(matrix, loc), transposed, width);
    })};
  bool isBf16 = spec.storage == PanelStorage::BF16;
  SmallVector<Value> values = {pack(isBf16 ? "_bf16" : "_i8", packed, [&](FlatSymbolRefAttr matrix) {
    return NarrowPanelsAttr::get(context, matrix, transposed, width, spec.group, spec.panelDepth, spec.parts);
  })};
  if (!isBf16) {
    auto scales = RankedTensorType::get(spec.scaleShape(), builder.getF32Type());
    values.push_back(pack("_i8_scales", scales, [&](FlatSymbolRefAttr matrix) {
      return PanelScalesAttr::get(context, matrix, transposed, width, spec.group);
    }));
  }
  return values;
}

} // namespace attn
