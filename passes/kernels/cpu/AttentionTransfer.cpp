#include "passes/kernels/cpu/AttentionTransfer.h"

#include "passes/kernels/cpu/AttentionCaptures.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace attn {

using Dim = AttentionOp::Dim;

BlockTransfer::BlockTransfer(AttentionCode &k, const AttentionScratch &scratch, const BlockPlace &place, int64_t most)
    : k(k), spec(k.spec), lanes(k.lanes), keyWidth(*spec.getStaticSize(Dim::D)),
      valueWidth(*spec.getStaticSize(Dim::E)), paddedValueWidth(llvm::alignTo(valueWidth, lanes)),
      isNarrow(spec.hasNarrowProducts), scratch(scratch), place(place),
      query(k.view(spec.query, place.batch, place.head)), result(k.view(spec.result, place.batch, place.head)) {
  Index rows = k.size(Dim::I);
  std::optional<int64_t> known = getConstantIntValue(rows.value());
  queries = {maximum(minimum(place.begin, rows - place.vectors * lanes), 0), rows, /*vectors=*/1, lanes,
             /*mayClamp=*/!known || *known < most * lanes};
}

/// `body` for each vector of queries. A loop: a transpose of its own for each vector would be a third of what a small
/// attention takes to compile.
void BlockTransfer::forVectors(llvm::function_ref<void(Index vector)> body) {
  if (getConstantIntValue(place.vectors.value()) == 1)
    return body(k.index(0));
  k.loop(0, place.vectors, 1, [&](Index vector) { body(vector); });
}

//===----------------------------------------------------------------------===//
// Queries
//===----------------------------------------------------------------------===//

void BlockTransfer::loadQueries(const Num &by) {
  if (!spec.formula().hasKey)
    return;
  factor = by;
  int64_t columns = isNarrow ? keyWidth / 2 : keyWidth; // of the scratch
  if (!query.isContiguous(Dim::D) || query.isContiguous(Dim::I)) {
    k.loop(0, columns, 1, [&](Index column) {
      Index d = isNarrow ? column * 2 : column;
      forVectors([&](Index v) {
        QueryBlock own = queries;
        own.first = queries.first + v * lanes;
        auto gather = [&](const Index &d) {
          return k.toF32(gatherRows(query, own, query.along(query.base, Dim::D, d), /*vector=*/0));
        };
        Vec elements = gather(d);
        storeQuery(isNarrow ? k.pack(elements, gather(d + 1)) : elements, column, v);
      });
    });
    return;
  }
  // Whole tiles: the last one reaches back where the columns are no multiple.
  if (columns < lanes)
    return loadQueryTile(k.index(0), columns);
  k.loop(0, columns, lanes,
         [&](Index column) { loadQueryTile(columns % lanes ? minimum(column, columns - lanes) : column, lanes); });
}

void BlockTransfer::loadQueryTile(const Index &column, int64_t width) {
  int64_t perColumn = isNarrow ? 2 : 1;
  forVectors([&](Index v) {
    Vecs rows;
    for (int64_t n = 0; n < lanes; ++n) {
      Index row = queries.row(v * lanes + n);
      Index offset = query.along(query.base, Dim::I, row) + column * perColumn;
      Vec loaded = query.flat.first(perColumn * width, perColumn * lanes, offset);
      rows.push_back(isNarrow ? bitcast(loaded, k.f32Type()) : k.toF32(loaded));
    }
    Vecs columns = transpose(rows);
    for (int64_t n = 0; n < width; ++n)
      storeQuery(columns[n], column + n, v);
  });
}

/// Column `d` of a vector of queries, as the scores read it.
void BlockTransfer::storeQuery(Vec raw, const Index &d, const Index &vector) {
  if (factor.value())
    raw = raw * k.splat(factor);
  if (spec.isTanh()) {
    scratch.rawQueries.setVector(raw, at(d, vector));
    raw = expTwice(raw);
  }
  scratch.queries.setVector(raw, at(d, vector));
}

//===----------------------------------------------------------------------===//
// Results
//===----------------------------------------------------------------------===//

void BlockTransfer::storeResult() {
  // Row by row into the scratch of the weights, which are used up.
  k.loop(0, paddedValueWidth, lanes, [&](Index e) {
    forVectors([&](Index v) {
      Vec factor = scratch.factors.value() ? scratch.factors.vector(lanes, v * lanes) : Vec();
      Vecs columns;
      for (int64_t n = 0; n < lanes; ++n) {
        Vec column = scratch.results.vector(lanes, at(e + n, v));
        columns.push_back(factor.value() ? column * factor : column);
      }
      Index first = e + v * (lanes * paddedValueWidth);
      for (auto [n, row] : llvm::enumerate(transpose(columns)))
        scratch.weights.setVector(row, first + n * paddedValueWidth);
    });
  });
  k.loop(place.begin, minimum(place.end, queries.numRows), 1, [&](Index row) { storeRow(row); });
}

void BlockTransfer::storeRow(const Index &row) {
  const Buffer &rows = scratch.weights;
  Type type = result.elementType();
  Index source = (row - queries.first) * paddedValueWidth, target = result.along(result.base, Dim::I, row);
  if (!result.isContiguous(Dim::E)) {
    k.loop(0, valueWidth, 1, [&](Index e) {
      Num element = convert(rows(source + e), type);
      result.flat.set(element, result.along(target, Dim::E, e));
    });
    return;
  }
  auto chunk = [&](int64_t e) { return convert(rows.vector(lanes, source + e), type); };
  int64_t whole = valueWidth / lanes * lanes;
  for (int64_t e = 0; e < whole; e += lanes)
    result.flat.setVector(chunk(e), target + e);
  if (valueWidth < lanes)
    result.flat.setFirst(chunk(0), valueWidth, target);
  else if (whole < valueWidth)
    result.flat.setVector(chunk(valueWidth - lanes), target + (valueWidth - lanes));
}

} // namespace attn
