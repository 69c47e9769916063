#include "passes/kernels/cpu/Gemm.h"

#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace attn {

bool GemmSpec::mayHaveTiles(TargetAttr target) {
  return hasNarrowProducts(target) && target.getFeatures().contains("+amx-tile") &&
         target.getFeatures().contains("+amx-bf16");
}

GemmSpec GemmSpec::forTarget(TargetAttr target, int64_t m, int64_t k, int64_t n) {
  GemmSpec spec;
  spec.m = m;
  spec.k = k;
  spec.n = n;
  spec.fitRegisters(target);
  spec.fitCaches(target);
  return spec;
}

void GemmSpec::fitCaches(TargetAttr target) {
  constexpr int64_t kFloatBytes = 4, kOpenDepth = 1024;
  chooseChunks(target, m, kFloatBytes * (ShapedType::isDynamic(k) ? kOpenDepth : std::max<int64_t>(k, 1)));
}

void GemmSpec::fitColumns(TargetAttr target, ArrayRef<int64_t> parts) {
  if (lanes != 16 || ShapedType::isDynamic(n))
    return;
  int64_t narrow = panelWidth(), wide = 4 * lanes;
  auto ends = [&](int64_t width) {
    return !parts.empty() && llvm::all_of(parts.drop_back(), [&](int64_t count) { return count % width == 0; });
  };
  if (ends(narrow) != ends(wide) ? ends(narrow) : !wouldFillWide(n))
    return;
  widenPanels();
  fitCaches(target);
}

void GemmSpec::sharePanels() {
  bool isWidened = storage == PanelStorage::F16 || (storage == PanelStorage::BF16 && !hasNarrowRows);
  sharesPanels = isWidened && (ShapedType::isDynamic(m) || m > tileRows);
  if (sharesPanels)
    chunkBlocks = 0; // what shares a panel is a chunk
}

bool GemmSpec::mayHaveHalfTiles(TargetAttr target) const {
  return sharesPanels && storage == PanelStorage::F16 && lanes == 16 && mayHaveTiles(target) &&
         (ShapedType::isDynamic(m) || m >= kFewestTileRows);
}

SmallVector<int64_t> GemmSpec::panelShape() const {
  int64_t panels = isBatched ? ShapedType::kDynamic : numPanels();
  if (storage == PanelStorage::BF16)
    return {panels, static_cast<int64_t>(llvm::alignTo(k, panelDepth) + 1) / 2, 2 * panelWidth() * parts};
  return {panels, k, panelWidth()};
}

SmallVector<int64_t> GemmSpec::scaleShape() const {
  return {numPanels(), static_cast<int64_t>(llvm::divideCeil(k, group)), panelWidth()};
}

std::string GemmSpec::symbol() const {
  std::string name = llvm::formatv("gemm_f32{0}_m{1}_k{2}_n{3}_{4}_{5}x{6}x{7}", isBatched ? "_batch" : "", sizeText(m),
                                   sizeText(k), sizeText(n), hasFma() ? "fma" : "mul", tileRows, tileVectors, lanes);
  if (storage == PanelStorage::F16)
    name += "_f16";
  if (storage == PanelStorage::BF16)
    name += hasNarrowRows ? "_bf16dot" : "_bf16";
  if (parts > 1)
    name += "x" + std::to_string(parts * (parts + 1) / 2);
  if (sharesPanels)
    name += hasHalfTiles ? "_amx16" : "_shared";
  if (panelDepth > 1)
    name += "_d" + std::to_string(panelDepth);
  if (storage == PanelStorage::I8)
    name += "_i8g" + std::to_string(group);
  if (hasTiles)
    name += "_amx" + std::to_string(tileGroups);
  if (gathersRows)
    name += "_gather";
  if (hasNarrowResult)
    name += "_to16";
  if (prefetchesNext)
    name += "_next";
  if (chunkBlocks)
    name += "_c" + std::to_string(chunkBlocks);
  return name + getEpilogueSuffix();
}

bool canBuildGemm(const GemmSpec &spec, std::string *reason) {
  auto isSize = [](int64_t size, int64_t least) { return size >= least || ShapedType::isDynamic(size); };
  if (!isSize(spec.k, 1) || !isSize(spec.n, 1) || !isSize(spec.m, 0))
    return fail(reason, "the sizes M, K, N (" + Twine(spec.m) + ", " + Twine(spec.k) + ", " + Twine(spec.n) +
                            ") are not positive");
  if (spec.isBatched && !ShapedType::isDynamic(spec.m))
    return fail(reason, "a batch has a number of rows that the run knows");
  if (spec.storage != PanelStorage::F32 &&
      (spec.isBatched || ShapedType::isDynamic(spec.k) || ShapedType::isDynamic(spec.n)))
    return fail(reason, "narrow panels have fixed sizes and are no batch");
  if (spec.hasNarrowRows && (spec.storage != PanelStorage::BF16 || spec.lanes != 16 || spec.k % 2))
    return fail(reason, "pairs of products need bf16 panels, 16 lanes and an even K");
  if (spec.parts < 1 || spec.parts > 3 || (spec.parts > 1 && !spec.hasNarrowRows))
    return fail(reason, "factors in " + Twine(spec.parts) + " parts, which only those in bf16 have, and up to 3");
  if (spec.panelDepth != 1 && spec.storage != PanelStorage::BF16)
    return fail(reason, "panels that are not bf16 cannot be padded to " + Twine(spec.panelDepth) + " rows");
  if (spec.panelDepth < 1 || (spec.panelDepth > 1 && spec.panelDepth % 2))
    return fail(reason, "panels cannot be padded to " + Twine(spec.panelDepth) + " rows");
  if (spec.hasTiles && (!spec.hasNarrowRows || spec.panelWidth() != 32 || spec.panelDepth != 32 || spec.tileGroups < 0))
    return fail(reason, "tiles need factors in bf16 and panels of 32 columns, padded to 32 rows");
  if (spec.sharesPanels &&
      (spec.storage == PanelStorage::F32 || spec.storage == PanelStorage::I8 || spec.hasNarrowRows))
    return fail(reason, "blocks of rows share panels of f16, or of bf16 by rows of f32");
  if (spec.hasHalfTiles && (!spec.sharesPanels || spec.storage != PanelStorage::F16 || spec.lanes != 16))
    return fail(reason, "tiles of parts need panels of f16 that rows share, and 16 lanes");
  if (spec.gathersRows &&
      (spec.storage == PanelStorage::I8 || spec.hasNarrowRows || spec.hasHalfTiles || ShapedType::isDynamic(spec.k)))
    return fail(reason, "rows are gathered in f32, for panels of floats whose depth is fixed");
  if (spec.storage == PanelStorage::I8 && spec.group < 1)
    return fail(reason, "a group of " + Twine(spec.group) + " rows is empty");
  if (spec.lanes < 1 || spec.tileRows < 1 || spec.tileVectors < 1)
    return fail(reason, "the tile is empty");
  if (!spec.canBuildEpilogue(reason))
    return false;
  if (!spec.epilogue)
    return true;
  for (Type type : spec.epilogue->getArgumentTypes())
    if (!type.isF32())
      return fail(reason, "an argument of the epilogue is not f32");
  if (!spec.epilogue->getTerminator()->getOperand(0).getType().isF32())
    return fail(reason, "the epilogue does not yield f32");
  return true;
}

} // namespace attn
