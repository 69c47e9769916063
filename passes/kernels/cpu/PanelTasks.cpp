#include "passes/kernels/cpu/PanelTasks.h"

using namespace mlir;

namespace attn {

Index PanelTasks::countTasks(const Buffer &a, const Buffer &panels, const Buffer &c) {
  rows = a.dim(0);
  columns = c.dim(1);
  numPanels = ceilDiv(columns, cut.panelWidth());
  allPanels = panels.dim(0);
  batches = k.index(1);
  if (isBatched) {
    batches = allPanels / maximum(numPanels, 1);
    rows = rows / maximum(batches, 1);
  }
  // M = 50 in tiles of 8 is 8 + 6 * 7.
  blocks = ceilDiv(rows, cut.tileRows);
  Index divisor = maximum(blocks, 1);
  height = rows / divisor;
  extra = rows % divisor;
  return batches * numPanels * blocks;
}

/// Finds the panel of a task. Returns which of the `perPanel` tasks of that panel it is.
Index PanelTasks::findPanel(Index task, const Index &perPanel, int64_t chunk) {
  Index first = k.index(0);
  inChunk = perPanel;
  batch = k.index(0);
  if (isBatched) {
    Index ofOne = numPanels * perPanel;
    batch = task / ofOne;
    task = task % ofOne;
  }
  if (chunk) { // all chunks are whole but the last
    Index perChunk = numPanels * chunk;
    first = task / perChunk * chunk;
    task = task % perChunk;
    inChunk = minimum(k.index(chunk), perPanel - first);
  }
  panel = task / inChunk;
  at = task % inChunk;
  panelAt = batch * numPanels + panel;
  return first + at;
}

void PanelTasks::takeBlock(const Index &task) {
  placeBlock(findPanel(task, blocks, cut.chunkBlocks));
}

void PanelTasks::placeBlock(const Index &block) {
  row = batch * rows + block * height + minimum(block, extra);
  tileHeight = height + toIndex(block < extra);
}

Index PanelTasks::takeGroup(const Index &task) {
  Index group = findPanel(task, ceilDiv(rows, PanelCut::kGroupRows), cut.tileGroups);
  Index first = group * PanelCut::kGroupRows;
  row = batch * rows + first;
  tileHeight = minimum(k.index(PanelCut::kGroupRows), rows - first);
  return group;
}

} // namespace attn
