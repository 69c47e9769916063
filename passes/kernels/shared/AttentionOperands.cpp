#include "passes/kernels/shared/AttentionOperands.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;

namespace attn {

using Dim = AttentionOp::Dim;

HeadView viewHead(LaneBuilder &k, Value buffer, AffineMap map, Value batch, Value head) {
  HeadView view;
  view.flat = k.flatten(buffer);
  view.base = k.index(0);
  Value stride = k.index(1);
  // A view of a larger buffer says its strides, a dense one has them from its sizes.
  auto type = cast<MemRefType>(buffer.getType());
  SmallVector<int64_t> known;
  ValueRange given;
  if (!type.getLayout().isIdentity()) {
    known = type.getStridesAndOffset().first;
    auto metadata = memref::ExtractStridedMetadataOp::create(k.b, k.loc, buffer);
    given = metadata.getStrides();
    if (type.getStridesAndOffset().second != 0)
      view.base = metadata.getOffset();
  }
  for (int64_t n = type.getRank(); n-- > 0;) {
    if (!known.empty())
      stride = ShapedType::isDynamic(known[n]) ? given[n] : k.index(known[n]);
    AffineExpr result = n < map.getNumResults() ? map.getResult(n) : getAffineConstantExpr(0, map.getContext());
    if (auto dim = dyn_cast<AffineDimExpr>(result)) {
      if (dim.getPosition() == Dim::B || dim.getPosition() == Dim::H) {
        view.base = k.add(view.base, k.mul(dim.getPosition() == Dim::B ? batch : head, stride));
      } else {
        Value &known = view.strides[dim.getPosition()];
        known = known ? k.add(known, stride) : stride;
      }
    } else if (AttentionOp::getNamedDim(result) == unsigned(Dim::I)) {
      view.strides[Dim::I] = stride;
    } else if (auto group = dyn_cast<AffineBinaryOpExpr>(result)) {
      int64_t ratio = cast<AffineConstantExpr>(group.getRHS()).getValue();
      view.base = k.add(view.base, k.mul(k.div(head, k.index(ratio)), stride));
    }
    if (n && known.empty())
      stride = k.mul(stride, k.b.createOrFold<memref::DimOp>(k.loc, buffer, n));
  }
  return view;
}

Value getDimSize(LaneBuilder &k, const AttentionSpec &spec, ValueRange buffers, int64_t dim) {
  if (std::optional<int64_t> size = spec.getStaticSize(dim))
    return k.index(*size);
  for (auto [buffer, map] : llvm::zip_equal(buffers, spec.maps))
    for (auto [n, result] : llvm::enumerate(map.getResults())) {
      if (result == getAffineDimExpr(dim, result.getContext()))
        return k.b.createOrFold<memref::DimOp>(k.loc, buffer, n);
    }
  return {}; // canBuildAttention has seen to it that a map names the dimension
}

Value gatherRows(LaneBuilder &k, const HeadView &view, const QueryBlock &queries, Value offset, int64_t vector) {
  int64_t lane = vector * k.lanes;
  if (view.isContiguous(Dim::I)) {
    Value row = k.add(queries.first, lane);
    Value position = k.add(offset, row);
    return queries.mayClamp ? k.loadFirst(view.flat, position, k.sub(queries.numRows, row), k.lanes)
                            : k.loadVector(view.flat, position);
  }
  LaneBuilder::Values elements;
  for (int64_t n = 0; n < k.lanes; ++n)
    elements.push_back(k.load(view.flat, view.along(k, offset, Dim::I, queries.row(k, lane + n))));
  return vector::FromElementsOp::create(k.b, k.loc, VectorType::get({k.lanes}, view.elementType()), elements);
}

//===----------------------------------------------------------------------===//
// CaptureReader
//===----------------------------------------------------------------------===//

CaptureReader::CaptureReader(LaneBuilder &k, const HeadView &view, const QueryBlock &queries)
    : k(k), view(view), queries(queries) {
  if (view.has(Dim::J))
    return;
  for (int64_t v = 0; v < queries.vectors; ++v)
    hoisted.push_back(view.has(Dim::I) ? gatherRows(k, view, queries, view.base, v) : k.load(view.flat, view.base));
}

/// Keys that stand side by side in memory: rows of `count` keys, transposed.
LaneBuilder::Values CaptureReader::transposedTile(Value key, int64_t count, int64_t vector, bool isEdge,
                                                  Value numKeys) {
  Type element = view.elementType();
  // Bytes are widened first: shuffles of 32-bit lanes are single instructions.
  bool isNarrow = element.isInteger() && element.getIntOrFloatBitWidth() < 32;
  auto wide = VectorType::get({count}, k.b.getI32Type());
  LaneBuilder::Values rows;
  for (int64_t n = 0; n < k.lanes; ++n) {
    Value offset = view.along(k, view.base, Dim::I, queries.row(k, vector * k.lanes + n));
    offset = k.add(offset, key);
    Value row =
        isEdge ? k.loadFirst(view.flat, offset, k.sub(numKeys, key), count) : k.loadVector(view.flat, offset, count);
    rows.push_back(isNarrow ? arith::ExtUIOp::create(k.b, k.loc, wide, row) : row);
  }
  LaneBuilder::Values columns = k.transpose(rows);
  if (isNarrow)
    for (Value &column : columns)
      column = arith::TruncIOp::create(k.b, k.loc, VectorType::get({k.lanes}, element), column);
  return columns;
}

SmallVector<LaneBuilder::Values> CaptureReader::read(Value key, int64_t count, bool isEdge, Value numKeys) {
  SmallVector<LaneBuilder::Values> tile(count, hoisted);
  if (!hoisted.empty())
    return tile;
  if (view.has(Dim::I) && view.isContiguous(Dim::J)) {
    for (int64_t v = 0; v < queries.vectors; ++v)
      for (auto [r, column] : llvm::enumerate(transposedTile(key, count, v, isEdge, numKeys)))
        tile[r].push_back(column);
    return tile;
  }
  for (int64_t r = 0; r < count; ++r) {
    Value row = k.add(key, r);
    if (isEdge)
      row = k.min(row, k.sub(numKeys, k.index(1)));
    Value offset = view.along(k, view.base, Dim::J, row);
    if (!view.has(Dim::I)) {
      tile[r].assign(queries.vectors, k.load(view.flat, offset));
      continue;
    }
    for (int64_t v = 0; v < queries.vectors; ++v)
      tile[r].push_back(gatherRows(k, view, queries, offset, v));
  }
  return tile;
}

} // namespace attn
