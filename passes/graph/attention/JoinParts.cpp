#include "passes/graph/attention/JoinParts.h"

#include "passes/graph/Structured.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;

namespace attn {
namespace {

/// `part` as what is transposed in it.
Part lookThroughTransposes(Part part) {
  while (auto transpose = part.value.getDefiningOp<linalg::TransposeOp>()) {
    SmallVector<AffineExpr> exprs(part.map.getResults());
    for (auto [n, dim] : llvm::enumerate(transpose.getPermutation()))
      exprs[dim] = part.map.getResult(n);
    part.value = transpose.getInput();
    part.map = AffineMap::get(part.map.getNumDims(), 0, exprs, part.map.getContext());
  }
  return part;
}

/// `map`, of the space, as one of `loops`: dimensions of it, in their order.
AffineMap inLoops(AffineMap map, ArrayRef<AffineExpr> loops) {
  return map.compose(
      inverseAndBroadcastProjectedPermutation(AffineMap::get(map.getNumDims(), 0, loops, map.getContext())));
}

/// Whether `parts` are slices of one tensor, each behind the one before along dimension `dim`.
bool areSlices(ArrayRef<Part> parts, unsigned dim) {
  auto first = parts.front().value.getDefiningOp<tensor::ExtractSliceOp>();
  if (!first || first.getSourceType().getRank() != first.getType().getRank())
    return false;
  std::optional<int64_t> end = getConstantIntValue(first.getMixedOffsets()[dim]);
  for (const Part &part : parts) {
    auto slice = part.value.getDefiningOp<tensor::ExtractSliceOp>();
    if (!end || !slice || slice.getSource() != first.getSource() || !slice.hasUnitStride() ||
        part.map != parts.front().map || !isConstantIntValue(slice.getMixedOffsets()[dim], *end))
      return false;
    for (int64_t n = 0; n != first.getType().getRank(); ++n)
      if (n != dim && (slice.getMixedOffsets()[n] != first.getMixedOffsets()[n] ||
                       slice.getMixedSizes()[n] != first.getMixedSizes()[n]))
        return false;
    *end += part.size;
  }
  return true;
}

} // namespace

bool JoinedParts::hasProduct() const {
  return kind == Product || llvm::any_of(operands, [](const JoinedParts &operand) { return operand.hasProduct(); });
}

std::optional<JoinedParts> PartsJoiner::match(SmallVector<Part> parts) {
  constexpr unsigned kMaxSteps = 256; // what reads one tensor twice, again and again, would take forever
  if (++numSteps > kMaxSteps)
    return std::nullopt;
  if (parts.front().map.isFunctionOfDim(along)) {
    if (std::optional<JoinedParts> pointwise = matchPointwise(parts))
      return pointwise;
    if (std::optional<JoinedParts> product = matchProduct(parts))
      return product;
  }
  return matchOperand(std::move(parts));
}

std::optional<JoinedParts> PartsJoiner::matchOperand(SmallVector<Part> parts) {
  for (Part &part : parts)
    part = lookThroughTransposes(part);
  const Part &first = parts.front();
  auto isFirst = [&](const Part &part) { return part.value == first.value && part.map == first.map; };
  std::optional<unsigned> dim = first.map.getResultPosition(getAffineDimExpr(along, first.map.getContext()));
  if (!dim && llvm::all_of(parts, isFirst))
    return JoinedParts{JoinedParts::Same, parts, {}};
  if (dim && areSlices(parts, *dim))
    return JoinedParts{JoinedParts::Slice, parts, {}};
  Type element = getElementTypeOrSelf(first.value);
  if (!llvm::all_of(parts, [&](const Part &part) { return getElementTypeOrSelf(part.value) == element; }))
    return std::nullopt;
  // Where no part has all dimensions (a pixel's row and its column), each place would get an operand of its own.
  AffineMap map = mapOfCopy(parts);
  if (llvm::none_of(parts, [&](const Part &part) { return part.map.getNumResults() == map.getNumResults(); }))
    return std::nullopt;
  return JoinedParts{JoinedParts::Copy, parts, {}};
}

AffineMap PartsJoiner::mapOfCopy(ArrayRef<Part> parts) {
  MLIRContext *context = parts.front().map.getContext();
  SmallVector<AffineExpr> dims;
  for (unsigned n = 0; n != summed + 1; ++n)
    if (n == along || llvm::any_of(parts, [&](const Part &part) { return part.map.isFunctionOfDim(n); }))
      dims.push_back(getAffineDimExpr(n, context));
  return AffineMap::get(summed + 1, 0, dims, context);
}

std::optional<JoinedParts> PartsJoiner::matchPointwise(ArrayRef<Part> parts) {
  auto first = parts.front().value.getDefiningOp<linalg::GenericOp>();
  if (!first || !isPointwise(first) || !first.getIndexingMapsArray().back().isIdentity())
    return std::nullopt;
  JoinedParts joined{JoinedParts::Pointwise, SmallVector<Part>(parts), {}};
  for (const Part &part : parts) {
    auto op = part.value.getDefiningOp<linalg::GenericOp>();
    if (!op || !isPointwise(op) || part.map != parts.front().map || op.getNumDpsInputs() != first.getNumDpsInputs() ||
        !op.getIndexingMapsArray().back().isIdentity() || op.hasIndexSemantics() ||
        !OperationEquivalence::isRegionEquivalentTo(&op.getRegion(), &first.getRegion(),
                                                    OperationEquivalence::IgnoreLocations))
      return std::nullopt;
  }
  for (unsigned n = 0; n != first.getNumDpsInputs(); ++n) {
    SmallVector<Part> inputs;
    for (const Part &part : parts) {
      auto op = part.value.getDefiningOp<linalg::GenericOp>();
      OpOperand *input = op.getDpsInputOperand(n);
      AffineMap map = op.getMatchingIndexingMap(input);
      if (!isa<RankedTensorType>(input->get().getType()) || !map.isProjectedPermutation())
        return std::nullopt;
      inputs.push_back({input->get(), map.compose(part.map), part.size});
    }
    std::optional<JoinedParts> whole = match(std::move(inputs));
    if (!whole)
      return std::nullopt;
    joined.operands.push_back(std::move(*whole));
  }
  return joined;
}

std::optional<JoinedParts> PartsJoiner::matchProduct(ArrayRef<Part> parts) {
  // Both operands of each, read at the dimensions of the space.
  SmallVector<Part> operands[2];
  for (const Part &part : parts) {
    auto op = part.value.getDefiningOp<linalg::ContractOp>();
    if (!op || !isContraction(op) || op.getNumReductionLoops() != 1 || part.map != parts.front().map ||
        !isZeroFill(op.getDpsInits()[0]))
      return std::nullopt;
    AffineMap written = op.getIndexingMapsArray()[2];
    SmallVector<AffineExpr> places(op.getNumLoops(), getAffineDimExpr(summed, op.getContext()));
    for (auto [along, place] : llvm::zip_equal(written.getResults(), part.map.getResults()))
      places[cast<AffineDimExpr>(along).getPosition()] = place;
    for (unsigned side : {0, 1})
      operands[side].push_back({op->getOperand(side),
                                op.getIndexingMapsArray()[side].replaceDimsAndSymbols(places, {}, summed + 1, 0),
                                part.size});
  }
  for (unsigned side : {0, 1}) {
    const Part &shared = operands[side].front();
    auto isShared = [&](const Part &part) {
      return part.value == shared.value && part.map == shared.map && !part.map.isFunctionOfDim(along);
    };
    if (!llvm::all_of(operands[side], isShared))
      continue;
    std::optional<JoinedParts> other = matchOperand(operands[1 - side]);
    if (!other)
      return std::nullopt;
    JoinedParts joined{JoinedParts::Product, SmallVector<Part>(parts), {}};
    joined.operands.push_back({JoinedParts::Same, {shared}, {}});
    joined.operands.push_back(std::move(*other));
    return joined;
  }
  return std::nullopt;
}

SmallVector<OpFoldResult> PartsJoiner::sizesOf(AffineMap map) {
  return llvm::map_to_vector(map.getResults(),
                             [&](AffineExpr along) { return sizes[cast<AffineDimExpr>(along).getPosition()]; });
}

Part PartsJoiner::writeCopy(OpBuilder &b, Location loc, ArrayRef<Part> parts) {
  AffineMap map = mapOfCopy(parts);
  unsigned dim = *map.getResultPosition(b.getAffineDimExpr(along));
  Type element = getElementTypeOrSelf(parts.front().value);
  SmallVector<OpFoldResult> extents = sizesOf(map);
  Value whole = emptyTensor(b, loc, extents, element);
  int64_t offset = 0;
  for (const Part &part : parts) {
    Value copied = part.value;
    extents[dim] = b.getIndexAttr(part.size);
    if (part.map != map)
      copied = rearranged(b, loc, copied, extents, inLoops(part.map, map.getResults()));
    whole = insertAlong(b, loc, copied, whole, dim, b.getIndexAttr(offset));
    offset += part.size;
  }
  return {whole, map, offset};
}

Part PartsJoiner::write(OpBuilder &b, Location loc, const JoinedParts &joined) {
  const Part &first = joined.parts.front();
  int64_t size = 0;
  for (const Part &part : joined.parts)
    size += part.size;
  switch (joined.kind) {
  case JoinedParts::Same:
    return {first.value, first.map, size};
  case JoinedParts::Slice: {
    auto slice = first.value.getDefiningOp<tensor::ExtractSliceOp>();
    SmallVector<OpFoldResult> extents = slice.getMixedSizes();
    extents[*first.map.getResultPosition(b.getAffineDimExpr(along))] = b.getIndexAttr(size);
    Value whole = tensor::ExtractSliceOp::create(b, loc, slice.getSource(), slice.getMixedOffsets(), extents,
                                                 slice.getMixedStrides());
    return {whole, first.map, size};
  }
  case JoinedParts::Pointwise: {
    auto op = first.value.getDefiningOp<linalg::GenericOp>();
    SmallVector<Value> inputs;
    SmallVector<AffineMap> maps;
    for (const JoinedParts &operand : joined.operands) {
      Part whole = write(b, loc, operand);
      inputs.push_back(whole.value);
      maps.push_back(inLoops(whole.map, first.map.getResults()));
    }
    auto clone = [&](OpBuilder &body, Location, ValueRange args) { return cloneBody(body, *op.getBody(), args); };
    Value whole = elementwise(b, loc, sizesOf(first.map), getElementTypeOrSelf(first.value), inputs, maps, clone);
    return {whole, first.map, size};
  }
  case JoinedParts::Product: {
    Part shared = write(b, loc, joined.operands[0]);
    unsigned dim = *shared.map.getResultPosition(b.getAffineDimExpr(summed));
    sizes[summed] = tensor::getMixedSize(b, loc, shared.value, dim);
    Part other = write(b, loc, joined.operands[1]);
    SmallVector<AffineExpr> loops(first.map.getResults());
    loops.push_back(b.getAffineDimExpr(summed));
    Value whole = contraction(b, loc, sizesOf(first.map), getElementTypeOrSelf(first.value), shared.value, other.value,
                              {inLoops(shared.map, loops), inLoops(other.map, loops), inLoops(first.map, loops)});
    return {whole, first.map, size};
  }
  case JoinedParts::Copy:
    return writeCopy(b, loc, joined.parts);
  }
  llvm_unreachable("all kinds are written");
}

} // namespace attn
