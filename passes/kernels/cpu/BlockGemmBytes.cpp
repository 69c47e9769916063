#include "passes/kernels/cpu/BlockGemmEmitter.h"
#include "passes/kernels/cpu/ByteProducts.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

// Rows of A rounded to s8, one scale a block, by codes from 0 on:
//   sum_k (q - z) a = scale * (sum_k q b - z sum_k b),   a = scale * b
// Sums of a block are exact in i32: 255 * 127 * 256 is below 2^23.

using namespace mlir;

namespace attn {

//===----------------------------------------------------------------------===//
// Rounding
//===----------------------------------------------------------------------===//

/// Few rows by the caller alone: to wake other threads takes longer.
void BlockGemmEmitter::roundRows() {
  Index none = k.index(0);
  Mask isFew = rows <= BlockGemmSpec::kFewRows;
  k.loop(0, select(isFew, rows, none), 1, [&](Index row) { roundRow(row); });
  k.parallel(select(isFew, none, rows), [&](Index row) { roundRow(row); });
}

void BlockGemmEmitter::roundRow(const Index &row) {
  constexpr int64_t kTile = BlockGemmSpec::kTileRows;
  int64_t whole = spec.k / spec.block, rest = spec.k % spec.block;
  // Blocks of a row follow each other, in tiles those of all rows that have the same number do.
  Index first = row * spec.numBlocks(), step = k.index(1);
  if (spec.hasTiles) {
    first = select(usesTiles, row / kTile * (kTile * spec.numBlocks()) + row % kTile, first);
    step = select(usesTiles, k.index(kTile), step);
  }
  k.loop(0, whole, 1, [&](Index number) { roundBlock(row, number, first + number * step, spec.block); });
  if (rest)
    roundBlock(row, k.index(whole), first + step * whole, rest);
}

/// Block `number` of a row, of which `size` elements are there, and zeros behind them.
Vecs BlockGemmEmitter::blockOfRow(const Index &row, const Index &number, int64_t size) {
  Index first = number * spec.block;
  Vecs parts;
  for (int64_t at = 0; at < spec.block; at += spec.lanes)
    parts.push_back(a.first(size - at, spec.lanes, row, first + at));
  return parts;
}

/// The greatest magnitude; NaN where one is.
Num BlockGemmEmitter::greatestOf(const Vecs &parts) {
  Vec most = zeroVec();
  for (const Vec &part : parts)
    most = maximum(most, abs(part));
  return maximumOfLanes(most);
}

/// Block `number` of a row, of which `size` elements are there, to that place among all blocks; zeros behind them.
void BlockGemmEmitter::roundBlock(const Index &row, const Index &number, const Index &place, int64_t size) {
  Vecs parts = blockOfRow(row, number, size);
  constexpr double kMost = 127;
  // Where the greatest is infinite, there is no scale: then it is NaN, what the difference is, else 0.
  Num greatest = greatestOf(parts), scale = greatest / kMost + (greatest - greatest);
  // Of a block of zeros, or so small that the quotient is infinite, nothing is left.
  Num factor = select((greatest > 0.0) & (kMost / greatest < k.kInfinity), kMost / greatest, k.f32(0));
  Vec sum = k.splat(k.i32(0), spec.lanes);
  for (auto [n, part] : llvm::enumerate(parts)) {
    Vec rounded = roundEven(part * factor);
    Vec low = k.splat(k.f32(-kMost), spec.lanes), high = k.splat(k.f32(kMost), spec.lanes);
    rounded = select(rounded > low, select(rounded < high, rounded, high), low); // a NaN is not greater
    Vec word = convert(rounded, i32);
    sum = sum + word;
    rowBytes.flat().setVector(convert(word, i8), place * spec.block + static_cast<int64_t>(n) * spec.lanes);
  }
  rowScales.flat().set(scale, place);
  int64_t zero = spec.zeros == BlockZeros::Constant ? base() : 1;
  rowStarts.flat().set(sumOfLanes(sum) * -zero, place);
}

//===----------------------------------------------------------------------===//
// Sums
//===----------------------------------------------------------------------===//

/// Rows 4 * part.. of a word, one a byte.
Vec BlockGemmEmitter::fourRows(const Vec &word, int64_t part) {
  Vec moved = part ? word >> part * spec.bits : word;
  return spec.bits == 8 ? moved : moved & 0x01010101 * ((int64_t(1) << spec.bits) - 1);
}

/// sum + the products of four codes and four bytes of a row, in each lane. Of codes below 8 bits two products are
/// 2 * 15 * 127 at most.
Vec BlockGemmEmitter::dot(const Vec &sum, const Vec &codes, const Vec &rows) {
  ByteProducts bytes(k, spec.dot);
  Vec left = bitcast(codes, i8), right = bitcast(rows, i8);
  return spec.bits < 8 ? bytes.addNarrow(sum, {left}, {right})
                       : bytes.add(sum, bytes.unsignedFactors(left), bytes.signedFactors(right));
}

/// The zero points of block `number` that a run has, of codes from 0 on.
Vec BlockGemmEmitter::zeroPoints(const Index &number, const Index &column) {
  Vec zero = zeros.vector(spec.lanes, panel, number, column);
  return spec.isUnsigned ? convertUnsigned(zero, i32) : convert(zero, i32) + (int64_t(1) << (spec.bits - 1));
}

/// What the sums of block `number` start from: the zero points' part.
Vecs BlockGemmEmitter::startBlock(int64_t height, const Index &firstRow, const Index &number) {
  Vecs points;
  for (int64_t v = 0; v < spec.tileVectors && spec.zeros != BlockZeros::Constant; ++v)
    points.push_back(zeroPoints(number, k.index(v * spec.lanes)));
  Vecs sums;
  for (int64_t r = 0; r < height; ++r) {
    Vec start = k.splat(rowStarts(firstRow + r, number), spec.lanes);
    for (int64_t v = 0; v < spec.tileVectors; ++v)
      sums.push_back(points.empty() ? start : start * points[v]);
  }
  return sums;
}

/// Hands each sum of block `number` times the matrix's scale to `add`, with its row's scale.
void BlockGemmEmitter::addScaled(int64_t height, const Index &firstRow, const Index &number, const Vecs &blockSums,
                                 llvm::function_ref<void(int64_t, int64_t, const Vec &, const Vec &)> add) {
  Vecs factor = factors(number).scales;
  for (int64_t r = 0; r < height; ++r) {
    Vec rowScale = k.splat(rowScales(firstRow + r, number), spec.lanes);
    for (int64_t v = 0; v < spec.tileVectors; ++v)
      add(r, v, convert(blockSums[r * spec.tileVectors + v], f32) * factor[v], rowScale);
  }
}

/// As addBlock.
Vecs BlockGemmEmitter::addByteBlock(int64_t height, const Index &number, const Vecs &totals) {
  Vecs start = startBlock(height, firstRow, number), result(totals);
  Vecs blockSums = addBytes(height, firstRow, rowBytes, number, start);
  addScaled(height, firstRow, number, blockSums, [&](int64_t r, int64_t v, const Vec &scaled, const Vec &rowScale) {
    int64_t at = r * spec.tileVectors + v;
    result[at] = multiplyAdd(scaled, rowScale, result[at]);
  });
  return result;
}

/// start + the products of block `number` and of `height` rows of `bytes` from `first` on, in i32.
Vecs BlockGemmEmitter::addBytes(int64_t height, const Index &first, const Buffer &bytes, const Index &number,
                                const Vecs &start) {
  int64_t vectors = spec.tileVectors, wordsInBlock = spec.block / group;
  Index begin = number * wordsInBlock, last = k.index(spec.panelShape()[1] - 1);
  return k.loop(0, wordsInBlock, 1, start, [&](Index word, Vecs now) {
    // The rows are padded to whole blocks, the panel is not: beyond its end the bytes are 0.
    Index step = minimum(begin + word, last);
    prefetchAhead(step);
    Vecs loaded = codes.vectors(vectors, spec.lanes, panel, step);
    for (int64_t part = 0; part < 8 / spec.bits; ++part) {
      Vecs left;
      for (int64_t r = 0; r < height; ++r)
        left.push_back(bytes.word(spec.lanes, first + r, (begin + word) * group + 4 * part));
      for (int64_t v = 0; v < vectors; ++v) {
        Vec right = fourRows(loaded[v], part);
        for (int64_t r = 0; r < height; ++r)
          now[r * vectors + v] = dot(now[r * vectors + v], right, left[r]);
      }
    }
    return now;
  });
}

void BlockGemmEmitter::emitManyBytes() {
  int64_t perDepth = spec.depth() / spec.block;
  Index numTiles = ceilDiv(taskRows, spec.tileRows);
  k.loop(0, numTiles * spec.tileRows, 1, [&](Index r) { sums.setVectors(Vecs(spec.tileVectors, zeroVec()), r); });
  k.loop(0, spec.numBlocks(), perDepth, [&](Index firstBlock) {
    Index blocks = minimum(k.index(perDepth), k.index(spec.numBlocks()) - firstBlock);
    unpackBytes(firstBlock * (spec.block / group), blocks * (spec.block / group));
    k.loop(0, numTiles, 1, [&](Index tile) {
      Index height = minimum(k.index(spec.tileRows), taskRows - tile * spec.tileRows);
      k.match(height, 1, spec.tileRows, [&](int64_t rows) { addByteDepth(rows, tile, firstBlock, blocks); });
    });
  });
}

/// Writes `count` words of the panel out, four rows a word of 32 bits.
void BlockGemmEmitter::unpackBytes(const Index &firstWord, const Index &count) {
  int64_t parts = 8 / spec.bits;
  Index last = k.index(spec.panelShape()[1] - 1);
  k.loop(0, count, 1, [&](Index word) {
    for (int64_t v = 0; v < spec.tileVectors; ++v) {
      Vec loaded = words(minimum(firstWord + word, last), v);
      for (int64_t part = 0; part < parts; ++part)
        unpacked.setVector(fourRows(loaded, part), word * parts + part, v * spec.lanes);
    }
  });
}

/// Adds the products of `blocks` blocks of the scratch to the sums of `height` rows of a tile.
void BlockGemmEmitter::addByteDepth(int64_t height, const Index &tile, const Index &firstBlock, const Index &blocks) {
  int64_t vectors = spec.tileVectors, steps = spec.block / 4;
  Index local = tile * spec.tileRows, first = firstRow + local;
  k.loop(0, blocks, 1, [&](Index block) {
    Index number = firstBlock + block;
    Vecs blockSums = k.loop(0, steps, 1, startBlock(height, first, number), [&](Index step, Vecs now) {
      Vecs right = unpacked.vectors(vectors, spec.lanes, block * steps + step);
      for (int64_t r = 0; r < height; ++r) {
        Vec left = rowBytes.word(spec.lanes, first + r, number * spec.block + step * 4);
        for (int64_t v = 0; v < vectors; ++v)
          now[r * vectors + v] = dot(now[r * vectors + v], right[v], left);
      }
      return now;
    });
    addScaled(height, first, number, blockSums, [&](int64_t r, int64_t v, const Vec &scaled, const Vec &rowScale) {
      Vec total = sums.vector(spec.lanes, local + r, v * spec.lanes);
      sums.setVector(multiplyAdd(scaled, rowScale, total), local + r, v * spec.lanes);
    });
  });
  // The registers hold a block's sums: loaded before the loop, those of all blocks were spilled in each iteration, and
  // a product of 128 rows took 1.2 times as long (Zen 4).
  keepInMemory(k.b);
}

} // namespace attn
