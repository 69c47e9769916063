#include "passes/lowering/cpu/StoredHalves.h"

#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace attn {

static Type elementOf(GlobalOp global) { return cast<RankedTensorType>(global.getType()).getElementType(); }

/// The sources of what only moves numbers; none of anything else.
static SmallVector<FlatSymbolRefAttr> getMovedSources(Attribute expression) {
  using Sources = SmallVector<FlatSymbolRefAttr>;
  return llvm::TypeSwitch<Attribute, Sources>(expression)
      .Case<TransposeAttr, ReshapeAttr, SliceAttr>([](auto e) { return Sources{e.getSource()}; })
      .Case<ConcatAttr>([](ConcatAttr e) { return Sources(e.getSources()); })
      .Default([](Attribute) { return Sources(); });
}

/// The type of the numbers that `global` is made of; null where they differ.
Type StoredHalves::getType(FlatSymbolRefAttr symbol) {
  auto global = symbols.lookup<GlobalOp>(symbol.getValue());
  Type element = elementOf(global);
  SmallVector<FlatSymbolRefAttr> sources = getMovedSources(global.getExpression());
  if (!element.isF32() || sources.empty())
    return element;
  Type first = getType(sources.front());
  return llvm::all_of(sources, [&](FlatSymbolRefAttr source) { return getType(source) == first; }) ? first : Type();
}

PanelStorage StoredHalves::getStorage(FlatSymbolRefAttr symbol, TargetAttr target) {
  Type stored = getType(symbol);
  bool hasConversions = target.getF32Lanes() > 4; // F16C; bf16 needs none
  if (stored && stored.isF16() && hasConversions)
    return PanelStorage::F16;
  return stored && stored.isBF16() ? PanelStorage::BF16 : PanelStorage::F32;
}

FlatSymbolRefAttr StoredHalves::get(FlatSymbolRefAttr symbol, Location loc) {
  auto global = symbols.lookup<GlobalOp>(symbol.getValue());
  if (!elementOf(global).isF32())
    return symbol;
  MLIRContext *context = global.getContext();
  SmallVector<FlatSymbolRefAttr> sources;
  for (FlatSymbolRefAttr source : getMovedSources(global.getExpression()))
    sources.push_back(get(source, loc));
  auto source = symbols.lookup<GlobalOp>(sources.front().getValue());
  auto type = cast<RankedTensorType>(global.getType()).clone(elementOf(source));
  if (type == source.getType() && isa<ReshapeAttr>(global.getExpression()))
    return sources.front();
  Attribute expression =
      llvm::TypeSwitch<Attribute, Attribute>(global.getExpression())
          .Case([&](TransposeAttr e) { return TransposeAttr::get(context, sources.front(), e.getPermutation()); })
          .Case([&](ReshapeAttr) { return ReshapeAttr::get(context, sources.front()); })
          .Case([&](SliceAttr e) {
            return SliceAttr::get(context, sources.front(), e.getDim(), e.getOffset(), e.getSize());
          })
          .Case([&](ConcatAttr e) { return ConcatAttr::get(context, sources, e.getDim()); });
  return globals.get(symbol.getValue() + "_stored", cast<RankedTensorType>(type), expression, loc);
}

} // namespace attn
