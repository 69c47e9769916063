#ifndef PASSES_KERNELS_CPU_INTEGERGEMMEMITTER_H
#define PASSES_KERNELS_CPU_INTEGERGEMMEMITTER_H

#include "passes/kernels/cpu/ByteProducts.h"
#include "passes/kernels/cpu/IntegerGemm.h"
#include "passes/kernels/cpu/PanelResult.h"
#include "passes/kernels/cpu/PanelTasks.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace attn {

/// Emits one GEMM kernel of bytes: the loop over tiles, their sums in vectors, and the epilogue.
class IntegerGemmEmitter : PanelTasks {
public:
  IntegerGemmEmitter(KernelFunction &f, const IntegerGemmSpec &spec)
      : PanelTasks(f.k, spec, spec.isBatched), spec(spec), width(spec.panelWidth()), group(spec.group()),
        stepBytes(width * group), vectors(spec.usedVectors(spec.n)), i8(k.b.getI8Type()), i32(k.b.getI32Type()),
        bytes(k, spec.dot), result(k, spec, spec.n, width, spec.lanes) {
    takeArguments(f);
  }

  void emit();

private:
  class Tiles; // IntegerGemmTiles.cpp

  void takeArguments(KernelFunction &f);
  void emitTask(Index task);
  /// Tasks that make all sums by AMX where `isWanted`, and none where not.
  void emitTileTasks(const Mask &isWanted);
  void emitTile(int64_t height);
  using Sums = std::tuple<Vecs, Index>;           ///< and where to prefetch
  enum class Steps { All, Double, Narrow, Wide }; ///< all as they follow each other, others as the order has them
  Sums addSteps(const Sums &init, int64_t height, const Index &from, const Index &to, Steps steps);
  Vecs loadRight(const Index &step);
  Vecs multiply(Vecs sums, int64_t height, const Vecs &right, llvm::function_ref<Vec(int64_t)> left);
  Vecs multiplyNarrow(Vecs sums, int64_t height, llvm::ArrayRef<Index> steps, llvm::ArrayRef<Vecs> right);
  Vec rowBytes(Index row, Index first, int64_t count);
  Vec lastBytes(Index row, Index first, Index count);
  Num rowSum(Index row);
  void emitRows(const Index &first, const Index &place, const Index &count);
  Vec sumsOf(int64_t value) { return k.splat(k.i32(value), spec.lanes); }

  const IntegerGemmSpec &spec;
  const int64_t width, group, stepBytes; ///< of a panel: columns; rows and bytes of a step
  const int64_t vectors;                 ///< of a panel that hold columns
  const mlir::Type i8, i32;

  ByteProducts bytes;
  Buffer a, packedRows, rowSums, panels, flatPanels, columnSums, order, columnZero, c, scratch;
  Num rowZero;
  PanelResult result;
  Index depth, panelBytes;
  bool hasRowSums = false;        ///< where code is emitted
  Index prefetchStep, prefetchAt; ///< of the task at hand
};

} // namespace attn

#endif // PASSES_KERNELS_CPU_INTEGERGEMMEMITTER_H
