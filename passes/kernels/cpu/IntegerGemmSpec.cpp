#include "passes/kernels/cpu/IntegerGemm.h"

#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace attn {

/// As many groups of A's rows as half the second-level cache holds; 0 where that is all of them.
static int64_t groupsInCache(TargetAttr target, int64_t m, int64_t depth) {
  int64_t groups = std::max<int64_t>(target.getL2() / 2 / (IntegerGemmSpec::kGroupRows * depth), 1);
  return !ShapedType::isDynamic(m) && groups * IntegerGemmSpec::kGroupRows >= m ? 0 : groups;
}

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
  spec.lanes = target.getF32Lanes();
  StringRef features = target.getFeatures();
  bool hasQuads = spec.lanes == 16 ? features.contains("+avx512vnni") : features.contains("+avxvnni");
  spec.dot = spec.lanes == 4 ? ByteDot::Single : hasQuads ? ByteDot::Quads : ByteDot::Pairs;
  // As the f32 kernel: 24 + 3 + 1 of 32 registers; 12 + 2 + 1 and 8 + 2 + 1 of 16.
  spec.tileRows = spec.lanes == 16 ? 8 : spec.lanes == 8 ? 6 : 4;
  spec.tileVectors = spec.lanes == 16 ? 3 : 2;
  // Panels of two tiles, for few rows, too: products of different numbers of rows share a weight.
  bool hasTilePanels = mayHaveTiles(target);
  if (hasTilePanels) {
    spec.tileRows = 12; // without tiles: 24 + 2 + 1 registers
    spec.tileVectors = 2;
  }
  // A chunk of A and the panel at hand share the second-level cache; a chunk of few blocks costs more than it saves.
  constexpr int64_t kFewest = 12;
  int64_t depth = ShapedType::isDynamic(k) ? 1024 : std::max<int64_t>(k, 1);
  if (hasTilePanels && (ShapedType::isDynamic(m) || m >= kFewestTileRows)) {
    spec.hasTiles = true;
    spec.tileGroups = groupsInCache(target, m, depth);
  }
  int64_t room = target.getL2() / 4 * 3 - depth * spec.panelWidth();
  spec.chunkBlocks = std::max<int64_t>(room, 0) / (depth * spec.tileRows);
  if (spec.chunkBlocks < kFewest)
    spec.chunkBlocks = 0;
  if (spec.chunkBlocks && !ShapedType::isDynamic(m)) {
    int64_t blocks = llvm::divideCeil(m, spec.tileRows), chunks = llvm::divideCeil(blocks, spec.chunkBlocks);
    spec.chunkBlocks = chunks > 1 ? llvm::divideCeil(blocks, chunks) : 0;
  }
  return spec;
}

std::string IntegerGemmSpec::symbol() const {
  StringRef dots[] = {"quads", "pairs", "single"};
  auto size = [](int64_t number) { return ShapedType::isDynamic(number) ? "x" : std::to_string(number); };
  std::string name =
      llvm::formatv("gemm_i8_{0}m{1}_k{2}_n{3}_{4}_{5}x{6}x{7}{8}", isBatched ? "b_" : "", size(m), size(k), size(n),
                    dots[static_cast<int>(dot)], tileRows, tileVectors, lanes, zeroKey());
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
