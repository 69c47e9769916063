#include "passes/graph/attention/SegmentMatcher.h"

#include "passes/graph/Structured.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include <limits>

using namespace mlir;

namespace attn {
namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();
/// Beside 1 in f32 no more than half of the last bit.
constexpr double kNegligible = 0x1p-25;

/// The elements of a row of the first dimension, or a negative number where they are open.
int64_t sizeOfRow(RankedTensorType type) {
  ArrayRef<int64_t> shape = type.getShape().drop_front();
  return ShapedType::isDynamicShape(shape) ? -1 : ShapedType::getNumElements(shape);
}

} // namespace

/// The factors and divisors of which `element` is the product. `owner` is the op that takes it as a factor.
void SegmentMatcher::takeFactors(const Element &element, linalg::LinalgOp owner) {
  constexpr size_t kMost = 8;
  Element resolved = reader.strip(element);
  Operation *op = resolved.getOp();
  auto inside = op ? dyn_cast<linalg::LinalgOp>(op->getParentOp()) : linalg::LinalgOp();
  if (factors.size() + divisors.size() >= kMost || !isa_and_nonnull<arith::MulFOp, arith::DivFOp>(op) || !inside)
    return factors.push_back({element, owner});
  takeFactors(reader.operand(resolved, 0), inside);
  if (isa<arith::DivFOp>(op))
    divisors.push_back({reader.operand(resolved, 1), inside});
  else
    takeFactors(reader.operand(resolved, 1), inside);
}

/// What remains of `divisor` without numbers that are added, which `epsilon` becomes.
std::optional<Element> SegmentMatcher::peelEpsilon(ElementReader &in, const Element &divisor) {
  Element element = in.strip(divisor);
  while (auto add = dyn_cast_or_null<arith::AddFOp>(element.getOp())) {
    std::optional<double> number = numberOf(add.getRhs());
    if (!number || *number < 0)
      return std::nullopt;
    epsilon += *number;
    element = in.strip(in.operand(element, 0));
  }
  return element;
}

/// Whether `divisor` is the sum of exponentials of the edge's node, of which one is a factor; epsilon may be added.
bool SegmentMatcher::takeSum(const Element &divisor) {
  epsilon = 0;
  std::optional<Element> element = peelEpsilon(reader, divisor);
  std::optional<Gathered> gathered = element ? readOfNode(*element) : std::nullopt;
  element = gathered ? peelEpsilon(reader, gathered->element) : std::nullopt;
  return element && takeSumAt(*element);
}

/// The same of `element`, at its place in the result of loops.
bool SegmentMatcher::takeSumAt(const Element &element) {
  std::optional<Visit> at = visit(element);
  if (!at || at->scatter.kind != Scatter::sum || !isZeroFill(at->scatter.init) || !at->update ||
      !reader.isSame(at->node, found.node))
    return false;
  Element term = reader.strip(*at->update);
  auto factor = llvm::find_if(factors, [&](const Factor &factor) { return reader.isSame(factor.element, term); });
  if (!isa_and_nonnull<math::ExpOp>(term.getOp()) || factor == factors.end())
    return false;
  factors.erase(factor);
  exponential = term;
  return true;
}

/// Whether the sums of values, and nothing else of them, are divided by those of their weights afterwards.
bool SegmentMatcher::takeQuotient() {
  linalg::LinalgOp quotient;
  for (Operation *user : sums.outer->getUsers()) {
    if (isa<tensor::DimOp>(user))
      continue;
    if (quotient || !isPointwise(user))
      return false;
    quotient = cast<linalg::LinalgOp>(user);
  }
  if (!quotient || cast<RankedTensorType>(quotient->getResult(0).getType()).getShape() !=
                       cast<RankedTensorType>(sums.outer.getResult(0).getType()).getShape())
    return false;
  ElementReader after(quotient->getResult(0));
  Element element = after.strip(after.at(quotient->getResult(0)));
  if (!isa_and_nonnull<arith::DivFOp>(element.getOp()))
    return false;
  Element whole = after.strip(after.operand(element, 0));
  for (auto [n, place] : llvm::enumerate(whole.at.getResults()))
    if (after.plain(place) != after.plain(coordinate(n)))
      return false;
  epsilon = 0;
  std::optional<Element> divisor = peelEpsilon(after, after.operand(element, 1));
  divisor = divisor ? beforeJoin(*divisor) : std::nullopt;
  if (whole.value != sums.outer.getResult(0) || !divisor || !takeSumAt(*divisor))
    return false;
  std::optional<Scatter> scatter = Scatter::match(divisor->value);
  found.softmax = quotient;
  found.result = quotient->getResult(0);
  return divisor->at.getResult(scatter->nodeDim) == coordinate(found.edgeDim);
}

