#include "passes/graph/Structured.h"
#include "passes/graph/attention/SegmentMatcher.h"
#include "passes/graph/element/EdgeTable.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;

namespace attn {

/// The check of an index into a dimension; null where it is something else.
static CheckIndexOp getCheck(Value index) { return index.getDefiningOp<CheckIndexOp>(); }

/// The integer that a checked index is.
static Value integerOf(CheckIndexOp check) {
  auto cast = check.getIndex().getDefiningOp<arith::IndexCastOp>();
  return cast ? cast.getIn() : check.getIndex();
}

/// Whether `index` is the only place along dimension `dim` of `tensor`.
static bool isOnlyPlace(Value index, Value tensor, int64_t dim) {
  return matchPattern(index, m_Zero()) && cast<RankedTensorType>(tensor.getType()).getDimSize(dim) == 1;
}

/// Which of `loops` counts by `index`.
static std::optional<unsigned> loopOf(ArrayRef<scf::ForOp> loops, Value index) {
  for (auto [n, loop] : llvm::enumerate(loops))
    if (scf::ForOp(loop).getInductionVar() == index)
      return n;
  return std::nullopt;
}

/// `tensor`, or where it joins dimensions of known sizes behind the edges, as those of heads and their columns, what it
/// joins them of.
Value SegmentMatcher::beforeJoin(const Scatter &sums, Value tensor) {
  auto collapse = tensor.getDefiningOp<tensor::CollapseShapeOp>();
  if (!collapse)
    return tensor;
  ArrayRef<int64_t> shape = collapse.getSrcType().getShape();
  bool isNeeded = false;
  for (auto [n, joined] : llvm::enumerate(collapse.getReassociationIndices())) {
    int64_t many = llvm::count_if(joined, [&](int64_t dim) { return shape[dim] != 1; });
    bool isOpen = llvm::any_of(joined, [&](int64_t dim) { return ShapedType::isDynamic(shape[dim]); });
    if (joined.size() > 1 && (isOpen || n == sums.nodeDim))
      return tensor;
    isNeeded |= many > 1;
  }
  return isNeeded ? collapse.getSrc() : tensor;
}

/// The dimensions of the updates behind each index of an update.
SmallVector<ReassociationIndices> SegmentMatcher::joins() {
  if (updates != update.getTensor())
    return update.getTensor().getDefiningOp<tensor::CollapseShapeOp>().getReassociationIndices();
  return llvm::map_to_vector(llvm::seq<int64_t>(rank), [](int64_t dim) { return ReassociationIndices{dim}; });
}

/// The place along dimensions of the updates that are joined.
AffineExpr SegmentMatcher::coordinate(ArrayRef<int64_t> joined) {
  if (joined.size() == 1)
    return coordinate(joined.front());
  AffineExpr place = zero();
  for (int64_t dim : joined)
    if (updatesType().getDimSize(dim) != 1)
      place = place * updatesType().getDimSize(dim) + coordinate(dim);
  return place;
}

/// `element`, at places of the sums, at those of the updates; that along the nodes becomes the one along the edges.
std::optional<Element> SegmentMatcher::beforeJoin(const Element &element) {
  SmallVector<ReassociationIndices> joined = joins();
  SmallVector<AffineExpr> places;
  for (AffineExpr place : element.at.getResults()) {
    auto dim = dyn_cast<AffineDimExpr>(place);
    if (dim ? dim.getPosition() >= joined.size() : !isa<AffineConstantExpr>(place))
      return std::nullopt;
    places.push_back(dim ? coordinate(joined[dim.getPosition()]) : place);
  }
  return Element{element.value, AffineMap::get(rank, 0, places, updates.getContext())};
}

/// The nodes and the updates of the loops that sum, as elements of the updates.
bool SegmentMatcher::readSums() {
  SmallVector<AffineExpr> places(sums.loops.size());
  SmallVector<ReassociationIndices> joined = joins();
  for (auto [dim, at] : llvm::enumerate(update.getIndices())) {
    if (isOnlyPlace(at, update.getTensor(), dim))
      continue;
    std::optional<unsigned> loop = loopOf(sums.loops, at);
    if (!loop || places[*loop])
      return false;
    places[*loop] = coordinate(joined[dim]);
  }
  found.nodeCheck = getCheck(sums.insert.getIndices()[sums.nodeDim]);
  if (llvm::is_contained(places, AffineExpr()))
    return false;
  std::optional<Element> node = readIn(sums.loops, places, integerOf(found.nodeCheck));
  if (!node)
    return false;
  found.node = reader.resolve(*node);
  // It depends on one loop, at which the updates have their edges.
  SmallVector<unsigned> named;
  for (unsigned n = 0; n != rank; ++n)
    if (llvm::any_of(found.node.at.getResults(), [&](AffineExpr place) { return place.isFunctionOfDim(n); }))
      named.push_back(n);
  auto type = cast<RankedTensorType>(sums.insert.getDest().getType());
  bool isOneEach = type.getRank() == static_cast<int64_t>(joined.size());
  if (named.size() != 1 || !isOneEach || joined[sums.nodeDim] != ReassociationIndices{named.front()})
    return false;
  found.edgeDim = named.front();
  for (auto [n, index] : llvm::enumerate(sums.insert.getIndices()))
    if (n != sums.nodeDim && index != update.getIndices()[n])
      return false;
  std::optional<Element> stored = storedTensor(*node);
  if (!stored || !readsEdgesAlone(*stored))
    return false;
  found.node = *stored;
  for (auto [loop, place] : llvm::zip_equal(sums.loops, places))
    if (place == coordinate(found.edgeDim))
      found.edges = loop.getUpperBound();
  found.nodes = found.nodeCheck.getSize();
  return found.edges != nullptr;
}

/// The integer that a nest reads from a tensor outside, at these places of its loops.
std::optional<Element> SegmentMatcher::readIn(ArrayRef<scf::ForOp> loops, ArrayRef<AffineExpr> at, Value integer) {
  auto extract = integer.getDefiningOp<tensor::ExtractOp>();
  if (!extract || loops.front()->isAncestor(extract.getTensor().getParentRegion()->getParentOp()))
    return std::nullopt;
  SmallVector<AffineExpr> places;
  for (Value index : extract.getIndices()) {
    std::optional<unsigned> loop = loopOf(loops, index);
    if (loop && at[*loop])
      places.push_back(at[*loop]);
    else if (matchPattern(index, m_Zero()))
      places.push_back(zero());
    else
      return std::nullopt;
  }
  return reader.at(extract.getTensor(), places);
}

/// The scatter whose result `element` is one of, and what it does there. Loops that the place does not set go over the
/// edges.
std::optional<SegmentMatcher::Visit> SegmentMatcher::visit(const Element &element) {
  std::optional<Scatter> matched = Scatter::match(element.value);
  if (!matched)
    return std::nullopt;
  Scatter &scatter = *matched;
  SmallVector<AffineExpr> loops(scatter.loops.size());
  for (auto [n, index, place] : llvm::enumerate(scatter.insert.getIndices(), element.at.getResults())) {
    if (n == scatter.nodeDim)
      continue;
    if (std::optional<unsigned> loop = loopOf(scatter.loops, index))
      loops[*loop] = place;
    else if (!isOnlyPlace(index, scatter.insert.getDest(), n))
      return std::nullopt;
  }
  for (AffineExpr &place : loops)
    if (!place)
      place = coordinate(found.edgeDim);
  if (llvm::count(loops, coordinate(found.edgeDim)) != 1)
    return std::nullopt;
  // All edges, and all heads.
  for (auto [loop, place] : llvm::zip_equal(scatter.loops, loops)) {
    auto dim = dyn_cast<AffineDimExpr>(place);
    if (!dim || dim.getPosition() >= rank)
      return std::nullopt;
    Extent all = dim.getPosition() == found.edgeDim ? Extent::of(OpFoldResult(found.edges))
                                                    : Extent::of(updates, dim.getPosition());
    if (!(Extent::of(OpFoldResult(loop.getUpperBound())) == all))
      return std::nullopt;
  }
  CheckIndexOp check = getCheck(scatter.insert.getIndices()[scatter.nodeDim]);
  std::optional<Element> node = readIn(scatter.loops, loops, integerOf(check));
  if (!node || !isOfNodes(check))
    return std::nullopt;
  return Visit{scatter, *node, readIn(scatter.loops, loops, scatter.update)};
}

/// The integer in the body around `element`: an element of what is read there, where no other index picks it.
Element SegmentMatcher::integerIn(const Element &element, Value integer) {
  Element scalar = reader.scalar(element, integer);
  auto extract = integer.getDefiningOp<tensor::ExtractOp>();
  SmallVector<AffineExpr> places;
  for (Value index : extract ? extract.getIndices() : ValueRange())
    if (auto loop = index.getDefiningOp<linalg::IndexOp>())
      places.push_back(element.at.getResult(loop.getDim()));
    else if (matchPattern(index, m_Zero()))
      places.push_back(zero());
    else
      return scalar;
  return extract ? reader.at(extract.getTensor(), places) : scalar;
}

/// `element`, of which one index is computed.
std::optional<SegmentMatcher::Gathered> SegmentMatcher::gather(const Element &element) {
  auto extract = dyn_cast_or_null<tensor::ExtractOp>(element.getOp());
  if (!extract || !isa<linalg::LinalgOp>(extract->getParentOp()))
    return std::nullopt;
  std::optional<Gathered> gathered;
  SmallVector<AffineExpr> places;
  for (auto [n, index] : llvm::enumerate(extract.getIndices())) {
    if (auto loop = index.getDefiningOp<linalg::IndexOp>()) {
      places.push_back(element.at.getResult(loop.getDim()));
    } else if (matchPattern(index, m_Zero())) {
      places.push_back(zero());
    } else if (CheckIndexOp check = getCheck(index); check && !gathered) {
      places.push_back(reader.inner({extract, static_cast<unsigned>(n), element.at}));
      gathered = {{}, integerIn(element, integerOf(check)), check, static_cast<unsigned>(n)};
    } else {
      return std::nullopt;
    }
  }
  if (gathered)
    gathered->element = reader.at(extract.getTensor(), places);
  return gathered;
}

/// Whether `check` is of as many nodes as there are: -1 is the last of them, and no other may be missing.
bool SegmentMatcher::isOfNodes(CheckIndexOp check) {
  return Extent::of(OpFoldResult(check.getSize())) == Extent::of(OpFoldResult(found.nodes));
}

/// `element`, read at the edge's node.
std::optional<SegmentMatcher::Gathered> SegmentMatcher::readOfNode(const Element &element) {
  std::optional<Gathered> gathered = gather(reader.strip(element));
  if (!gathered || !reader.isSame(gathered->index, found.node) || !isOfNodes(gathered->check))
    return std::nullopt;
  return gathered;
}

/// The first tensor on the way to what computes `element`, of which places of the updates say where it is read.
std::optional<Element> SegmentMatcher::storedTensor(const Element &element) {
  std::optional<Element> next = element;
  while (next) {
    bool isPlain =
        isa<RankedTensorType>(next->value.getType()) && llvm::all_of(next->at.getResults(), [&](AffineExpr place) {
          auto dim = dyn_cast<AffineDimExpr>(place);
          return dim ? dim.getPosition() < rank : isa<AffineConstantExpr>(place);
        });
    // What only moves a tensor in memory need not be stored.
    Operation *op = next->value.getDefiningOp();
    bool isMoved = op && isa<linalg::LinalgOp>(op) && isView(op);
    if (isPlain && !isMoved)
      return next;
    next = reader.step(*next);
  }
  return std::nullopt;
}

bool SegmentMatcher::readsEdgesAlone(const Element &element) {
  return llvm::all_of(element.at.getResults(), [&](AffineExpr place) {
    return reader.plain(place) == coordinate(found.edgeDim) || isa<AffineConstantExpr>(reader.plain(place));
  });
}

std::optional<Scatter> Scatter::match(Value value) {
  std::optional<EdgeTable::Nest> nest = EdgeTable::matchNest(value);
  if (!nest || value != nest->loops.front().getResult(0))
    return std::nullopt;
  Scatter scatter{nest->loops.front(),
                  nest->loops,
                  nest->insert,
                  replacement,
                  nest->insert.getScalar(),
                  nest->loops.front().getInits().front(),
                  0};
  unsigned checks = 0;
  for (auto [n, index] : llvm::enumerate(scatter.insert.getIndices()))
    if (getCheck(index)) {
      scatter.nodeDim = n;
      ++checks;
    }
  if (checks != 1)
    return std::nullopt;
  auto isOld = [&](Value scalar) {
    auto extract = scalar.getDefiningOp<tensor::ExtractOp>();
    return extract && extract.getTensor() == scatter.insert.getDest() &&
           llvm::equal(extract.getIndices(), scatter.insert.getIndices());
  };
  Operation *combine = scatter.update.getDefiningOp();
  if (isa_and_nonnull<arith::AddFOp>(combine))
    scatter.kind = sum;
  else if (isa_and_nonnull<arith::MaximumFOp, arith::MaxNumFOp>(combine))
    scatter.kind = maximum;
  else if (isa_and_nonnull<arith::MinimumFOp, arith::MinNumFOp>(combine))
    scatter.kind = minimum;
  else
    return scatter;
  bool isSecond = isOld(combine->getOperand(1));
  if (!isSecond && !isOld(combine->getOperand(0)))
    return std::nullopt;
  scatter.update = combine->getOperand(isSecond ? 0 : 1);
  return scatter;
}

} // namespace attn
