#include "passes/graph/element/Element.h"

#include "passes/graph/Structured.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

using namespace mlir;

namespace attn {
namespace {

/// Maps are equal only where they name as many dimensions: all name as many.
constexpr unsigned kMostPlaces = 1u << 20;

AffineMap placesMap(ArrayRef<AffineExpr> places, MLIRContext *context) {
  return AffineMap::get(kMostPlaces, 0, places, context);
}

/// Where an operand is read through `map` at these loops.
AffineMap compose(AffineMap map, AffineMap loops) {
  SmallVector<AffineExpr> places;
  for (AffineExpr expr : map.getResults())
    places.push_back(expr.replaceDims(loops.getResults()));
  return placesMap(places, map.getContext());
}

/// The dimensions of `dims` that are not of size 1.
SmallVector<int64_t> properDims(RankedTensorType type, ArrayRef<int64_t> dims) {
  return llvm::filter_to_vector(dims, [&](int64_t dim) { return type.getDimSize(dim) != 1; });
}

/// Whether `op` computes each element of its one result on its own, also from the one that it replaces.
bool isElementwise(Operation *op) {
  auto linalgOp = dyn_cast<linalg::LinalgOp>(op);
  return linalgOp && linalgOp.hasPureTensorSemantics() && linalgOp.getNumDpsInits() == 1 &&
         linalgOp.getNumParallelLoops() == linalgOp.getNumLoops() &&
         linalgOp.getMatchingIndexingMap(linalgOp.getDpsInitOperand(0)).isPermutation();
}

} // namespace

bool ElementReader::Inner::operator==(const Inner &other) const {
  return op == other.op && number == other.number && from == other.from && offset == other.offset &&
         width == other.width && divisor == other.divisor && size == other.size;
}

ElementReader::ElementReader(Value root)
    : context(root.getContext()), rank(cast<RankedTensorType>(root.getType()).getRank()),
      shape(cast<RankedTensorType>(root.getType()).getShape()) {}

ElementReader::ElementReader(AttentionOp root) : context(root.getContext()), rank(AttentionOp::kDims) {}

Element ElementReader::at(Value value) {
  SmallVector<AffineExpr> places;
  for (unsigned n = 0; n != rank; ++n)
    places.push_back(getAffineDimExpr(n, context));
  return at(value, places);
}

Element ElementReader::at(Value tensor, ArrayRef<AffineExpr> places) { return {tensor, placesMap(places, context)}; }

AffineExpr ElementReader::inner(const Inner &place) {
  auto *known = llvm::find(inners, place);
  unsigned number = rank + (known - inners.begin());
  if (known == inners.end())
    inners.push_back(place);
  return getAffineDimExpr(number, context);
}

const ElementReader::Inner *ElementReader::getInner(AffineExpr place) const {
  auto dim = dyn_cast<AffineDimExpr>(place);
  return dim && dim.getPosition() >= rank ? &inners[dim.getPosition() - rank] : nullptr;
}

Element ElementReader::somewhere(Value tensor) {
  SmallVector<AffineExpr> places;
  for (unsigned n = 0; n != cast<RankedTensorType>(tensor.getType()).getRank(); ++n)
    places.push_back(inner({tensor.getDefiningOp(), n, {}}));
  return at(tensor, places);
}

Element ElementReader::scalar(const Element &element, Value value) {
  // What stands outside of all bodies is the same at each point.
  bool isInside = isa_and_nonnull<linalg::LinalgOp, AttentionOp>(value.getParentRegion()->getParentOp());
  return {value, isInside ? element.at : placesMap({}, context)};
}

Element ElementReader::slice(tensor::ExtractSliceOp op, const Element &element) {
  llvm::SmallBitVector dropped = op.getDroppedDims();
  ArrayRef<AffineExpr> at = element.at.getResults();
  SmallVector<OpFoldResult> strides = op.getMixedStrides();
  SmallVector<AffineExpr> places;
  for (auto [dim, offset] : llvm::enumerate(op.getMixedOffsets())) {
    AffineExpr place = getAffineConstantExpr(0, context);
    if (!dropped.test(dim)) {
      std::optional<int64_t> stride = getConstantIntValue(strides[dim]);
      place = stride ? at.front() * *stride : inner({op, static_cast<unsigned>(dim), placesMap(at.front(), context)});
      at = at.drop_front();
    }
    std::optional<int64_t> start = getConstantIntValue(offset);
    places.push_back(start ? place + *start : place + inner({nullptr, 0, {}, offset}));
  }
  return this->at(op.getSource(), places);
}

std::optional<AffineExpr> ElementReader::joinDigits(AffineExpr row, AffineExpr column) {
  const Inner *major = getInner(row), *minor = getInner(column);
  if (!major || !minor || !major->divisor || !minor->size || major->from != minor->from ||
      !(*major->divisor == *minor->divisor * *minor->size))
    return std::nullopt;
  if (!major->size && minor->divisor->isOne())
    return major->from.getResult(0);
  Inner joined;
  joined.from = major->from;
  joined.divisor = minor->divisor;
  if (major->size)
    joined.size = *major->size * *minor->size;
  return inner(joined);
}

AffineExpr ElementReader::join(AffineExpr row, AffineExpr column, const Extent &width) {
  if (std::optional<AffineExpr> digits = joinDigits(row, column))
    return *digits;
  Inner joined;
  joined.from = placesMap({row, column}, context);
  joined.width = width;
  return inner(joined);
}

SmallVector<AffineExpr> ElementReader::cut(AffineExpr whole, ArrayRef<Extent> extents) {
  if (extents.size() == 1)
    return {whole};
  if (const Inner *joined = getInner(whole); joined && joined->width) {
    AffineExpr row = joined->from.getResult(0), column = joined->from.getResult(1);
    Extent width = *joined->width, last = extents.back();
    SmallVector<Extent> rest(extents.drop_back());
    if (width == last) {
      SmallVector<AffineExpr> parts = cut(row, rest);
      parts.push_back(column);
      return parts;
    }
    if (std::optional<Extent> rows = last.dividedBy(width)) {
      rest.push_back(*rows);
      SmallVector<AffineExpr> parts = cut(row, rest);
      parts.back() = join(parts.back(), column, width);
      return parts;
    }
    if (std::optional<Extent> columns = width.dividedBy(last)) {
      SmallVector<AffineExpr> minor = cut(column, {*columns, last});
      SmallVector<AffineExpr> parts = cut(join(row, minor.front(), *columns), rest);
      parts.push_back(minor.back());
      return parts;
    }
  }
  SmallVector<AffineExpr> parts(extents.size());
  Extent divisor(1);
  for (size_t n = extents.size(); n-- > 0; divisor = divisor * extents[n]) {
    Inner digit;
    digit.from = placesMap(whole, context);
    digit.divisor = divisor;
    if (n != 0)
      digit.size = extents[n];
    parts[n] = inner(digit);
  }
  return parts;
}

Element ElementReader::expand(tensor::ExpandShapeOp op, const Element &element) {
  SmallVector<AffineExpr> places;
  for (const ReassociationIndices &group : op.getReassociationIndices()) {
    AffineExpr place;
    for (int64_t dim : properDims(op.getResultType(), group)) {
      AffineExpr column = element.at.getResult(dim);
      place = place ? join(place, column, Extent::of(op.getResult(), dim)) : column;
    }
    places.push_back(place ? place : getAffineConstantExpr(0, context));
  }
  return at(op.getSrc(), places);
}

Element ElementReader::collapse(tensor::CollapseShapeOp op, const Element &element) {
  SmallVector<AffineExpr> places(op.getSrcType().getRank(), getAffineConstantExpr(0, context));
  for (auto [n, group] : llvm::enumerate(op.getReassociationIndices())) {
    SmallVector<int64_t> dims = properDims(op.getSrcType(), group);
    if (dims.empty())
      continue;
    SmallVector<Extent> extents;
    for (int64_t dim : dims)
      extents.push_back(Extent::of(op.getSrc(), dim));
    for (auto [dim, place] : llvm::zip_equal(dims, cut(element.at.getResult(n), extents)))
      places[dim] = place;
  }
  return at(op.getSrc(), places);
}

std::optional<Element> ElementReader::step(const Element &element) {
  if (auto argument = dyn_cast<BlockArgument>(element.value)) {
    Operation *owner = argument.getOwner()->getParentOp();
    if (auto op = dyn_cast_or_null<linalg::LinalgOp>(owner)) {
      OpOperand *operand = op.getMatchingOpOperand(argument);
      if (!isElementwise(op))
        return std::nullopt;
      return Element{operand->get(), compose(op.getMatchingIndexingMap(operand), element.at)};
    }
    auto op = dyn_cast_or_null<AttentionOp>(owner);
    unsigned number = argument.getArgNumber();
    if (!op || number == 0 || number > op.getCaptures().size())
      return std::nullopt;
    return Element{op.getCaptures()[number - 1], compose(op.getCaptureMap(number - 1), element.at)};
  }
  Operation *op = element.getOp();
  if (auto cast = dyn_cast<tensor::CastOp>(op); cast && isa<RankedTensorType>(cast.getSource().getType()))
    return Element{cast.getSource(), element.at};
  if (auto expanded = dyn_cast<tensor::ExpandShapeOp>(op))
    return expand(expanded, element);
  if (auto collapsed = dyn_cast<tensor::CollapseShapeOp>(op))
    return collapse(collapsed, element);
  if (auto extracted = dyn_cast<tensor::ExtractSliceOp>(op); extracted && followsSlices)
    return slice(extracted, element);
  if (!isElementwise(op))
    return std::nullopt;
  auto pointwise = cast<linalg::LinalgOp>(op);
  AffineMap written = pointwise.getMatchingIndexingMap(pointwise.getDpsInitOperand(0));
  Value yielded = pointwise.getBlock()->getTerminator()->getOperand(0);
  return scalar({yielded, compose(inversePermutation(written), element.at)}, yielded);
}

Element ElementReader::resolve(Element element, llvm::function_ref<void(Value)> passes) {
  while (true) {
    if (passes && isa<RankedTensorType>(element.value.getType()))
      passes(element.value);
    std::optional<Element> next = stops.contains(element.value) ? std::nullopt : step(element);
    if (!next)
      return element;
    element = *next;
  }
}

Element ElementReader::strip(Element element) {
  while (true) {
    element = resolve(element);
    if (!isa_and_nonnull<arith::ExtFOp, arith::TruncFOp>(element.getOp()) ||
        isa<RankedTensorType>(element.value.getType()))
      return element;
    element = operand(element, 0);
  }
}

Element ElementReader::condition(Element element) {
  auto isByte = [](Element byte) {
    auto test = byte.value.getDefiningOp<arith::CmpIOp>();
    return byte.value.getDefiningOp<arith::ExtUIOp>() ||
           (test && test.getPredicate() == arith::CmpIPredicate::ne && matchPattern(test.getRhs(), m_Zero()));
  };
  element = resolve(element);
  while (isByte(element))
    element = resolve(operand(element, 0));
  return element;
}

std::optional<Element> ElementReader::tensor(Element element) {
  if (isa<RankedTensorType>(element.value.getType()))
    return element;
  element = scalar(element, stripConversions(element.value));
  std::optional<Element> read = isa<BlockArgument>(element.value) ? step(element) : std::nullopt;
  return read && isa<RankedTensorType>(read->value.getType()) ? read : std::nullopt;
}

bool ElementReader::isUnit(AffineExpr place) const {
  auto dim = dyn_cast<AffineDimExpr>(place);
  if (!dim)
    return false;
  if (const Inner *within = getInner(place)) {
    auto reduction = dyn_cast_or_null<linalg::LinalgOp>(within->op);
    return reduction && within->from && reduction.getStaticLoopRanges()[within->number] == 1;
  }
  return dim.getPosition() < shape.size() && shape[dim.getPosition()] == 1;
}

AffineExpr ElementReader::plain(AffineExpr place) const {
  return isUnit(place) ? getAffineConstantExpr(0, context) : place;
}

bool ElementReader::isSame(const Element &a, const Element &b) {
  Element x = strip(a), y = strip(b);
  return x.value == y.value && llvm::all_of_zip(x.at.getResults(), y.at.getResults(),
                                                [&](AffineExpr p, AffineExpr q) { return plain(p) == plain(q); });
}

SmallVector<Element> ElementReader::sources(const Element &element) {
  Operation *op = element.getOp();
  auto some = [&](unsigned n) { return inner({op, n, element.at}); };
  if (auto extract = dyn_cast_or_null<tensor::ExtractOp>(op)) {
    SmallVector<AffineExpr> places;
    for (unsigned n = 0; n != extract.getIndices().size(); ++n)
      places.push_back(some(n));
    return {at(extract.getTensor(), places)};
  }
  if (auto insert = dyn_cast_or_null<tensor::InsertSliceOp>(op)) {
    SmallVector<AffineExpr> places;
    for (unsigned n = 0; n != insert.getSourceType().getRank(); ++n)
      places.push_back(some(n));
    return {at(insert.getSource(), places), {insert.getDest(), element.at}};
  }
  auto reduction = dyn_cast_or_null<linalg::LinalgOp>(op);
  if (!reduction || reduction.getNumDpsInits() != 1 || !reduction.hasPureTensorSemantics())
    return {};
  SmallVector<AffineExpr> loops;
  for (unsigned n = 0; n != reduction.getNumLoops(); ++n)
    loops.push_back(some(n));
  AffineMap written = reduction.getMatchingIndexingMap(reduction.getDpsInitOperand(0));
  for (auto [expr, place] : llvm::zip_equal(written.getResults(), element.at.getResults()))
    if (auto loop = dyn_cast<AffineDimExpr>(expr))
      loops[loop.getPosition()] = place;
  SmallVector<Element> read;
  for (OpOperand *input : reduction.getDpsInputOperands())
    read.push_back({input->get(), compose(reduction.getMatchingIndexingMap(input), placesMap(loops, context))});
  return read;
}

} // namespace attn
