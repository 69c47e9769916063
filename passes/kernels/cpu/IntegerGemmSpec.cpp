#include "passes/kernels/cpu/IntegerGemm.h"

#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace attn {

bool IntegerGemmSpec::mayHaveTiles(TargetAttr target) {
  StringRef features = target.getFeatures();
  return target.getF32Lanes() == 16 && features.contains("+avx512vnni") && features.contains("+amx-tile") &&
         features.contains("+amx-int8");
}

IntegerGemmSpec IntegerGemmSpec::forTarget(TargetAttr target, int64_t m, int64_t k, int64_t n) {
  IntegerGemmSpec spec;
  spec.m = m;
  spec.k = k;
  spec.n = n;
  spec.fitRegisters(target);
  spec.dot = byteDotOf(target);
  if (spec.dot == ByteDot::Pairs && spec.lanes == 8)
    spec.tileRows = 4; // 8 + 4 + 2 + 1 of 16 registers; LLVM spills one sum, with 6 rows several (Zen 3)
  // Panels of two tiles, for few rows, too: products of different numbers of rows share a weight.
  bool hasTilePanels = mayHaveTiles(target);
  if (hasTilePanels) {
    spec.tileRows = 12; // without tiles: 24 + 2 + 1 registers
    spec.tileVectors = 2;
  }
  if (!hasTilePanels && spec.dot == ByteDot::Quads && spec.wouldFillWide(n))
    spec.widenPanels();
  constexpr int64_t kOpenDepth = 1024;
  int64_t depth = ShapedType::isDynamic(k) ? kOpenDepth : std::max<int64_t>(k, 1);
  if (hasTilePanels && (ShapedType::isDynamic(m) || m >= kFewestTileRows)) {
    spec.hasTiles = true;
    spec.chooseGroups(target, m, depth);
  }
  spec.chooseChunks(target, m, depth);
  return spec;
}

std::string IntegerGemmSpec::symbol() const {
  StringRef dots[] = {"quads", "pairs", "single"};
  std::string name =
      llvm::formatv("gemm_i8_{0}m{1}_k{2}_n{3}_{4}_{5}x{6}x{7}{8}", isBatched ? "b_" : "", sizeText(m), sizeText(k),
                    sizeText(n), dots[static_cast<int>(dot)], tileRows, tileVectors, lanes, zeroKey());
  if (chunkBlocks)
    name += "_c" + std::to_string(chunkBlocks);
  if (hasTiles)
    name += "_amx" + std::to_string(tileGroups);
  return name + getEpilogueSuffix();
}

bool canBuildIntegerGemm(const IntegerGemmSpec &spec, std::string *reason) {
  if (!isIntegerProduct(spec, reason))
    return false;
  if (spec.lanes < 1 || spec.tileRows < 1 || spec.tileVectors < 1)
    return fail(reason, "the tile is empty");
  if (spec.dot != ByteDot::Single && spec.lanes != 16 && spec.lanes != 8)
    return fail(reason, "products of " + Twine(spec.group()) + " bytes need 8 or 16 lanes, not " + Twine(spec.lanes));
  if (spec.hasTiles && (spec.dot != ByteDot::Quads || spec.lanes != 16 || spec.tileVectors != 2 || spec.tileGroups < 0))
    return fail(reason, "tiles need products of 4 bytes and panels of 32 columns");
  return true;
}

} // namespace attn