/// A number at which, or at a score, the scatters that make `element` start where a node has edges.
std::optional<double> SegmentMatcher::startAt(const Element &element) {
  if (std::optional<double> number = numberOf(element.value))
    return number;
  std::optional<Visit> at = visit(element);
  if (!at || !reader.isSame(at->node, found.node))
    return std::nullopt;
  const Scatter &scatter = at->scatter;
  std::optional<double> number = numberOf(scatter.update);
  if (at->update) {
    Element update = reader.strip(*at->update);
    number = numberOf(update.value);
    // The least of all scores is a score, or below those of the node.
    auto least = dyn_cast_or_null<linalg::LinalgOp>(update.getOp());
    SmallVector<Element> sources = least ? reader.sources(update) : SmallVector<Element>();
    Operation *combine =
        least ? stripConversions(least.getBlock()->getTerminator()->getOperand(0)).getDefiningOp() : nullptr;
    if (isa_and_nonnull<arith::MinimumFOp, arith::MinNumFOp>(combine) && sources.size() == 1 &&
        reader.strip(sources.front()).value == reader.strip(found.scores).value)
      number = kNone;
    else if (scatter.kind == Scatter::maximum && reader.isSame(update, found.scores))
      number = kNone;
  }
  if (!number || scatter.kind == Scatter::sum)
    return std::nullopt;
  if (scatter.kind == Scatter::replacement || (scatter.kind == Scatter::minimum && *number == kNone))
    return number;
  std::optional<double> before = startAt({scatter.init, element.at});
  if (!before)
    return std::nullopt;
  return scatter.kind == Scatter::minimum ? std::min(*before, *number) : std::max(*before, *number);
}

/// The scores of which the exponentials are, less the greatest of their node or as they are. What is added to the sum
/// of the latter is added where the greatest is 0; where it is more, the sum is at least 1.
void SegmentMatcher::takeScores(const Element &exponential) {
  Element whole = reader.operand(exponential, 0), difference = reader.strip(whole);
  found.epsilon = epsilon;
  if (isa_and_nonnull<arith::SubFOp>(difference.getOp()))
    takeShift(difference);
  isShifted = start.has_value();
  if (!isShifted)
    found.scores = whole;
  // From -inf on: the sum is at least 1, or NaN where all scores are -inf. Above, it may be 0.
  if (found.epsilon <= kNegligible && isShifted && *start == kNone)
    found.epsilon = 0;
  if (found.epsilon != 0)
    found.floor = start.value_or(0);
}

/// `difference` as scores less the greatest of their node, or of those and a number where the loops start.
void SegmentMatcher::takeShift(const Element &difference) {
  std::optional<Gathered> top = readOfNode(reader.operand(difference, 1));
  if (!top)
    return;
  found.scores = reader.operand(difference, 0);
  Element element = reader.strip(top->element);
  std::optional<Visit> at = visit(element);
  if (at && at->scatter.kind == Scatter::maximum && at->update && reader.isSame(at->node, found.node) &&
      reader.isSame(*at->update, found.scores))
    start = startAt({at->scatter.init, element.at});
}

/// The values: rows of a tensor that an index of each edge picks, or those of edges.
bool SegmentMatcher::takeValues() {
  const Element &factor = factors.front().element;
  Element resolved = reader.strip(factor);
  if (std::optional<Gathered> gathered = gather(resolved); gathered && gathered->dim == 0 && found.edgeDim == 0) {
    std::optional<Element> row = storedTensor(gathered->index);
    SmallVector<AffineExpr> own, all;
    for (unsigned n = 1; n != rank; ++n)
      if (!reader.isUnit(coordinate(n)))
        all.push_back(coordinate(n));
    for (AffineExpr place : llvm::drop_begin(gathered->element.at.getResults()))
      if (AffineExpr plain = reader.plain(place); !isa<AffineConstantExpr>(plain))
        own.push_back(plain);
    auto type = cast<RankedTensorType>(gathered->element.value.getType());
    // A row that is cut into heads behind the gather: (head, column) of a row of heads times columns.
    if (own.size() == 1 && all.size() > 1)
      if (const ElementReader::Inner *joined = reader.getInner(own.front()); joined && joined->width)
        own.assign(joined->from.getResults().begin(), joined->from.getResults().end());
    if (row && readsEdgesAlone(*row) && own == all && sizeOfRow(type) == sizeOfRow(updatesType())) {
      found.row = row;
      found.rowCheck = gathered->check;
      found.values = gathered->element;
      return true;
    }
  }
  std::optional<Element> stored = storedTensor(factor);
  if (!stored)
    return false;
  found.values = *stored;
  return true;
}

