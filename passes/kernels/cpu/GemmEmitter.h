#ifndef PASSES_KERNELS_CPU_GEMMEMITTER_H
#define PASSES_KERNELS_CPU_GEMMEMITTER_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "passes/kernels/cpu/Gemm.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace attn {

/// Emits one GEMM kernel: the loop over tiles, their sums in vectors, and the
/// epilogue.
class GemmEmitter {
public:
  GemmEmitter(mlir::OpBuilder &builder, mlir::Location loc, const GemmSpec &spec);

  mlir::func::FuncOp emit();

private:
  class Tiles;     // GemmTiles.cpp
  class HalfTiles; // GemmHalfTiles.cpp

  mlir::Value constant(int64_t value) { return mlir::arith::ConstantIndexOp::create(b, loc, value); }
  mlir::Value add(mlir::Value x, mlir::Value y) { return mlir::arith::AddIOp::create(b, loc, x, y); }
  mlir::Value mul(mlir::Value x, mlir::Value y) { return mlir::arith::MulIOp::create(b, loc, x, y); }
  mlir::scf::ForOp createLoop(mlir::Value begin, mlir::Value end, mlir::ValueRange inits);
  mlir::Value flatten(mlir::Value cube);
  mlir::Value atLeastOne(mlir::Value x);

  mlir::func::FuncOp createFunction();
  mlir::Value emitSizes();
  void emitPieces(mlir::Value tasks);
  /// Tasks that do the work where the run has tiles, and none where not.
  void emitTileTasks(mlir::Value hasTiles);
  void emitHalfTiles(mlir::Value usesTiles);
  void emitTask(mlir::Value task);
  // GemmShared.cpp
  /// Tasks that do the work where there are several blocks of rows and `usesTiles`, if given, is false, and none where
  /// not; whether there are.
  mlir::Value emitSharedTasks(mlir::Value usesTiles);
  void emitSharedTask(mlir::Value task, mlir::Value most);
  void widenPanel(mlir::Value buffer);
  void emitNext(mlir::Value task, mlir::Value group, mlir::Value inGroup, mlir::Value isStream);
  void emitTile(int64_t height);
  llvm::SmallVector<mlir::Value> emitSums(int64_t height);
  /// One step of the k loop, which adds `numRows` rows of B to `sums`, whose
  /// last value is the place to prefetch from.
  void emitPairs(int64_t height, mlir::Value step, llvm::SmallVectorImpl<mlir::Value> &sums);
  void emitStep(int64_t height, mlir::Value step, int64_t numRows, mlir::ArrayRef<mlir::Value> scale,
                llvm::SmallVectorImpl<mlir::Value> &sums);
  llvm::SmallVector<mlir::Value> loadPanelRow(mlir::Value step, int64_t row, mlir::ArrayRef<mlir::Value> scale);
  llvm::SmallVector<mlir::Value> loadScale(mlir::Value group);
  llvm::SmallVector<mlir::Value> loopSteps(int64_t height, mlir::Value begin, mlir::Value end,
                                           mlir::ArrayRef<mlir::Value> scale, mlir::ValueRange inits);

  /// Rows of B that a step of the k loop takes in.
  int64_t rowsPerStep() const { return wide ? 1 : spec.rowsPerStep(); }

  // GemmEpilogue.cpp
  void emitDirect(int64_t height, mlir::ArrayRef<mlir::Value> sums);
  void emitStaged();
  /// Runs `emitColumns(count)` for the number of columns of the panel at hand:
  /// a whole panel, or what is left in the last one (kDynamic: the run knows).
  void forPanelColumns(llvm::function_ref<void(int64_t)> emitColumns);
  int64_t vectorsOf(int64_t count) const;
  void emitElement(mlir::Value row, int64_t vectorNumber, int64_t count, mlir::Value sum);
  mlir::Value load(mlir::Value buffer, mlir::ValueRange indices, mlir::Value mask);

  mlir::OpBuilder &b;
  mlir::Location loc;
  const GemmSpec &spec;
  const int64_t width, rowElements; // of a panel: columns, elements of a step
  const mlir::Type panelType;
  const int64_t elementBytes;
  const mlir::VectorType vectorType;
  const bool isDirect;

  mlir::Value a, panels, flatPanels, scales, c, scratch;
  /// The panel at hand as f32, where blocks share it; with prefetchesNext the panels of the next product.
  mlir::Value wide, nextOperand;
  mlir::Value partedRows;                            ///< with hasHalfTiles
  llvm::SmallVector<mlir::Value> operands, rowParts; // rowParts: A's, of which `a` is the first
  // rows, numPanels and blocks are those of one product of a batch.
  // With prefetchesNext: of the next product, and how tasks are cut into pieces.
  mlir::Value flatNext, nextPanels, nextElements, pieces, pieceSize, longPieces;
  mlir::Value zero, kSize, steps, panelElements, columns, rows, numPanels, totalPanels, blocks, height, extra;
  // Of the task at hand; panelAt is the panel's place in B.
  mlir::Value panel, panelAt, row, tileHeight, firstColumn, prefetchStep, prefetched, prefetchAt;
};

} // namespace attn

#endif // PASSES_KERNELS_CPU_GEMMEMITTER_H
