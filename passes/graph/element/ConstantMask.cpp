#include "passes/graph/element/ConstantMask.h"

#include "llvm/Support/MathExtras.h"
#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

namespace attn {
namespace {

/// What one side of the rows' runs is: as far as the diagonal plus an offset,
/// or as far as one column; nothing where all agree with the table's edge.
struct Side {
  std::optional<int64_t> offset, column;
};

/// The columns [first, last) of a row that are set.
struct Run {
  int64_t first = 0, last = 0;
  bool isEmpty() const { return first == last; }
};

/// Reads a side off the rows that do not reach the edge of the table.
Side readSide(const std::vector<Run> &runs, int64_t edge, bool isUpper) {
  Side side;
  bool sameOffset = true, sameColumn = true;
  int64_t seen = 0, offset = 0, column = 0;
  for (int64_t row = 0, rows = runs.size(); row != rows; ++row) {
    int64_t end = isUpper ? runs[row].last : runs[row].first;
    if (runs[row].isEmpty() || end == edge)
      continue;
    if (seen++ == 0) {
      column = end;
      offset = end - row;
    }
    sameColumn &= end == column;
    sameOffset &= end - row == offset;
  }
  if (seen == 0)
    return side;
  if (sameColumn)
    side.column = column;
  if (sameOffset)
    side.offset = offset;
  return side;
}

} // namespace

bool TableBand::contains(int64_t row, int64_t column) const {
  if ((upTo && column >= *upTo) || (from && column < *from))
    return false;
  if (prefix && column < *prefix)
    return true;
  return (!below || column <= row + *below) && (!above || column >= row - *above);
}

std::optional<TableBand> findBand(int64_t rows, int64_t columns, llvm::function_ref<bool(int64_t, int64_t)> isSet) {
  if (rows < 1 || columns < 1)
    return std::nullopt;
  std::vector<Run> runs(rows);
  for (int64_t row = 0; row != rows; ++row) {
    Run &run = runs[row];
    while (run.first != columns && !isSet(row, run.first))
      ++run.first;
    run.last = run.first;
    while (run.last != columns && isSet(row, run.last))
      ++run.last;
  }
  auto isExact = [&](const TableBand &band) {
    for (int64_t row = 0; row != rows; ++row)
      for (int64_t column = 0; column != columns; ++column)
        if (band.contains(row, column) != isSet(row, column))
          return false;
    return !band.isEverything();
  };
  Side upper = readSide(runs, columns, /*isUpper=*/true), lower = readSide(runs, 0, /*isUpper=*/false);
  // A column before a diagonal: a table of one row has no diagonal.
  auto choices = [&](const Side &side) {
    std::vector<Side> all;
    if (side.column)
      all.push_back({std::nullopt, side.column});
    if (side.offset && rows > 1)
      all.push_back({side.offset, std::nullopt});
    if (all.empty())
      all.emplace_back();
    return all;
  };
  for (const Side &high : choices(upper))
    for (const Side &low : choices(lower)) {
      TableBand band;
      band.upTo = high.column;
      band.from = low.column;
      if (high.offset)
        band.below = *high.offset - 1;
      if (low.offset)
        band.above = -*low.offset;
      if (isExact(band))
        return band;
    }
  // A prefix: the first rows end at one column, the later ones at the diagonal.
  const auto *inner = &runs.front();
  for (const Run &run : runs)
    if (!run.isEmpty() && run.last != columns)
      inner = &run;
  TableBand band;
  band.prefix = runs.front().last;
  band.below = inner->last - 1 - (inner - runs.data());
  return rows > 1 && isExact(band) ? std::optional(band) : std::nullopt;
}

//===----------------------------------------------------------------------===//
// Blocks
//===----------------------------------------------------------------------===//

/// What kernels skip as a whole, and how many entries they look through in the
/// time that such a tile takes.
static constexpr int64_t kTileRows = 32, kTileColumns = 8, kEntriesOfTile = 256;
/// A list is looked through once for each so many keys.
static constexpr int64_t kColumnsOfSearch = 256;

std::optional<BlockGrid> findBlocks(int64_t planes, int64_t rows, int64_t columns, llvm::ArrayRef<uint8_t> visible) {
  if (planes < 1 || rows < 1 || columns < 1)
    return std::nullopt;
  auto rowAt = [&](int64_t plane, int64_t row) { return visible.data() + (plane * rows + row) * columns; };
  // Where a row or a column differs from the one before, a block begins.
  BlockGrid grid{0, 0, 0};
  int64_t hidden = 0, tiles = 0;
  for (int64_t plane = 0; plane != planes; ++plane)
    for (int64_t row = 0; row != rows; ++row) {
      const uint8_t *entries = rowAt(plane, row);
      if (row && std::memcmp(entries, rowAt(plane, row - 1), columns) == 0)
        continue;
      grid.rows = std::gcd(grid.rows, row);
      for (int64_t column = 1; column != columns && grid.columns != 1; ++column)
        if (entries[column] != entries[column - 1])
          grid.columns = std::gcd(grid.columns, column);
    }
  grid.rows = grid.rows ? grid.rows : rows;
  grid.columns = grid.columns ? grid.columns : columns;
  for (int64_t plane = 0; plane != planes; ++plane) {
    for (int64_t row = 0; row < rows; row += grid.rows) {
      int64_t listed = 0;
      for (int64_t column = 0; column < columns; column += grid.columns)
        listed += rowAt(plane, row)[column];
      grid.listed = std::max(grid.listed, listed);
    }
    for (int64_t row = 0; row < rows; row += kTileRows)
      for (int64_t column = 0; column < columns; column += kTileColumns, ++tiles) {
        bool isHidden = true;
        int64_t width = std::min(kTileColumns, columns - column);
        for (int64_t n = row, end = std::min(row + kTileRows, rows); n < end && isHidden; ++n)
          isHidden = std::memchr(rowAt(plane, n) + column, 1, width) == nullptr;
        hidden += isHidden;
      }
  }
  int64_t lists = llvm::divideCeil(rows, grid.rows);
  int64_t searches =
      llvm::divideCeil(columns, kColumnsOfSearch) * (llvm::divideCeil(rows, kTileRows) + lists) * grid.listed;
  bool isShort = lists * grid.listed <= rows * columns / 8;
  if (2 * hidden < tiles || searches * planes > hidden * kEntriesOfTile / 4 || !isShort)
    return std::nullopt;
  return grid;
}

} // namespace attn
