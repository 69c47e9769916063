#include "passes/kernels/cpu/AttentionOperands.h"

#include "dialects/attn/CacheOps.h"
#include "dialects/attn/LoopOps.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

using namespace mlir;

namespace attn {

using Dim = AttentionOp::Dim;

/// Whether the buffer of `value` is its own: what a linalg op makes, and who
/// reads it takes slices or sizes.
static bool isOwnBuffer(Value value) {
  auto onlySliced = [](Value value) {
    return llvm::all_of(value.getUsers(), llvm::IsaPred<tensor::ExtractSliceOp, tensor::DimOp>);
  };
  if (!onlySliced(value))
    return false;
  while (value.getDefiningOp<tensor::ExpandShapeOp>() || value.getDefiningOp<tensor::CastOp>()) {
    value = value.getDefiningOp()->getOperand(0);
    if (!value.hasOneUse())
      return false;
  }
  auto made = value.getDefiningOp<linalg::LinalgOp>();
  if (!made || made.getNumDpsInits() != 1)
    return false;
  Value init = made.getDpsInits()[0];
  if (auto fill = init.getDefiningOp<linalg::FillOp>())
    init = fill.getOutputs()[0];
  return init.getDefiningOp<tensor::EmptyOp>() != nullptr;
}

/// The layout of a slice of what has a buffer of its own, or null.
static MemRefType getSliceType(Value value) {
  if (auto expand = value.getDefiningOp<tensor::ExpandShapeOp>()) {
    MemRefType source = getSliceType(expand.getSrc());
    if (!source)
      return {};
    FailureOr<MemRefType> type = memref::ExpandShapeOp::computeExpandedType(source, expand.getResultType().getShape(),
                                                                            expand.getReassociationIndices());
    return succeeded(type) ? *type : MemRefType();
  }
  auto slice = value.getDefiningOp<tensor::ExtractSliceOp>();
  if (!slice || !isOwnBuffer(slice.getSource()))
    return {};
  RankedTensorType source = slice.getSourceType();
  auto dense = MemRefType::get(source.getShape(), source.getElementType());
  MemRefType type = memref::SubViewOp::inferRankReducedResultType(
      slice.getType().getShape(), dense, slice.getMixedOffsets(), slice.getMixedSizes(), slice.getMixedStrides());
  auto [strides, offset] = type.getStridesAndOffset();
  return !strides.empty() && strides.back() == 1 ? type : MemRefType();
}

/// The dimension in which `value` will be the front of a buffer with more room:
/// a state of the entry, or what a loop gathers.
static std::optional<int64_t> getFrontDim(Value value) {
  if (auto append = value.getDefiningOp<KvAppendOp>())
    return append.getState() ? std::optional<int64_t>(append.getDim()) : std::nullopt;
  if (auto cast = value.getDefiningOp<tensor::CastOp>())
    value = cast.getSource();
  auto slice = value.getDefiningOp<tensor::ExtractSliceOp>();
  if (!slice || !slice.hasUnitStride() || slice.getSourceType().getRank() != slice.getType().getRank() ||
      !llvm::all_of(slice.getMixedOffsets(), [](OpFoldResult offset) { return isConstantIntValue(offset, 0); }))
    return std::nullopt;
  Value buffer = slice.getSource();
  while (auto insert = buffer.getDefiningOp<tensor::InsertSliceOp>())
    buffer = insert.getDest();
  auto grow = buffer.getDefiningOp<GrowOp>();
  return grow ? std::optional<int64_t>(grow.getDim()) : std::nullopt;
}

MemRefType getBufferType(Value operand) {
  auto type = cast<RankedTensorType>(operand.getType());
  if (std::optional<int64_t> dim = getFrontDim(operand))
    return getFrontType(type, *dim);
  MemRefType slice = getSliceType(operand);
  return slice ? slice : MemRefType::get(type.getShape(), type.getElementType());
}

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
