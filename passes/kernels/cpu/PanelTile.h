#ifndef PASSES_KERNELS_CPU_PANELTILE_H
#define PASSES_KERNELS_CPU_PANELTILE_H

#include "dialects/attn/AttnOps.h"

namespace attn {

/// What a product by panels makes at a time: tileRows x (tileVectors * lanes) sums stay in registers.
struct PanelTile {
  int64_t lanes = 4, tileRows = 4, tileVectors = 2;

  /// Columns of a panel, the `width` of the attributes that pack one.
  int64_t panelWidth() const { return tileVectors * lanes; }
  /// Registers of a panel that hold any of `n` columns.
  int64_t usedVectors(int64_t n) const;
  /// Whether a fused multiply-add is one instruction.
  bool hasFma() const { return lanes > 4; }
};

/// The least and the greatest height of tiles that `rows` rows are split into evenly, `most` at most: all of these if
/// rows are kDynamic.
std::pair<int64_t, int64_t> tileHeights(int64_t rows, int64_t most);

/// Which rows of A stay in the second-level cache while the panels go by, so that they come once from beyond it.
struct PanelCut : PanelTile {
  int64_t chunkBlocks = 0; ///< blocks of tileRows rows; 0: all of A
  int64_t tileGroups = 0;  ///< groups of kGroupRows rows, where tiles of AMX multiply them; 0: all of A

  /// Rows of A that pass a part of a panel while it stays in the first-level cache.
  static constexpr int64_t kGroupRows = 128;

protected:
  /// The tile that fits the registers of the target.
  void fitRegisters(TargetAttr target);
  /// The other tile of 32 registers: panels of 64 columns instead of 48.
  void widenPanels();
  /// Whether they leave fewer of `n` columns empty, by 2 % of them.
  bool wouldFillWide(int64_t n) const;
  /// Sets chunkBlocks, of `m` rows of `rowBytes`, which a column of a panel has, too.
  void chooseChunks(TargetAttr target, int64_t m, int64_t rowBytes);
  /// Sets tileGroups.
  void chooseGroups(TargetAttr target, int64_t m, int64_t rowBytes);
};

} // namespace attn

#endif // PASSES_KERNELS_CPU_PANELTILE_H