/// Which dimensions are heads: those of the updates that the scores have, which stand before the others. All of the
/// result's columns are theirs.
bool SegmentMatcher::takeHeads() {
  bool isBehind = false;
  auto result = cast<RankedTensorType>(sums.insert.getDest().getType());
  for (auto [n, joined] : llvm::enumerate(joins())) {
    int64_t size = 1;
    for (int64_t dim : joined)
      size *= updatesType().getDimSize(dim);
    if (n != sums.nodeDim && result.getDimSize(n) != size)
      return false;
  }
  for (unsigned n = 0; n != rank; ++n) {
    if (n == found.edgeDim || reader.isUnit(coordinate(n)))
      continue;
    if (n < found.edgeDim || updatesType().isDynamicDim(n))
      return false;
    bool isHead =
        llvm::any_of(found.scores.at.getResults(), [&](AffineExpr place) { return place.isFunctionOfDim(n); });
    if (isHead && isBehind)
      return false;
    if (isHead)
      found.heads.push_back(n);
    isBehind |= !isHead;
  }
  return true;
}

/// Whether the weights have another use than the sums.
std::string SegmentMatcher::whyUsedElsewhere() {
  std::string why;
  worklist(Values{found.softmax->getResult(0)}, [&](Value value, Values &list) {
    for (Operation *user : value.getUsers()) {
      if (sums.outer->isAncestor(user) || isa<tensor::DimOp>(user))
        continue;
      if ((isView(user) || isPointwise(user)) && user->getNumResults() == 1)
        list.push_back(user->getResult(0));
      else
        why = "its weights are used elsewhere too, for edges, which the attention does not give";
    }
    return !why.empty();
  });
  return why;
}

std::optional<SegmentMatch> SegmentMatcher::match(linalg::LinalgOp &softmax, Miss &miss) {
  auto fail = [&](StringRef why) -> std::optional<SegmentMatch> {
    miss.reason = why.str();
    return std::nullopt;
  };
  if (!readSums())
    return fail("its values are not summed by a node of each edge");
  takeFactors(reader.at(updates), {});
  if (!divisors.empty())
    softmax = divisors.front().owner;
  auto *divisor = llvm::find_if(divisors, [&](const Factor &divisor) { return takeSum(divisor.element); });
  if (divisor != divisors.end()) {
    found.softmax = divisor->owner;
    divisors.erase(divisor);
  } else if (!divisors.empty() || !takeQuotient()) {
    return fail("its divisor is not the sum of its exponentials over the edges of the node at which values are summed");
  } else if (epsilon == 0) {
    softmax = found.softmax;
    return fail("values are divided where they are summed: nodes without edges give NaN");
  }
  softmax = found.softmax;
  miss.location = softmax.getLoc();
  if (!divisors.empty() || factors.size() != 1)
    return fail("its weights are multiplied by more than values");
  takeScores(*exponential);
  if (epsilon > kNegligible && !isShifted)
    return fail("what is added to the sums of its exponentials, from which no maximum was taken before, is not small");
  std::optional<Element> scores = storedTensor(found.scores);
  if (!scores)
    return fail("its scores are no tensor");
  found.scores = *scores;
  if (!getElementTypeOrSelf(found.scores.value).isF32() || !getElementTypeOrSelf(updates).isF32())
    return fail("its scores are not f32");
  if (!takeHeads())
    return fail("its heads and their widths are open, or do not stand behind its edges in this order");
  if (!takeValues())
    return fail("its values are no tensor");
  if (std::string why = found.result ? "" : whyUsedElsewhere(); !why.empty())
    return fail(why);
  found.loops = sums.outer;
  found.sizes.assign(updatesType().getShape().begin(), updatesType().getShape().end());
  if (!found.result)
    found.result = sums.outer.getResult(0);
  return found;
}

std::optional<SegmentMatch> matchSegmentAttention(scf::ForOp loops, linalg::LinalgOp &softmax, Miss &miss) {
  std::optional<Scatter> sums = loops.getNumResults() == 1 ? Scatter::match(loops.getResult(0)) : std::nullopt;
  if (!sums || sums->kind != Scatter::sum || !isZeroFill(sums->init))
    return std::nullopt;
  auto update = sums->update.getDefiningOp<tensor::ExtractOp>();
  if (!update || loops->isAncestor(update.getTensor().getParentRegion()->getParentOp()))
    return std::nullopt;
  return SegmentMatcher(*sums, update).match(softmax, miss);
}

} // namespace attn
