#include "passes/kernels/gpu/GemmEmitter.h"

// Products one by one, in f32.

using namespace mlir;

namespace attn {

/// Which of the tile's rows (columns) is number `n` of a thread.
Index GpuGemmEmitter::placeOf(const Side &side, int64_t n) {
  int64_t lanes = side.tile / side.perThread;
  if (side.isDeep)
    return side.lane + n * lanes;
  return side.lane * 4 + (n / 4 * 4 * lanes + n % 4);
}

/// [row or column of the thread][of 4 steps of the sum].
GpuGemmEmitter::Fragments GpuGemmEmitter::readFragment(const Side &side, Index stage, Index depth) {
  Index base = stageOf(side, stage);
  Fragments fragment(side.perThread, Nums(4));
  if (side.isDeep) {
    for (int64_t n = 0; n < side.perThread; ++n)
      fragment[n] = k.load4(shared, base + placeOf(side, n) * side.pitch + depth);
    return fragment;
  }
  for (int64_t step = 0; step < 4; ++step)
    for (int64_t n = 0; n < side.perThread; n += 4) {
      Index row = base + (depth + step) * side.pitch;
      Nums four = k.load4(shared, row + placeOf(side, n));
      for (int64_t e = 0; e < 4; ++e)
        fragment[n + e][step] = four[e];
    }
  return fragment;
}

Nums GpuGemmEmitter::multiply() {
  return sumUp(tile.threadRows * tile.threadColumns, [&](Index stage, Nums sums) {
    return k.loop(0, tile.depth, 4, sums, [&](Index depth, Nums next) {
      Fragments left = readFragment(sides[0], stage, depth), right = readFragment(sides[1], stage, depth);
      for (int64_t q = 0; q < 4; ++q)
        for (int64_t i = 0; i < tile.threadRows; ++i)
          for (int64_t j = 0; j < tile.threadColumns; ++j) {
            Num &sum = next[i * tile.threadColumns + j];
            sum = fma(left[i][q], right[j][q], sum);
          }
      return next;
    });
  });
}

/// Epilogue and result of the thread's sums.
void GpuGemmEmitter::finish(const Nums &sums) {
  startLoops();
  SmallVector<Indices> columns;
  SmallVector<Mask> isColumn;
  for (int64_t j = 0; j < tile.threadColumns; ++j) {
    Index column = sides[1].first + placeOf(sides[1], j);
    isColumn.push_back(column < numColumns);
    columns.push_back(delinearize(column, sizesOf(spec.columns)));
  }
  for (int64_t i = 0; i < tile.threadRows; ++i) {
    Index row = sides[0].first + placeOf(sides[0], i);
    Mask isRow = row < numRows;
    Indices rowIndices = delinearize(row, sizesOf(spec.rows));
    for (int64_t j = 0; j < tile.threadColumns; ++j)
      k.when(isRow & isColumn[j], [&] {
        placeLoops(spec.rows, rowIndices);
        placeLoops(spec.columns, columns[j]);
        Indices at = resultIndices();
        storeResult(applyEpilogue(sums[i * tile.threadColumns + j], at), at);
      });
  }
}

} // namespace attn
