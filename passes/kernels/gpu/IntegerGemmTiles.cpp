#include "passes/kernels/gpu/IntegerGemmEmitter.h"

// Products of bytes by matrix units. Both sides of a tile stand in shared memory as [16 of the sum][row or column] of
// 16 bytes each, so that 8 neighbours, which is what ldmatrix reads at once, fill all banks; columns come from their
// panels in this order, and rows change places within each 8, so that the threads that copy a row write to other banks.
// ThreadCode says which lane holds what of the 16 x 32 and 32 x 8 parts.

using namespace mlir;

namespace attn {
namespace {

constexpr int64_t kStages = 3, kDepth = 64, kWords = 4; // words of 16 bytes

/// Of a block of threads; a warp has 16 rows or 8 columns so many times.
struct IntegerTile {
  int64_t rows, columns, warpRows, warpColumns = 4;

  int64_t stagedRows() const { return 16 * warpRows; }
  int64_t stagedPitch() const { return columns + 8; }
  int64_t warpsAcross() const { return columns / (8 * warpColumns); }
  int64_t threads() const { return 32 * (rows / stagedRows()) * warpsAcross(); }
};
// A warp of 64 x 64 makes half as many products again, of what it reads of shared memory, as one of 64 x 32.
constexpr IntegerTile kLarge{128, 128, 4, 8}, kMedium{64, 64, 2}, kSmall{32, 64, 1};

class IntegerTileEmitter : public GpuIntegerEmitter {
public:
  IntegerTileEmitter(OpBuilder &b, Location loc, const GpuIntegerSpec &spec, ArrayRef<Buffer> arguments,
                     const IntegerTile &tile)
      : GpuIntegerEmitter(b, loc, spec, arguments), tile(tile), numMatrices(k.index(1)), rowsOfMatrix(numRows) {
    if (spec.isBatched) {
      numMatrices = arguments[1].dim(0) / maximum(panelsOfMatrix, 1);
      rowsOfMatrix = numRows / maximum(numMatrices, 1);
    }
  }

  void emit();

private:
  static constexpr int64_t kGroups = kDepth / kGroup; ///< of a stage
  int64_t chunks() const { return kGroups * (tile.rows + tile.columns); }
  int64_t rowChunks() const { return kGroups * tile.rows; }
  bool hasColumnZero() const { return spec.columnZero != ZeroPoint::None; }
  /// Where the 16 bytes of a row (column) lie, in chunks of 16 bytes.
  Index rowPlace(Index row, Index group) { return group * tile.rows + (row ^ (group * 2)); }
  Index columnPlace(Index column, Index group) { return group * tile.columns + column + rowChunks(); }
  void copyStage(Index step, Index stage);
  Nums sumUp();
  void addStage(Nums &sums, Index stage);
  void stage(const Nums &sums);
  void finishStaged(int64_t firstRow);

