#ifndef PASSES_KERNELS_CPU_PANELTASKS_H
#define PASSES_KERNELS_CPU_PANELTASKS_H

#include "passes/kernels/cpu/PanelTile.h"
#include "passes/kernels/shared/KernelFunction.h"

namespace attn {

/// The tasks of a product by panels, and which part of it each makes: those of one panel and chunk are neighbours. With
/// several matrices, rows of A and panels of B are one below the other.
class PanelTasks {
protected:
  PanelTasks(Code &k, const PanelCut &cut, bool isBatched) : k(k), cut(cut), isBatched(isBatched) {}

  /// Takes the sizes of the operands. Returns the number of tasks.
  Index countTasks(const Buffer &a, const Buffer &panels, const Buffer &c);
  /// Finds the block of rows of a task, and its panel.
  void takeBlock(const Index &task);
  /// Finds the rows of a block.
  void placeBlock(const Index &block);
  /// How many tasks there are of groups of rows.
  Index countGroups() { return batches * numPanels * ceilDiv(rows, PanelCut::kGroupRows); }
  /// Finds the group of rows of a task, and its panel. Returns the group's number in its matrix.
  Index takeGroup(const Index &task);

  Code &k;
  Index rows, columns, numPanels; ///< of one matrix
  Index batches, allPanels;
  Index blocks; ///< of rows: their heights differ by one at most, the first `extra` have height + 1
  Index height, extra;
  // Of the task at hand; panelAt counts the panels of all matrices.
  Index batch, panel, panelAt, row, tileHeight;
  Index inChunk, at; ///< how many tasks read this panel one after the other, and which of them this is

private:
  Index findPanel(Index task, const Index &perPanel, int64_t chunk);

  const PanelCut &cut;
  const bool isBatched;
};

} // namespace attn

#endif // PASSES_KERNELS_CPU_PANELTASKS_H
