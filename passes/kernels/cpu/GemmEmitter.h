#ifndef PASSES_KERNELS_CPU_GEMMEMITTER_H
#define PASSES_KERNELS_CPU_GEMMEMITTER_H

#include "passes/kernels/cpu/Gemm.h"
#include "passes/kernels/cpu/PanelResult.h"
#include "passes/kernels/cpu/PanelTasks.h"

namespace attn {

/// Emits one GEMM kernel: the loop over tiles, their sums in vectors, and the
/// epilogue.
class GemmEmitter : PanelTasks {
public:
  GemmEmitter(KernelFunction &f, const GemmSpec &spec);

  void emit();

private:
  /// Those of a tile, and the place to prefetch from.
  using Sums = std::tuple<Vecs, Index>;
  class Tiles;     // GemmTiles.cpp
  class HalfTiles; // GemmHalfTiles.cpp

  void takeArguments(KernelFunction &f);
  void emitPieces(const Index &tasks);
  /// Tasks that do the work where the run has tiles, and none where not.
  void emitTileTasks(const Mask &hasTiles);
  void emitTask(const Index &task);
  void emitHalfTiles(const Mask &usesTiles);
  // GemmShared.cpp
  /// Tasks that do the work where there are several blocks of rows and `usesTiles` is false, and none where not.
  void emitSharedTasks(const Mask &usesTiles);
  void emitSharedTask(const Index &task, const Index &perTask);
  Index numThreads();
  Index findNext(const Index &task, const Mask &isStream);
  void emitBlock();
  void emitTile(int64_t height);
  Vecs emitSums(int64_t height);
  Sums loopSteps(int64_t height, Place begin, Place end, const Vecs &scale, const Sums &inits);
  /// One step of the loop along the sum, which adds `numRows` rows of B.
  void addStep(int64_t height, const Index &step, int64_t numRows, const Vecs &scale, Sums &sums);
  void addPairs(int64_t height, const Index &step, Vecs &sums);
  Vecs loadPanelRow(const Index &step, int64_t row, const Vecs &scale);
  Vecs loadScale(const Index &group);
  int64_t rowsPerStep() const { return wide ? 1 : spec.rowsPerStep(); }

  // What becomes of the sums: those in registers, or in the scratch.
  void emitDirect(int64_t height, const Vecs &sums);
  void emitStaged();
  void forPanelColumns(llvm::function_ref<void(const PanelColumns &)> emitColumns);

  const GemmSpec &spec;
  const int64_t width, rowElements; // of a panel: columns, elements of a step
  const int64_t vectors;            // of a panel: those that hold columns of C
  const mlir::Type f32, panelType;
  const int64_t elementBytes;
  const bool isDirect;

  Buffer a, panels, flatPanels, scales, next, c, scratch;
  Buffer partedRows;                  // with hasHalfTiles
  Buffer depthAt, source;             // with gathersRows, where `a` has the places of rows
  llvm::SmallVector<Buffer> rowParts; // A's, of which `a` is the first
  PanelResult result;
  Index depth, steps, panelElements;
  // With prefetchesNext: of the next product, and how tasks are cut into pieces.
  Buffer flatNext;
  Index nextPanels, nextElements, pieces, pieceSize, longPieces;
  llvm::SmallVector<Index> rowsAt; ///< with gathersRows: of the tile at hand
  // Of the task at hand.
  Index prefetchStep, prefetchAt;
  Buffer prefetched;
  // The panel as f32, one row per step, where blocks share it: the first of them fills it.
  std::optional<Buffer> filled, wide;
};

} // namespace attn

#endif // PASSES_KERNELS_CPU_GEMMEMITTER_H