  const IntegerTile tile;
  Index numMatrices, rowsOfMatrix;
  Buffer shared;
  Index matrix, firstRow, firstColumn, lane, warpRow, warpColumn;
};

void IntegerTileEmitter::emit() {
  OpBuilder::InsertionGuard guard(k.b);
  Index rowTiles = ceilDiv(rowsOfMatrix, tile.rows), columnTiles = ceilDiv(numColumns, tile.columns);
  Index tiles = rowTiles * columnTiles;
  int64_t elements = std::max(kStages * chunks() * kWords, tile.stagedRows() * tile.stagedPitch());
  shared = k.launch(tiles * numMatrices, tile.threads(), {elements})[0];
  k.setResidentBlocks(1);
  matrix = k.block / tiles;
  Index position = k.block % tiles;
  firstRow = position / columnTiles * tile.rows;
  firstColumn = position % columnTiles * tile.columns;
  Index warp = k.thread / kWarp;
  lane = k.thread % kWarp;
  warpRow = warp / tile.warpsAcross(), warpColumn = warp % tile.warpsAcross();
  Nums sums = sumUp();
  for (int64_t n = 0; n < tile.rows / tile.stagedRows(); ++n) {
    k.barrier(); // tiles, or the rows before, have been read
    k.when(warpRow == n, [&] { stage(sums); });
    k.barrier();
    finishStaged(n * tile.stagedRows());
  }
}

/// Starts to copy the part of both sides that is number `step` of the sum.
void IntegerTileEmitter::copyStage(Index step, Index stage) {
  Index begin = stage * chunks(), firstGroup = step * kGroups;
  for (int64_t n = 0; n < rowChunks() / tile.threads(); ++n) {
    // Threads side by side have the groups of a row.
    Index chunk = k.thread + n * tile.threads(), within = chunk / kGroups, group = chunk % kGroups;
    Index row = firstRow + within, number = firstGroup + group, place = (begin + rowPlace(within, group)) * kWords;
    Mask isInside = (row < rowsOfMatrix) & (number < numGroups);
    row = matrix * rowsOfMatrix + row;
    if (isVector())
      k.copyAsync(shared, place, rows, row * depth + number * kGroup, kWords, isInside);
    else
      k.store4(llvm::map_to_vector(readGroup(row, number, isInside), [&](const Num &word) { return k.asFloat(word); }),
               shared, place);
  }
  for (int64_t n = 0; n < kGroups * tile.columns / tile.threads(); ++n) {
    Index chunk = k.thread + n * tile.threads(), within = chunk % tile.columns, group = chunk / tile.columns;
    Index column = firstColumn + within, number = firstGroup + group, panel = column / kWidth;
    Index from = placeInPanels(matrix * panelsOfMatrix + panel, number) + column % kWidth * kGroup;
    k.copyAsync(shared, (begin + columnPlace(within, group)) * kWords, panels, from, kWords,
                (panel < panelsOfMatrix) & (number < numGroups));
  }
  k.commitCopies();
}

/// The warp's sums, four of a part of 16 x 8 each, and behind them those of its rows.
Nums IntegerTileEmitter::sumUp() {
  Nums zeros(4 * tile.warpRows * tile.warpColumns + (hasColumnZero() ? 2 * tile.warpRows : 0), k.i32(0));
  for (int64_t n = 0; n + 1 < kStages; ++n)
    copyStage(k.index(n), k.index(n));
  Nums sums = k.loop(0, ceilDiv(depth, kDepth), 1, zeros, [&](Index step, Nums now) {
    k.keepRolled();
    k.waitForCopies(kStages - 2);
    k.barrier(); // this step's stage is there for all, and all have read the one before
    Index next = step + (kStages - 1);
    copyStage(next, next % kStages);
    addStage(now, step % kStages);
    return now;
  });
  k.waitForCopies(0); // none may be under way when the block ends
  return sums;
}

void IntegerTileEmitter::addStage(Nums &sums, Index stage) {
  Index begin = stage * chunks(), line = lane % 8, part = lane / 8;
  auto load = [&](Index place) {
    return k.loadMatrices(shared, (begin + place) * kWords, /*transposed=*/false, Precision::bf16);
  };
  for (int64_t group = 0; group < kGroups; group += 2) {
    SmallVector<Nums> left, right;
    for (int64_t i = 0; i < tile.warpRows; ++i)
      left.push_back(load(rowPlace(warpRow * tile.stagedRows() + 16 * i + part % 2 * 8 + line, part / 2 + group)));
    for (int64_t j = 0; j < tile.warpColumns; j += 2) {
      Index column = (warpColumn * tile.warpColumns + j + part / 2) * 8 + line;
      Nums four = load(columnPlace(column, part % 2 + group));
      right.push_back({four[0], four[1]});
      right.push_back({four[2], four[3]});
    }
    for (int64_t i = 0; i < tile.warpRows; ++i) {
      for (int64_t j = 0; j < tile.warpColumns; ++j) {
        int64_t at = 4 * (i * tile.warpColumns + j);
        llvm::copy(multiplyBytes(k, left[i], right[j], ArrayRef(sums).slice(at, 4)), sums.begin() + at);
      }
      if (hasColumnZero())
        for (int64_t n = 0; n < 4; ++n) {
          Num &sum = sums[4 * tile.warpRows * tile.warpColumns + 2 * i + n % 2];
          sum = multiplyFours(k, left[i][n], k.i32(0x01010101), sum);
        }
    }
  }
}

/// The warp's sums to shared memory, as [its rows][all columns, and the row's sum].
void IntegerTileEmitter::stage(const Nums &sums) {
  Index group = lane / 4, member = lane % 4;
  for (int64_t i = 0; i < 2 * tile.warpRows; ++i) {
    Index row = (group + 8 * i) * tile.stagedPitch();
    for (int64_t j = 0; j < tile.warpColumns; ++j) {
      const Num *two = &sums[4 * (i / 2 * tile.warpColumns + j) + i % 2 * 2];
      k.storeFew({k.asFloat(two[0]), k.asFloat(two[1])}, shared,
                 row + (warpColumn * tile.warpColumns + j) * 8 + member * 2);
    }
    if (!hasColumnZero())
      continue;
    Num ofRow = k.acrossThreads(sums[4 * tile.warpRows * tile.warpColumns + i], 4, [](Num x, Num y) { return x + y; });
    k.when((member < 1) & (warpColumn < 1), [&] { shared.set(k.asFloat(ofRow), row + tile.columns); });
  }
}

/// Epilogue and result of the rows in shared memory, `firstStaged`... of the tile: four columns a thread and step.
void IntegerTileEmitter::finishStaged(int64_t firstStaged) {
  constexpr int64_t kAtOnce = 4;
  Type i32 = k.b.getI32Type(), type = spec.resultType(k.b.getContext());
  bool isVector = !ShapedType::isDynamic(spec.n) && spec.n % kAtOnce == 0 && areBytes(type);
  int64_t across = tile.columns / kAtOnce;
  k.loop(k.thread, tile.stagedRows() * across, tile.threads(), [&](Index position) {
    Index within = position / across, inTile = position % across * kAtOnce;
    Index row = firstRow + within + firstStaged, column = firstColumn + inTile, line = within * tile.stagedPitch();
    k.when((row < rowsOfMatrix) & (column < numColumns), [&] {
      Index rowOfAll = matrix * rowsOfMatrix + row;
      Nums sums = k.load4(shared, line + inTile);
      Num ofRow = hasColumnZero() ? bitcast(shared(line + tile.columns), i32) : Num();
      for (Num &sum : sums)
        sum = bitcast(sum, i32);
      auto corrected = [&](int64_t n) {
        return hasColumnZero() ? sums[n] - columnZeroAt(column + n) * ofRow : sums[n];
      };
      if (isVector) {
        for (int64_t n = 0; n < kAtOnce; ++n)
          sums[n] = corrected(n);
        return store(finish(sums, matrix, rowOfAll, column), rowOfAll, column);
      }
      for (int64_t n = 0; n < kAtOnce; ++n)
        k.when(column + n < numColumns,
               [&] { store(finish({corrected(n)}, matrix, rowOfAll, column + n), rowOfAll, column + n); });
    });
  });
}

} // namespace

void emitIntegerTiles(OpBuilder &b, Location loc, const GpuIntegerSpec &spec, ArrayRef<Buffer> arguments) {
  auto emit = [&](const IntegerTile &tile) { IntegerTileEmitter(b, loc, spec, arguments, tile).emit(); };
  // The largest that leaves no processor without work and not much of itself empty, or the smallest.
  if (!ShapedType::isDynamic(spec.m) && !ShapedType::isDynamic(spec.n)) {
    for (const IntegerTile &tile : {kLarge, kMedium})
      if (4 * spec.m >= 3 * tile.rows &&
          llvm::divideCeil(spec.m, tile.rows) * llvm::divideCeil(spec.n, tile.columns) >= kProcessors)
        return emit(tile);
    return emit(kSmall);
  }
  if (spec.isBatched)
    return emit(kMedium);
  Code k(b, loc);
  Index rows = arguments.front().dim(0), columns = arguments.back().dim(1);
  Index blocks = ceilDiv(rows, kLarge.rows) * ceilDiv(columns, kLarge.columns);
  k.when((blocks >= kProcessors) & (rows * 4 >= 3 * kLarge.rows), [&] { emit(kLarge); }, [&] { emit(kSmall); });
}

} // namespace attn
