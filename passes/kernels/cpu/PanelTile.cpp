#include "passes/kernels/cpu/PanelTile.h"

using namespace mlir;

namespace attn {

int64_t PanelTile::usedVectors(int64_t n) const {
  return ShapedType::isDynamic(n) ? tileVectors : std::clamp<int64_t>(llvm::divideCeilSigned(n, lanes), 1, tileVectors);
}

std::pair<int64_t, int64_t> tileHeights(int64_t rows, int64_t most) {
  if (ShapedType::isDynamic(rows))
    return {1, most};
  int64_t count = std::max<int64_t>(llvm::divideCeilSigned(rows, most), 1), least = std::max<int64_t>(rows / count, 1);
  return {least, rows % count ? least + 1 : least};
}

void PanelCut::fitRegisters(TargetAttr target) {
  lanes = target.getF32Lanes();
  // 24 + 3 + 1 of 32 registers; 12 + 2 + 1 and 8 + 2 + 1 of 16.
  tileRows = lanes == 16 ? 8 : lanes == 8 ? 6 : 4;
  tileVectors = lanes == 16 ? 3 : 2;
}

void PanelCut::widenPanels() {
  tileRows = 6; // 24 + 4 + 1 registers
  tileVectors = 4;
}

bool PanelCut::wouldFillWide(int64_t n) const {
  auto padded = [&](int64_t vectors) { return static_cast<int64_t>(llvm::alignTo(n, vectors * lanes)); };
  return lanes == 16 && !ShapedType::isDynamic(n) && padded(4) * 51 <= padded(tileVectors) * 50;
}

// A chunk of A and the panel at hand share the second-level cache. B comes once
// more from beyond it for each chunk, A without chunks once for each panel: as
// many bytes at 6 blocks of 8 rows a chunk. A deep panel leaves room for few, and
// they cost more than they save (Zen 5, 128x3072x768 in f32: 92 % of the peak in
// chunks of 5 blocks).
void PanelCut::chooseChunks(TargetAttr target, int64_t m, int64_t rowBytes) {
  constexpr int64_t kFewest = 12;
  int64_t room = target.getL2() / 4 * 3 - rowBytes * panelWidth();
  chunkBlocks = std::max<int64_t>(room, 0) / (rowBytes * tileRows);
  if (chunkBlocks < kFewest)
    chunkBlocks = 0;
  if (chunkBlocks == 0 || ShapedType::isDynamic(m))
    return;
  // Chunks of one size, rather than a last one that reads all of B for a few rows.
  int64_t blocks = llvm::divideCeilSigned(m, tileRows), chunks = llvm::divideCeilSigned(blocks, chunkBlocks);
  chunkBlocks = chunks > 1 ? llvm::divideCeilSigned(blocks, chunks) : 0;
}

// As many as half the second-level cache holds, so that A comes once from beyond it while the panels pass.
void PanelCut::chooseGroups(TargetAttr target, int64_t m, int64_t rowBytes) {
  tileGroups = std::max<int64_t>(target.getL2() / 2 / std::max<int64_t>(kGroupRows * rowBytes, 1), 1);
  if (!ShapedType::isDynamic(m) && tileGroups * kGroupRows >= m)
    tileGroups = 0;
}

} // namespace attn
