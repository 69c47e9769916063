#include "dialects/attn/TopKOp.h"
#include "passes/graph/Formulas.h"
#include "passes/graph/decompose/AttentionDecomposer.h"
#include "passes/graph/decompose/Decompose.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;

namespace attn {

using Operand = MappedTensor;
using Dim = AttentionOp::Dim;

Operand AttentionDecomposer::topK(ExtraAttr attr, const Operand &source, ArrayRef<unsigned> kept,
                                  RankedTensorType type) {
  int64_t count = type.getShape().back(), last = dims.size() - 1;
  SmallVector<int64_t> shape(cast<RankedTensorType>(source.value.getType()).getShape());
  shape.back() = count;
  auto op = TopKOp::create(b, loc, RankedTensorType::get(shape, compute), RankedTensorType::get(shape, b.getI64Type()),
                           source.value, arith::ConstantIndexOp::create(b, loc, count), last);
  // In the order of `kept` and of type `type`; the place's loop stands in the place of e.
  SmallVector<unsigned> from(dims), to(kept);
  from.back() = Dim::E;
  to.push_back(Dim::E);
  SmallVector<OpFoldResult> sizes = pick(kept);
  sizes.push_back(b.getIndexAttr(count));
  Type element = type.getElementType();
  Value found = attr.isIndex() ? op.getPositions() : op.getValues();
  Value result = elementwise(b, loc, sizes, element, found, renumber(mapOf(b, from), to), formula([&](ArrayRef<Num> x) {
                               return attr.isIndex() ? toNum(toIndex(x[0]), element) : convert(x[0], element);
                             }));
  return {result, mapOf(b, kept)};
}

Operand AttentionDecomposer::argmax(const Operand &source, ArrayRef<unsigned> kept, Type element) {
  Operand max = maximumOf(kept, source);
  // The lowest key whose weight no weight exceeds; NaN exceeds.
  SmallVector<unsigned> loops(kept);
  loops.push_back(Dim::J);
  Value start = filledTensor(b, loc, pick(kept), b.getI64IntegerAttr(std::numeric_limits<int64_t>::max()));
  Value found = reduction(b, loc, {source.value, max.value}, {renumber(source.map, loops), renumber(max.map, loops)},
                          start, renumber(mapOf(b, kept), loops), formula([&](Code &k, ArrayRef<Num> x) {
                            Mask isLess = exceeds(x[1], x[0]);
                            Num j = toNum(loopIndex(k, kept.size()), k.b.getI64Type());
                            return select(isLess, x[2], minimum(x[2], j));
                          }));
  return pointwise(kept, element, Operand{found, mapOf(b, kept)},
                   formula([&](ArrayRef<Num> x) { return toNum(toIndex(x[0]), element); }));
}

Operand AttentionDecomposer::extra(ExtraAttr attr, Operand source, ArrayRef<unsigned> kept, RankedTensorType type) {
  Reduction kind = attr.getReduction();
  if (kind == Reduction::none)
    return source;
  // Reductions need every dimension and the type of the computation.
  if (source.map != mapOf(b, dims) || getElementTypeOrSelf(source.value) != compute)
    source = pointwise(dims, compute, source, formula([&](ArrayRef<Num> x) { return convert(x[0], compute); }));
  if (attr.isTopK())
    return topK(attr, source, kept, type);
  if (kind == Reduction::argmax)
    return argmax(source, kept, type.getElementType());
  if (kind == Reduction::max)
    return maximumOf(kept, source);
  Operand sum = reduce(kept, compute, 0, source, formula([&](Code &k, ArrayRef<Num> x) {
                         if (kind != Reduction::entropy)
                           return x[0] + x[1];
                         Num product = x[0] * attn::log(x[0]);
                         return x[1] - select(x[0] == 0.0, k.number(compute, 0.0), product); // 0 log 0 is 0
                       }));
  if (kind != Reduction::mean)
    return sum;
  Value count = arith::ConstantIndexOp::create(b, loc, 1);
  for (unsigned dim : dims)
    if (!llvm::is_contained(kept, dim))
      count = b.createOrFold<arith::MulIOp>(loc, count, getValueOrCreateConstantIndexOp(b, loc, sizes[dim]));
  return pointwise(kept, compute, sum, formula([&](Code &k, ArrayRef<Num> x) {
                     return x[0] / convert(toNum(k.asIndex(count), k.b.getI64Type()), compute);
                   }));
}

/// `result` as a tensor of type `type` that is written through `map`.
Value AttentionDecomposer::finish(const Operand &result, Type type, AffineMap map) {
  auto tensorType = cast<RankedTensorType>(type);
  Type element = tensorType.getElementType();
  Value value = result.value;
  SmallVector<unsigned> order;
  for (AffineExpr expr : map.getResults())
    if (std::optional<unsigned> dim = AttentionOp::getNamedDim(expr))
      order.push_back(*dim);
  Type have = getElementTypeOrSelf(value);
  if (result.map != mapOf(b, order) || (have != element && isa<FloatType>(element)))
    value = pointwise(order, element, result,
                      formula([&](ArrayRef<Num> x) { return isa<FloatType>(element) ? convert(x[0], element) : x[0]; }))
                .value;
  return restoreUnitDims(b, loc, value, tensorType, map);
}

/// Extra result `n`, of its type, from what its source holds.
Value AttentionDecomposer::finishExtra(unsigned n, const Operand &source) {
  ExtraAttr attr = op.getExtra(n);
  AffineMap map = op.getExtraMap(n);
  auto type = cast<RankedTensorType>(op.getExtraResults()[n].getType());
  SmallVector<unsigned> kept;
  for (AffineExpr expr : map.getResults())
    if (std::optional<unsigned> dim = AttentionOp::getNamedDim(expr))
      kept.push_back(*dim);
  if (attr.getSource() == ExtraSource::lse)
    return finish(source, type, map);
  Operand reduced = extra(attr, source, kept, type);
  return attr.isTopK() ? restoreUnitDims(b, loc, reduced.value, type, map) : finish(reduced, type, map);
}

SmallVector<Value> AttentionDecomposer::reduceExtras() {
  AttentionParts parts = op.getParts();
  unsigned firstExtra = op.getNumOperands() + 1;
  SmallVector<int64_t> shape;
  for (OpFoldResult size : pick(dims))
    shape.push_back(getConstantIntValue(size).value_or(ShapedType::kDynamic));
  // Extra results of the new op: as they are, or whole once for each source.
  SmallVector<unsigned> places;
  SmallVector<Attribute> extras;
  SmallVector<Type> types{parts.types.front()};
  SmallVector<AffineMap> maps(ArrayRef(parts.maps).take_front(firstExtra));
  for (unsigned n = 0; n != op.getExtraResults().size(); ++n) {
    ExtraAttr attr = op.getExtra(n);
    bool isWhole = attr.getReduction() == Reduction::none;
    attr = ExtraAttr::get(op.getContext(), attr.getSource(), Reduction::none);
    unsigned place = 0;
    while (place != extras.size() && (isWhole || extras[place] != attr || maps[firstExtra + place] != mapOf(b, dims)))
      ++place;
    places.push_back(place);
    if (place == extras.size()) {
      extras.push_back(attr);
      types.push_back(isWhole ? op.getExtraResults()[n].getType() : RankedTensorType::get(shape, compute));
      maps.push_back(isWhole ? op.getExtraMap(n) : mapOf(b, dims));
    }
  }
  parts.extras = std::move(extras);
  parts.types = std::move(types);
  parts.maps = std::move(maps);
  auto full = AttentionOp::create(b, loc, parts);
  for (auto [to, from] : llvm::zip_equal(full->getRegions(), op->getRegions()))
    to.takeBody(from);
  SmallVector<Value> results{full.getResult()};
  for (auto [n, place] : llvm::enumerate(places)) {
    Value value = full.getExtraResults()[place];
    bool isWhole = op.getExtra(n).getReduction() == Reduction::none;
    results.push_back(isWhole ? value : finishExtra(n, {value, full.getExtraMap(place)}));
  }
  return results;
}

AttentionOp reduceExtraResults(AttentionOp op, RewriterBase &rewriter) {
  auto isReduced = [](Attribute extra) { return cast<ExtraAttr>(extra).getReduction() != Reduction::none; };
  if (llvm::none_of(op.getExtras(), isReduced))
    return op;
  OpBuilder::InsertionGuard guard(rewriter);
  rewriter.setInsertionPoint(op);
  SmallVector<Value> results = AttentionDecomposer(op, rewriter).reduceExtras();
  auto full = results.front().getDefiningOp<AttentionOp>();
  rewriter.replaceOp(op, results);
  return full;
}

} // namespace attn
