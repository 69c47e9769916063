#include "dialects/attn/MaskTerms.h"

#include "dialects/attn/AttnOps.h"

#include "llvm/ADT/TypeSwitch.h"
#include <algorithm>

using namespace mlir;

namespace attn {

SmallVector<KeyBound, 2> getKeyBounds(Attribute term) {
  using Bounds = SmallVector<KeyBound, 2>;
  auto known = [](int64_t number) { return ShapedType::isDynamic(number) ? 0 : number; };
  auto one = [](KeyBound bound) { return Bounds{bound}; };
  return llvm::TypeSwitch<Attribute, Bounds>(term)
      .Case([&](CausalAttr causal) { return one({true, true, known(causal.getOffset())}); })
      .Case([](WindowAttr window) {
        bool moves = window.getBase() != WindowBase::centre;
        Bounds bounds;
        if (window.getLeft() != WindowAttr::kInf)
          bounds.push_back({false, moves, -std::max(window.getLeft(), -WindowAttr::kInf)});
        if (window.getRight() != WindowAttr::kInf)
          bounds.push_back({true, moves, window.getRight()});
        return bounds;
      })
      .Case([&](PrefixAttr prefix) { return one({true, false, known(prefix.getSize()) - 1}); })
      .Case([&](LengthsAttr) { return one({true, false, -1}); })
      .Default([](Attribute) { return Bounds(); });
}

bool isTable(Attribute term) { return isa<BlocksAttr, DenseMaskAttr>(term); }

MaskJoin getMaskJoin(Attribute term) {
  if (isa<CausalAttr, WindowAttr>(term))
    return MaskJoin::near;
  return isa<PrefixAttr>(term) ? MaskJoin::prefix : MaskJoin::always;
}

StringRef getMaskName(Attribute term) {
  return llvm::TypeSwitch<Attribute, StringRef>(term)
      .Case([](CausalAttr) { return "causal"; })
      .Case([](WindowAttr) { return "window"; })
      .Case([](PrefixAttr) { return "prefix"; })
      .Case([](LengthsAttr) { return "lengths"; })
      .Case([](BlocksAttr blocks) { return blocks.getRows() == 1 && blocks.getColumns() == 1 ? "edges" : "blocks"; })
      .Default([](Attribute) { return "dense"; });
}

bool isMaskTerm(Attribute term) {
  return isa_and_nonnull<CausalAttr, WindowAttr, PrefixAttr, LengthsAttr, BlocksAttr, DenseMaskAttr>(term);
}

bool takesMaskOperand(Attribute term) {
  return llvm::TypeSwitch<Attribute, bool>(term)
      .Case([](CausalAttr causal) { return ShapedType::isDynamic(causal.getOffset()); })
      .Case([](WindowAttr window) { return window.getBase() != WindowBase::diagonal; })
      .Case([](PrefixAttr prefix) { return ShapedType::isDynamic(prefix.getSize()); })
      .Default([](Attribute other) { return isa<LengthsAttr, BlocksAttr, DenseMaskAttr>(other); });
}

bool dependsOnQuery(Attribute term) {
  return isa<BlocksAttr>(term) ||
         llvm::any_of(getKeyBounds(term), [](const KeyBound &bound) { return bound.movesWithQuery; });
}

std::pair<Attribute, int64_t> countFromOperand(Attribute term) {
  MLIRContext *context = term.getContext();
  if (auto causal = dyn_cast<CausalAttr>(term))
    return {CausalAttr::get(context, ShapedType::kDynamic), causal.getOffset()};
  auto window = cast<WindowAttr>(term);
  return {WindowAttr::get(context, window.getLeft(), window.getRight(), WindowBase::offset), 0};
}

} // namespace attn
