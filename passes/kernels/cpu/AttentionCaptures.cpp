#include "passes/kernels/cpu/AttentionCaptures.h"

#include "builders/Lanes.h"

using namespace mlir;

namespace attn {

using Dim = AttentionOp::Dim;

Vec gatherRows(const OperandView &view, const QueryBlock &queries, const Index &offset, int64_t vector) {
  int64_t lanes = queries.lanes, lane = vector * lanes;
  if (view.isContiguous(Dim::I)) {
    Index row = queries.first + lane, position = offset + row;
    return queries.mayClamp ? view.flat.first(queries.numRows - row, lanes, position)
                            : view.flat.vector(lanes, position);
  }
  return vectorOf(llvm::map_to_vector(
      llvm::seq(lane, lane + lanes), [&](int64_t n) { return view.flat(view.along(offset, Dim::I, queries.row(n))); }));
}

CaptureReader::CaptureReader(const OperandView &view, const QueryBlock &queries) : view(view), queries(queries) {
  if (view.has(Dim::J))
    return;
  for (int64_t v = 0; v < queries.vectors; ++v)
    hoisted.push_back(view.has(Dim::I) ? Term(gatherRows(view, queries, view.base, v)) : view.flat(view.base));
}

/// Keys that stand side by side in memory: rows of `count` keys, transposed.
SmallVector<Vec> CaptureReader::transposedTile(const Index &key, int64_t count, int64_t vector, bool isEdge,
                                               const Index &numKeys) const {
  Type element = view.elementType(), word = key.builder().getI32Type();
  // Bytes are widened first: shuffles of 32-bit lanes are single instructions.
  bool isNarrow = element.isInteger() && element.getIntOrFloatBitWidth() < 32;
  SmallVector<Vec> rows;
  for (int64_t n = 0; n < queries.lanes; ++n) {
    Index offset = view.along(view.base, Dim::I, queries.row(vector * queries.lanes + n)) + key;
    Vec row = isEdge ? view.flat.first(numKeys - key, count, offset) : view.flat.vector(count, offset);
    rows.push_back(isNarrow ? convertUnsigned(row, word) : row);
  }
  SmallVector<Vec> columns = transpose(rows);
  if (isNarrow)
    for (Vec &column : columns)
      column = convert(column, element);
  return columns;
}

CaptureReader::Tile CaptureReader::read(const Index &key, int64_t count, bool isEdge, const Index &numKeys) const {
  Tile tile(count, hoisted);
  if (!hoisted.empty())
    return tile;
  if (transposes()) {
    for (int64_t v = 0; v < queries.vectors; ++v)
      for (auto [r, column] : llvm::enumerate(transposedTile(key, count, v, isEdge, numKeys)))
        tile[r].push_back(column);
    return tile;
  }
  for (int64_t r = 0; r < count; ++r) {
    Index row = key + r;
    if (isEdge)
      row = minimum(row, numKeys - 1);
    Index offset = view.along(view.base, Dim::J, row);
    if (!view.has(Dim::I)) {
      tile[r].assign(queries.vectors, view.flat(offset));
      continue;
    }
    for (int64_t v = 0; v < queries.vectors; ++v)
      tile[r].push_back(gatherRows(view, queries, offset, v));
  }
  return tile;
}

} // namespace attn
