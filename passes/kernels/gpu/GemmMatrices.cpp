#include "passes/kernels/gpu/GemmEmitter.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"

// Products by matrix units: f32 tiles in shared memory, rounded when they are
// read. BlockBuilder says which lane holds what of the 16 x 16 and 16 x 8 parts.

using namespace mlir;

namespace attn {

using Values = LaneBuilder::Values;

/// Which of the tile's rows (columns) is `within` of the warp's 8 number `n`.
Value GpuGemmEmitter::matrixPlace(const Side &side, int64_t n, Value within) {
  Value base = k.mul(side.lane, 8 * side.perThread);
  // Along the contiguous dimension a lane's are side by side, four of them.
  if (side.isInFours())
    return k.add(k.add(base, k.mul(within, 4)), n / 4 * 32 + n % 4);
  return k.add(k.add(base, within), 8 * n);
}

/// [number of 8 of the warp][packed operands of 16 of the sum from `depth` on].
GpuGemmEmitter::Fragments GpuGemmEmitter::readMatrices(const Side &side, Value stage, int64_t depth) {
  if (side.isNarrow)
    return readNarrowMatrices(side, stageOf(side, stage), depth);
  Value base = k.add(stageOf(side, stage), side.isDeep ? depth : depth * side.pitch);
  Value twice = k.mul(member, 2);
  Fragments fragments(side.perThread, Values(4));
  for (int64_t half = 0; half < 2; ++half)
    for (int64_t n = 0; n < side.perThread; ++n) {
      Value place = matrixPlace(side, n, group);
      if (side.isDeep) {
        // 16 lanes: pitch = 8 mod 16, so that four rows of 8 elements fill the banks.
        Values two = k.loadFew(shared, k.add(k.add(k.add(base, k.mul(place, side.pitch)), twice), 8 * half), 2);
        fragments[n][2 * half] = two[0], fragments[n][2 * half + 1] = two[1];
        continue;
      }
      // pitch = 4 mod 16: every second row begins 8 banks further.
      int64_t few = side.isInFours() ? 4 : 1;
      if (n % few)
        continue;
      for (int64_t e = 0; e < 2; ++e) {
        Value row = k.add(base, k.mul(k.add(twice, 8 * half + e), side.pitch));
        Values read = few == 4 ? k.load4(shared, k.add(row, place)) : Values{k.load(shared, k.add(row, place))};
        for (int64_t i = 0; i < few; ++i)
          fragments[n + i][2 * half + e] = read[i];
      }
    }
  for (Values &fragment : fragments)
    fragment = k.packed(fragment, spec.precision);
  return fragments;
}

/// The same of pairs of 16 bits: 8 x 8 of two rows (columns) of these and both halves at once.
GpuGemmEmitter::Fragments GpuGemmEmitter::readNarrowMatrices(const Side &side, Value base, int64_t depth) {
  Fragments fragments;
  Value lane = k.rem(k.thread, k.index(32)), row = k.rem(lane, k.index(8));
  Value half = k.rem(k.div(lane, k.index(8)), k.index(2)), second = k.div(lane, k.index(16));
  for (int64_t n = 0; n < side.perThread; n += 2) {
    // Of the lane the row of 16 bytes: along the sum, or of one place of it.
    Value eight = k.add(k.mul(side.lane, side.perThread), k.add(second, n));
    Value major = side.isDeep ? k.add(k.mul(eight, 8), row) : k.add(k.add(k.mul(half, 8), row), depth);
    Value minor = side.isDeep ? k.add(k.mul(half, 4), depth / 2) : k.mul(eight, 4);
    Value place = k.add(k.add(base, k.mul(major, side.pitch)), minor);
    Values four = k.loadMatrices(shared, place, /*transposed=*/!side.isDeep, spec.precision);
    fragments.push_back({four[0], four[1]});
    fragments.push_back({four[2], four[3]});
  }
  return fragments;
}

Values GpuGemmEmitter::multiplyMatrices() {
  Value lane = k.rem(k.thread, k.index(32));
  group = k.div(lane, k.index(4)), member = k.rem(lane, k.index(4));
  int64_t rows = tile.threadRows, columns = tile.threadColumns;
  return sumUp(2 * rows * columns, [&](Value stage, ValueRange sums) {
    Values next(sums);
    for (int64_t depth = 0; depth < tile.depth; depth += 16) {
      Fragments left = readMatrices(sides[0], stage, depth), right = readMatrices(sides[1], stage, depth);
      for (int64_t i = 0; i < rows; i += 2)
        for (int64_t j = 0; j < columns; ++j) {
          int64_t at = 2 * (i * columns + 2 * j);
          Values four = k.multiplyMatrices(left[i], left[i + 1], right[j], ArrayRef(next).slice(at, 4), spec.precision);
          llvm::copy(four, next.begin() + at);
        }
    }
    return next;
  });
}

/// The warp's sums to shared memory, as [its rows][all columns].
void GpuGemmEmitter::stageSums(const Values &sums) {
  int64_t rows = tile.threadRows, columns = tile.threadColumns;
  Side within = sides[0]; // of the warp's rows
  within.lane = k.index(0);
  bool isInFours = sides[1].isInFours();
  for (int64_t i = 0; i < rows; ++i) {
    Value row = k.mul(matrixPlace(within, i, group), stagedPitch());
    auto sum = [&](int64_t j, int64_t e) { return sums[2 * (i / 2 * 2 * columns + 2 * j + i % 2) + e]; };
    for (int64_t j = 0; j < columns; j += isInFours ? 4 : 1) {
      if (!isInFours) {
        Value place = k.add(row, matrixPlace(sides[1], j, k.mul(member, 2)));
        k.storeFew({sum(j, 0), sum(j, 1)}, shared, place);
        continue;
      }
      for (int64_t e = 0; e < 2; ++e) {
        Value place = k.add(row, matrixPlace(sides[1], j, k.add(k.mul(member, 2), e)));
        k.storeFew({sum(j, e), sum(j + 1, e), sum(j + 2, e), sum(j + 3, e)}, shared, place);
      }
    }
  }
}

/// Epilogue and result of the rows in shared memory, `firstRow`... of the tile:
/// four columns a thread and step, in whole lines of global memory.
void GpuGemmEmitter::finishStaged(int64_t firstRow) {
  bool isContiguous = !spec.columns.empty() && spec.resultMap.getNumResults() &&
                      spec.resultMap.getDimPosition(spec.resultMap.getNumResults() - 1) == spec.columns.back();
  int64_t last = spec.columns.empty() ? 1 : spec.sizes[spec.columns.back()];
  Type type = spec.result.getElementType();
  bool isVector = isContiguous && !ShapedType::isDynamic(last) && last % 4 == 0 && type.isIntOrFloat() &&
                  type.getIntOrFloatBitWidth() >= 8;
  Value flat = isVector ? k.flatten(arguments.back()) : Value();
  Values strides = rowMajorStrides(k, arguments.back());
  int64_t across = tile.columns / 4;
  k.loop(k.thread, k.index(stagedRows() * across), tile.threads(), [&](Value position) {
    Value within = k.div(position, k.index(across)), column = k.mul(k.rem(position, k.index(across)), 4);
    Value row = k.add(k.add(sides[0].first, within), firstRow), first = k.add(sides[1].first, column);
    k.branch(k.both(k.less(row, numRows), k.less(first, numColumns)), [&] {
      Values sums = k.load4(shared, k.add(k.mul(within, stagedPitch()), column));
      placeLoops(spec.rows, delinearize(k, row, sizesOf(spec.rows)));
      auto indices = [&](int64_t e) {
        placeLoops(spec.columns, delinearize(k, k.add(first, e), sizesOf(spec.columns)));
        return resultIndices();
      };
      if (isVector) {
        Values at = indices(0), begin = at;
        for (int64_t e = 0; e < 4; ++e) {
          at.back() = k.add(begin.back(), e);
          sums[e] = applyEpilogue(sums[e], at);
        }
        Value offset = k.index(0);
        for (auto [index, stride] : llvm::zip_equal(begin, strides))
          offset = k.add(offset, k.mul(index, stride));
        return k.store4(sums, flat, offset);
      }
      for (int64_t e = 0; e < 4; ++e)
        k.branch(k.less(k.add(first, e), numColumns), [&] {
          Values at = indices(e);
          memref::StoreOp::create(k.b, k.loc, applyEpilogue(sums[e], at), arguments.back(), at);
        });
    });
  });
}

void GpuGemmEmitter::finishMatrices(const Values &sums) {
  startLoops();
  for (int64_t n = 0; n < tile.rows / stagedRows(); ++n) {
    k.barrier(); // tiles, or the rows before, have been read
    Value isTurn = arith::CmpIOp::create(k.b, k.loc, arith::CmpIPredicate::eq, sides[0].lane, k.index(n));
    k.branch(isTurn, [&] { stageSums(sums); });
    k.barrier();
    finishStaged(n * stagedRows());
  }
}

} // namespace attn
