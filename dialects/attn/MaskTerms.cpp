#include "dialects/attn/MaskTerms.h"

#include "dialects/attn/AttnOps.h"

#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"
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
      .Case([](ChunksAttr chunks) {
        int64_t size = chunks.getSize();
        auto keys = [&](int64_t count) { // more than any verifier lets pass where there is no such number
          int64_t product;
          return llvm::MulOverflow(count, size, product) ? WindowAttr::kInf : product;
        };
        Bounds bounds;
        if (chunks.getLeft() != WindowAttr::kInf)
          bounds.push_back({false, true, -keys(chunks.getLeft()), size});
        if (chunks.getRight() != WindowAttr::kInf)
          bounds.push_back({true, true, keys(chunks.getRight() + 1) - 1, size});
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
      .Case([](ChunksAttr) { return "chunks"; })
      .Case([](PrefixAttr) { return "prefix"; })
      .Case([](LengthsAttr) { return "lengths"; })
      .Case([](BlocksAttr blocks) { return blocks.getRows() == 1 && blocks.getColumns() == 1 ? "edges" : "blocks"; })
      .Default([](Attribute) { return "dense"; });
}

bool isMaskTerm(Attribute term) {
  return isa_and_nonnull<CausalAttr, WindowAttr, ChunksAttr, PrefixAttr, LengthsAttr, BlocksAttr, DenseMaskAttr>(term);
}

bool takesMaskOperand(Attribute term) {
  return llvm::TypeSwitch<Attribute, bool>(term)
      .Case([](CausalAttr causal) { return ShapedType::isDynamic(causal.getOffset()); })
      .Case<WindowAttr, ChunksAttr>([](auto term) { return term.getBase() != WindowBase::diagonal; })
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
  if (auto chunks = dyn_cast<ChunksAttr>(term))
    return {ChunksAttr::get(context, chunks.getSize(), chunks.getLeft(), chunks.getRight(), WindowBase::offset), 0};
  auto window = cast<WindowAttr>(term);
  return {WindowAttr::get(context, window.getLeft(), window.getRight(), WindowBase::offset), 0};
}

LogicalResult ChunksAttr::verify(llvm::function_ref<InFlightDiagnostic()> emitError, int64_t size, int64_t, int64_t,
                                 WindowBase base) {
  if (size < 1)
    return emitError() << "expects chunks of 1 position or more, got " << size;
  if (base == WindowBase::centre)
    return emitError() << "expects chunks of the diagonal or of an offset, got centre";
  return success();
}

} // namespace attn
