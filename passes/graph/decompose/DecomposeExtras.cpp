#include "dialects/attn/TopKOp.h"
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

/// Whether `x` comes before `y` in descending order, NaN first.
static Value exceeds(OpBuilder &b, Location loc, Value x, Value y) {
  Value greater = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OGT, x, y);
  Value xIsNaN = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::UNO, x, x);
  Value yIsNumber = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::ORD, y, y);
  return arith::OrIOp::create(b, loc, greater, arith::AndIOp::create(b, loc, xIsNaN, yIsNumber));
}

/// `index` as an integer or index of type `type`.
static Value convertIndex(OpBuilder &b, Location loc, Value index, Type type) {
  return type.isIndex() ? index : Value(arith::IndexCastOp::create(b, loc, type, index));
}

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
  Value result = elementwise(b, loc, sizes, element, found, renumber(mapOf(b, from), to),
                             [&](OpBuilder &b, Location loc, ValueRange args) -> Value {
                               if (!attr.isIndex())
                                 return convertFloat(b, loc, args[0], element);
                               Value index = arith::IndexCastOp::create(b, loc, b.getIndexType(), args[0]);
                               return convertIndex(b, loc, index, element);
                             });
  return {result, mapOf(b, kept)};
}

Operand AttentionDecomposer::argmax(const Operand &source, ArrayRef<unsigned> kept, Type element) {
  Operand max = reduce(kept, compute, -kInfinity, source, [](OpBuilder &b, Location loc, ValueRange args) -> Value {
    return arith::MaximumFOp::create(b, loc, args[0], args[1]);
  });
  // The lowest key whose weight no weight exceeds; NaN exceeds.
  SmallVector<unsigned> loops(kept);
  loops.push_back(Dim::J);
  Value start = filledTensor(b, loc, pick(kept), b.getI64IntegerAttr(std::numeric_limits<int64_t>::max()));
  Value found =
      reduction(b, loc, {source.value, max.value}, {renumber(source.map, loops), renumber(max.map, loops)}, start,
                renumber(mapOf(b, kept), loops), [&](OpBuilder &b, Location loc, ValueRange args) -> Value {
                  Value isLess = exceeds(b, loc, args[1], args[0]);
                  Value j =
                      arith::IndexCastOp::create(b, loc, b.getI64Type(), linalg::IndexOp::create(b, loc, kept.size()));
                  Value lower = arith::MinSIOp::create(b, loc, args[2], j);
                  return arith::SelectOp::create(b, loc, isLess, args[2], lower);
                });
  return pointwise(
      kept, element, Operand{found, mapOf(b, kept)}, [&](OpBuilder &b, Location loc, ValueRange args) -> Value {
        return convertIndex(b, loc, arith::IndexCastOp::create(b, loc, b.getIndexType(), args[0]), element);
      });
}

Operand AttentionDecomposer::extra(ExtraAttr attr, Operand source, ArrayRef<unsigned> kept, RankedTensorType type) {
  Reduction kind = attr.getReduction();
  if (kind == Reduction::none)
    return source;
  // Reductions need every dimension and the type of the computation.
  if (source.map != mapOf(b, dims) || getElementTypeOrSelf(source.value) != compute)
    source = pointwise(dims, compute, source, [&](OpBuilder &b, Location loc, ValueRange args) {
      return convertFloat(b, loc, args[0], compute);
    });
  if (attr.isTopK())
    return topK(attr, source, kept, type);
  if (kind == Reduction::argmax)
    return argmax(source, kept, type.getElementType());
  if (kind == Reduction::max)
    return reduce(kept, compute, -kInfinity, source, [](OpBuilder &b, Location loc, ValueRange args) -> Value {
      return arith::MaximumFOp::create(b, loc, args[0], args[1]);
    });
  Operand sum = reduce(kept, compute, 0, source, [&](OpBuilder &b, Location loc, ValueRange args) -> Value {
    if (kind != Reduction::entropy)
      return arith::AddFOp::create(b, loc, args[0], args[1]);
    // 0 log 0 is 0
    Value product = arith::MulFOp::create(b, loc, args[0], math::LogOp::create(b, loc, args[0]));
    Value nought = floatConstant(b, loc, compute, 0);
    Value isZero = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, args[0], nought);
    return arith::SubFOp::create(b, loc, args[1], arith::SelectOp::create(b, loc, isZero, nought, product));
  });
  if (kind != Reduction::mean)
    return sum;
  Value count = arith::ConstantIndexOp::create(b, loc, 1);
  for (unsigned dim : dims)
    if (!llvm::is_contained(kept, dim))
      count = b.createOrFold<arith::MulIOp>(loc, count, getValueOrCreateConstantIndexOp(b, loc, sizes[dim]));
  return pointwise(kept, compute, sum, [&](OpBuilder &b, Location loc, ValueRange args) -> Value {
    Value n = arith::SIToFPOp::create(b, loc, compute, arith::IndexCastOp::create(b, loc, b.getI64Type(), count));
    return arith::DivFOp::create(b, loc, args[0], n);
  });
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
    value = pointwise(order, element, result, [&](OpBuilder &b, Location loc, ValueRange args) {
              return isa<FloatType>(element) ? convertFloat(b, loc, args[0], element) : args[0];
            }).value;
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
