#include "passes/kernels/gpu/GemmEmitter.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"

// Products one by one, in f32.

using namespace mlir;

namespace attn {

using Values = LaneBuilder::Values;

/// Which of the tile's rows (columns) is number `n` of a thread.
Value GpuGemmEmitter::placeOf(const Side &side, int64_t n) {
  int64_t lanes = side.tile / side.perThread;
  if (side.isDeep)
    return k.add(side.lane, n * lanes);
  return k.add(k.mul(side.lane, 4), n / 4 * 4 * lanes + n % 4);
}

/// [row or column of the thread][of 4 steps of the sum].
GpuGemmEmitter::Fragments GpuGemmEmitter::readFragment(const Side &side, Value stage, Value depth) {
  Value base = stageOf(side, stage);
  Fragments fragment(side.perThread, Values(4));
  if (side.isDeep) {
    for (int64_t n = 0; n < side.perThread; ++n)
      fragment[n] = k.load4(shared, k.add(k.add(base, k.mul(placeOf(side, n), side.pitch)), depth));
    return fragment;
  }
  for (int64_t step = 0; step < 4; ++step)
    for (int64_t n = 0; n < side.perThread; n += 4) {
      Value row = k.add(base, k.mul(k.add(depth, step), side.pitch));
      Values four = k.load4(shared, k.add(row, placeOf(side, n)));
      for (int64_t e = 0; e < 4; ++e)
        fragment[n + e][step] = four[e];
    }
  return fragment;
}

Values GpuGemmEmitter::multiply() {
  return sumUp(tile.threadRows * tile.threadColumns, [&](Value stage, ValueRange sums) {
    return k.loop(k.index(0), k.index(tile.depth), 4, sums, [&](Value depth, ValueRange carried) {
      Fragments left = readFragment(sides[0], stage, depth), right = readFragment(sides[1], stage, depth);
      Values next(carried);
      for (int64_t q = 0; q < 4; ++q)
        for (int64_t i = 0; i < tile.threadRows; ++i)
          for (int64_t j = 0; j < tile.threadColumns; ++j) {
            Value &sum = next[i * tile.threadColumns + j];
            sum = k.fma(left[i][q], right[j][q], sum);
          }
      return next;
    });
  });
}

/// Epilogue and result of the thread's sums.
void GpuGemmEmitter::finish(const Values &sums) {
  startLoops();
  SmallVector<Values> columns;
  Values isColumn;
  for (int64_t j = 0; j < tile.threadColumns; ++j) {
    Value column = k.add(sides[1].first, placeOf(sides[1], j));
    isColumn.push_back(k.less(column, numColumns));
    columns.push_back(delinearize(k, column, sizesOf(spec.columns)));
  }
  for (int64_t i = 0; i < tile.threadRows; ++i) {
    Value row = k.add(sides[0].first, placeOf(sides[0], i));
    Value isRow = k.less(row, numRows);
    Values rowIndices = delinearize(k, row, sizesOf(spec.rows));
    for (int64_t j = 0; j < tile.threadColumns; ++j)
      k.branch(k.both(isRow, isColumn[j]), [&] {
        placeLoops(spec.rows, rowIndices);
        placeLoops(spec.columns, columns[j]);
        Values at = resultIndices();
        Value sum = applyEpilogue(sums[i * tile.threadColumns + j], at);
        memref::StoreOp::create(k.b, k.loc, sum, arguments.back(), at);
      });
  }
}

} // namespace attn
