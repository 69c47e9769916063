#include "passes/kernels/gpu/Float8.h"
#include "passes/kernels/gpu/GemmEmitter.h"

// Products by matrix units. Tiles in shared memory are of f32, which is rounded when
// it is read, or of 16 or 8 bits as the operand has them. ThreadCode says which lane holds what of the 16 x 16 and 16 x
// 8 parts.

using namespace mlir;

namespace attn {

/// Which of the tile's rows (columns) is `within` of the warp's 8 number `n`.
Index GpuGemmEmitter::matrixPlace(const Side &side, int64_t n, Index within) {
  Index base = side.lane * (8 * side.perThread);
  // Along the contiguous dimension a lane's are side by side, four of them.
  if (side.isInFours())
    return base + within * 4 + (n / 4 * 32 + n % 4);
  return base + within + 8 * n;
}

/// [number of 8 of the warp][packed operands of 16 of the sum from `depth` on].
GpuGemmEmitter::Fragments GpuGemmEmitter::readMatrices(const Side &side, Index stage, int64_t depth) {
  if (side.isNarrow)
    return readNarrowMatrices(side, stageOf(side, stage), depth);
  if (side.isFloat8)
    return readFloat8Matrices(side, stageOf(side, stage), depth);
  Index base = stageOf(side, stage) + (side.isDeep ? depth : depth * side.pitch);
  Index twice = member * 2;
  Fragments fragments(side.perThread, Nums(4));
  for (int64_t half = 0; half < 2; ++half)
    for (int64_t n = 0; n < side.perThread; ++n) {
      Index place = matrixPlace(side, n, group);
      if (side.isDeep) {
        // 16 lanes: pitch = 8 mod 16, so that four rows of 8 elements fill the banks.
        Nums two = k.loadFew(shared, base + place * side.pitch + twice + 8 * half, 2);
        fragments[n][2 * half] = two[0], fragments[n][2 * half + 1] = two[1];
        continue;
      }
      // pitch = 4 mod 16: every second row begins 8 banks further.
      int64_t few = side.isInFours() ? 4 : 1;
      if (n % few)
        continue;
      for (int64_t e = 0; e < 2; ++e) {
        Index row = base + (twice + (8 * half + e)) * side.pitch;
        Nums read = few == 4 ? k.load4(shared, row + place) : Nums{shared(row + place)};
        for (int64_t i = 0; i < few; ++i)
          fragments[n + i][2 * half + e] = read[i];
      }
    }
  for (Nums &fragment : fragments)
    fragment = k.packed(fragment, spec.precision);
  return fragments;
}

/// The same of pairs of 16 bits: 8 x 8 of two rows (columns) of these and both halves at once.
GpuGemmEmitter::Fragments GpuGemmEmitter::readNarrowMatrices(const Side &side, Index base, int64_t depth) {
  Fragments fragments;
  Index lane = k.thread % 32, row = lane % 8;
  Index half = lane / 8 % 2, second = lane / 16;
  for (int64_t n = 0; n < side.perThread; n += 2) {
    // Of the lane the row of 16 bytes: along the sum, or of one place of it.
    Index eight = side.lane * side.perThread + (second + n);
    Index major = side.isDeep ? eight * 8 + row : half * 8 + row + depth;
    Index minor = side.isDeep ? half * 4 + depth / 2 : eight * 4;
    Index place = base + major * side.pitch + minor;
    Nums four = k.loadMatrices(shared, place, /*transposed=*/!side.isDeep, spec.precision);
    fragments.push_back({four[0], four[1]});
    fragments.push_back({four[2], four[3]});
  }
  return fragments;
}

/// The same of e4m3: two neighbours are the half of a word.
GpuGemmEmitter::Fragments GpuGemmEmitter::readFloat8Matrices(const Side &side, Index base, int64_t depth) {
  constexpr int64_t kPerWord = 4, kHalfBits = 16;
  Num shift = toNum(member % 2, k.b.getI32Type()) * kHalfBits;
  Fragments fragments;
  for (int64_t n = 0; n < side.perThread; ++n) {
    Index row = base + matrixPlace(side, n, group) * side.pitch + member / 2;
    Nums four;
    for (int64_t half : {0, 8}) {
      Num word = bitcast(shared(row + (depth + half) / kPerWord), k.b.getI32Type());
      llvm::append_range(four, fromFloat8(k, convert(word >> shift, k.b.getI16Type())));
    }
    fragments.push_back(k.packed(four, spec.precision));
  }
  return fragments;
}

Nums GpuGemmEmitter::multiplyMatrices() {
  Index lane = k.thread % 32;
  group = lane / 4, member = lane % 4;
  int64_t rows = tile.threadRows, columns = tile.threadColumns;
  return sumUp(2 * rows * columns, [&](Index stage, Nums next) {
    for (int64_t depth = 0; depth < tile.depth; depth += 16) {
      Fragments left = readMatrices(sides[0], stage, depth), right = readMatrices(sides[1], stage, depth);
      for (int64_t i = 0; i < rows; i += 2)
        for (int64_t j = 0; j < columns; ++j) {
          int64_t at = 2 * (i * columns + 2 * j);
          Nums four = k.multiplyMatrices(left[i], left[i + 1], right[j], ArrayRef(next).slice(at, 4), spec.precision);
          llvm::copy(four, next.begin() + at);
        }
    }
    return next;
  });
}

/// The warp's sums to shared memory, as [its rows][all columns].
void GpuGemmEmitter::stageSums(const Nums &sums) {
  int64_t rows = tile.threadRows, columns = tile.threadColumns;
  Side within = sides[0]; // of the warp's rows
  within.lane = k.index(0);
  bool isInFours = sides[1].isInFours();
  for (int64_t i = 0; i < rows; ++i) {
    Index row = matrixPlace(within, i, group) * stagedPitch();
    auto sum = [&](int64_t j, int64_t e) { return sums[2 * (i / 2 * 2 * columns + 2 * j + i % 2) + e]; };
    for (int64_t j = 0; j < columns; j += isInFours ? 4 : 1) {
      if (!isInFours) {
        Index place = row + matrixPlace(sides[1], j, member * 2);
        k.storeFew({sum(j, 0), sum(j, 1)}, shared, place);
        continue;
      }
      for (int64_t e = 0; e < 2; ++e) {
        Index place = row + matrixPlace(sides[1], j, member * 2 + e);
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
  Buffer flat = isVector ? arguments.back().flat() : Buffer();
  Indices strides = rowMajorStrides(k, arguments.back());
  int64_t across = tile.columns / 4;
  k.loop(k.thread, stagedRows() * across, tile.threads(), [&](Index position) {
    Index within = position / across, column = position % across * 4;
    Index row = sides[0].first + within + firstRow, first = sides[1].first + column;
    k.when((row < numRows) & (first < numColumns), [&] {
      Nums sums = k.load4(shared, within * stagedPitch() + column);
      placeLoops(spec.rows, delinearize(row, sizesOf(spec.rows)));
      auto indices = [&](int64_t e) {
        placeLoops(spec.columns, delinearize(first + e, sizesOf(spec.columns)));
        return resultIndices();
      };
      if (isVector) {
        Indices at = indices(0), begin = at;
        for (int64_t e = 0; e < 4; ++e) {
          at.back() = begin.back() + e;
          sums[e] = applyEpilogue(sums[e], at);
        }
        Index offset = k.index(0);
        for (auto [index, stride] : llvm::zip_equal(begin, strides))
          offset = offset + index * stride;
        return k.store4(sums, flat, offset);
      }
      for (int64_t e = 0; e < 4; ++e)
        k.when(first + e < numColumns, [&] {
          Indices at = indices(e);
          storeResult(applyEpilogue(sums[e], at), at);
        });
    });
  });
}

void GpuGemmEmitter::finishMatrices(const Nums &sums) {
  startLoops();
  for (int64_t n = 0; n < tile.rows / stagedRows(); ++n) {
    k.barrier(); // tiles, or the rows before, have been read
    k.when(sides[0].lane == n, [&] { stageSums(sums); });
    k.barrier();
    finishStaged(n * stagedRows());
  }
}

} // namespace attn
