#ifndef PASSES_KERNELS_CPU_INTEGERGEMMEMITTER_H
#define PASSES_KERNELS_CPU_INTEGERGEMMEMITTER_H

#include "passes/kernels/cpu/IntegerGemm.h"
#include "passes/kernels/shared/KernelFunction.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace attn {

/// Emits one GEMM kernel of bytes: the loop over tiles, their sums in vectors, and the epilogue.
class IntegerGemmEmitter {
public:
  IntegerGemmEmitter(KernelFunction &f, const IntegerGemmSpec &spec)
      : k(f.k), spec(spec), width(spec.panelWidth()), group(spec.group()), stepBytes(width * group),
        i8(k.b.getI8Type()), i32(k.b.getI32Type()) {
    takeArguments(f);
  }

  void emit();

private:
  using Vecs = llvm::SmallVector<Vec>;
  /// Columns of a panel: a fixed number, or what is left in the last one.
  struct Columns {
    int64_t count = 0;
    std::optional<Index> left;
  };
  class Tiles; // IntegerGemmTiles.cpp

  void takeArguments(KernelFunction &f);
  void emitTask(Index task);
  /// Tasks that make all sums by AMX where `isWanted`, and none where not.
  void emitTileTasks(const Mask &isWanted);
  void emitTile(int64_t height);
  void multiply(Vecs &sums, int64_t height, const Vecs &right, llvm::function_ref<Vec(int64_t)> left);
  Vec dot(const Vec &sum, const Vec &left, const Vec &right);
  Vec rowBytes(Index row, Index first, int64_t count);
  Vec lastBytes(Index row, Index first, Index count);
  Num rowSum(Index row);
  void emitRows(const Index &first, const Index &place, const Index &count);
  void emitElements(Index row, int64_t vector, const Columns &columns, Vec sum);
  void forColumns(llvm::function_ref<void(const Columns &columns)> emitColumns);

  /// A vector of a buffer's elements, number `v` of `columns`.
  template <typename... Places>
  Vec loadColumns(const Buffer &buffer, const Columns &columns, int64_t v, const Places &...at) {
    std::optional<Index> left = leftIn(columns, v);
    return left ? buffer.first(*left, spec.lanes, at...) : buffer.vector(spec.lanes, at...);
  }
  std::optional<Index> leftIn(const Columns &columns, int64_t vector);
  int64_t vectorsOf(const Columns &columns) const {
    return columns.left ? spec.tileVectors : llvm::divideCeil(columns.count, spec.lanes);
  }
  Vec sumsOf(int64_t value) { return k.splat(k.i32(value), spec.lanes); }

  Code &k;
  const IntegerGemmSpec &spec;
  const int64_t width, group, stepBytes; ///< of a panel: columns; rows and bytes of a step
  const mlir::Type i8, i32;

  Buffer a, packedRows, rowSums, panels, flatPanels, columnSums, columnZero, c, scratch;
  Num rowZero;
  llvm::SmallVector<Buffer> operands;
  Index rows, depth, allColumns, batches, blocks, height, extra, numPanels, allPanels, panelBytes, prefetchStep;
  bool hasRowSums = false; ///< where code is emitted
  // Of the task at hand; panelAt counts those of other matrices, too.
  Index panel, panelAt, row, tileHeight, prefetchAt;
};

} // namespace attn

#endif // PASSES_KERNELS_CPU_INTEGERGEMMEMITTER_H
