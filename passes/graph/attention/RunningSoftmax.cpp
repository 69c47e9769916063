#include "passes/graph/attention/RaiseContraction.h"

#include "passes/graph/Structured.h"
#include "passes/graph/attention/JoinParts.h"
#include "passes/graph/attention/Normalization.h"
#include "passes/graph/element/Element.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Remarks.h"

using namespace mlir;

namespace attn {
namespace {

/// Elements that are added up, each some times.
using Exponent = SmallVector<std::pair<Element, int>>;

/// One block of keys, in the numerator or in the denominator: exp(score + rest), and the value, if it has one.
struct KeyBlock {
  Element score, value;
  AffineExpr key;
  Exponent rest;
  Value weights; ///< the tensor of exponentials
};

/// The size of a tensor along the dimension in which it is read at `place`; none where it is not.
std::optional<Extent> sizeAlong(const Element &element, AffineExpr place) {
  const auto *along = llvm::find(element.at.getResults(), place);
  bool isRead = along != element.at.getResults().end();
  return isRead && isa<RankedTensorType>(element.value.getType())
             ? std::optional(Extent::of(element.value, along - element.at.getResults().begin()))
         : isRead ? std::optional(Extent())
                  : std::nullopt;
}

class RunningSoftmax {
public:
  explicit RunningSoftmax(linalg::LinalgOp quotient) : quotient(quotient), reader(quotient->getResult(0)) {}

  bool match();
  Value write(RewriterBase &b);

private:
  /// Adds the blocks of which `element` is a sum; each is multiplied by exp of `faded`.
  bool addBlocks(const Element &element, const Exponent &faded, SmallVector<KeyBlock> &blocks);
  bool addBlock(const Element &element, const Exponent &faded, SmallVector<KeyBlock> &blocks);
  /// Adds what `element` is a sum of; false where it is too long a sum.
  bool addTerms(const Element &element, int times, Exponent &exponent);
  bool isSame(const Exponent &a, const Exponent &b);
  /// How loops, the result's dimensions and the key, read an element.
  std::optional<AffineMap> mapOf(const Element &element, const KeyBlock &block);

  linalg::LinalgOp quotient;
  ElementReader reader;
  SmallVector<KeyBlock> above, below;
  unsigned numTerms = 0;
};

bool RunningSoftmax::addTerms(const Element &element, int times, Exponent &exponent) {
  constexpr unsigned kMaxTerms = 4096; // of all blocks
  if (++numTerms == kMaxTerms)
    return false;
  Element e = reader.resolve(element);
  if (Operation *op = e.getOp(); isa_and_nonnull<arith::SubFOp, arith::AddFOp>(op))
    return addTerms(reader.operand(e, 0), times, exponent) &&
           addTerms(reader.operand(e, 1), isa<arith::SubFOp>(op) ? -times : times, exponent);
  for (auto &[known, count] : exponent)
    if (reader.isSame(known, e)) {
      count += times;
      return true;
    }
  exponent.emplace_back(e, times);
  return true;
}

bool RunningSoftmax::addBlocks(const Element &element, const Exponent &faded, SmallVector<KeyBlock> &blocks) {
  constexpr size_t kMaxBlocks = 256;
  Element e = reader.resolve(element);
  Operation *op = e.getOp();
  if (blocks.size() == kMaxBlocks)
    return false;
  if (isa_and_nonnull<arith::AddFOp>(op))
    return addBlocks(reader.operand(e, 0), faded, blocks) && addBlocks(reader.operand(e, 1), faded, blocks);
  if (!isa_and_nonnull<arith::MulFOp>(op))
    return addBlock(e, faded, blocks);
  for (unsigned n : {0, 1}) {
    Element factor = reader.resolve(reader.operand(e, n));
    if (!isa_and_nonnull<math::ExpOp>(factor.getOp()))
      continue;
    Exponent more = faded;
    return addTerms(reader.operand(factor, 0), 1, more) && addBlocks(reader.operand(e, 1 - n), more, blocks);
  }
  return false;
}

bool RunningSoftmax::addBlock(const Element &element, const Exponent &faded, SmallVector<KeyBlock> &blocks) {
  auto sum = dyn_cast_or_null<linalg::LinalgOp>(element.getOp());
  bool isProduct = isContraction(sum);
  if ((!isProduct && getReduction(sum) != Combiner::sum) || (isProduct && !isZeroFill(sum.getDpsInits()[0])))
    return false;
  std::optional<unsigned> loop = onlyReducedLoop(sum);
  SmallVector<Element> sources = reader.sources(element);
  if (!loop || sources.empty())
    return false;
  AffineExpr key = reader.inner({sum, *loop, element.at});
  for (unsigned n = 0; n != sources.size(); ++n) {
    Element weight = reader.resolve(sources[n]);
    if (!isa_and_nonnull<math::ExpOp>(weight.getOp()))
      continue;
    // exp(s - m): the score is read at the key, and nothing else.
    Element exponent = reader.resolve(reader.operand(weight, 0));
    if (!isa_and_nonnull<arith::SubFOp>(exponent.getOp()))
      return false;
    std::optional<Element> score = reader.tensor(reader.operand(exponent, 0));
    KeyBlock block = {score.value_or(Element{}), isProduct ? sources[1 - n] : Element{}, key, faded, sources[n].value};
    if (!addTerms(reader.operand(exponent, 1), -1, block.rest))
      return false;
    llvm::erase_if(block.rest, [](const auto &term) { return term.second == 0; });
    // The sum is over all keys of the score, which stands in the type in which the graph exponentiates it.
    std::optional<Extent> numKeys = score ? sizeAlong(*score, key) : std::nullopt;
    if (!numKeys || !(numKeys == sizeAlong(sources[n], key)) || (isProduct && !sizeAlong(block.value, key)) ||
        getElementTypeOrSelf(score->value) != reader.operand(exponent, 0).value.getType() ||
        llvm::any_of(block.rest, [&](const auto &term) { return sizeAlong(term.first, key).has_value(); }))
      return false;
    blocks.push_back(block);
    return true;
  }
  return false;
}

bool RunningSoftmax::isSame(const Exponent &a, const Exponent &b) {
  return a.size() == b.size() && llvm::all_of(a, [&](const auto &term) {
           return llvm::any_of(b, [&](const auto &other) {
             return term.second == other.second && reader.isSame(term.first, other.first);
           });
         });
}

bool RunningSoftmax::match() {
  Element y = reader.resolve(reader.at(quotient->getResult(0)));
  if (!isa_and_nonnull<arith::DivFOp>(y.getOp()) || !addBlocks(reader.operand(y, 0), {}, above) ||
      !addBlocks(reader.operand(y, 1), {}, below) || above.size() < 2 || above.size() != below.size())
    return false;
  for (auto [x, z] : llvm::zip_equal(above, below))
    if (!x.value.value || z.value.value || x.score.value != z.score.value || mapOf(x.score, x) != mapOf(z.score, z) ||
        !isSame(x.rest, above.front().rest) || !isSame(z.rest, above.front().rest))
      return false;
  // Any row may be subtracted, and that of the keys so far may be -inf: rows of NaN become numbers.
  if (llvm::none_of(above, [](const KeyBlock &block) { return hasGuard(block.weights); }))
    return true;
  remark::missed(quotient.getLoc(), remark::RemarkOpts::name("RunningSoftmax").category("attn-raise-contraction"))
      << "rows are replaced that are not of numbers in the graph";
  return false;
}

std::optional<AffineMap> RunningSoftmax::mapOf(const Element &element, const KeyBlock &block) {
  unsigned rank = reader.numRootPlaces();
  SmallVector<AffineExpr> exprs;
  for (AffineExpr place : element.at.getResults()) {
    auto dim = dyn_cast<AffineDimExpr>(place);
    if (!dim || (place != block.key && dim.getPosition() >= rank))
      return std::nullopt;
    exprs.push_back(getAffineDimExpr(place == block.key ? rank : dim.getPosition(), place.getContext()));
  }
  AffineMap map = AffineMap::get(rank + 2, 0, exprs, element.at.getContext()); // with what products are summed over
  return map.isProjectedPermutation() ? std::optional(map) : std::nullopt;
}

Value RunningSoftmax::write(RewriterBase &b) {
  Location loc = quotient.getLoc();
  SmallVector<Part> scores, values;
  unsigned rank = reader.numRootPlaces();
  AffineExpr key = b.getAffineDimExpr(rank);
  // All of a tensor is read, but for the keys, which are compared.
  auto isWhole = [&](const Part &part) {
    return llvm::all_of(llvm::enumerate(part.map.getResults()), [&](auto along) {
      return along.value() == key ||
             Extent::of(part.value, along.index()) ==
                 Extent::of(quotient->getResult(0), cast<AffineDimExpr>(along.value()).getPosition());
    });
  };
  int64_t numKeys = 0;
  for (const KeyBlock &block : above) {
    std::optional<AffineMap> score = mapOf(block.score, block), value = mapOf(block.value, block);
    if (!score || !value)
      return {};
    int64_t size = cast<RankedTensorType>(block.score.value.getType()).getDimSize(*score->getResultPosition(key));
    scores.push_back({block.score.value, *score, size});
    values.push_back({block.value.value, *value, size});
    numKeys += size;
    if (ShapedType::isDynamic(size) || !isWhole(scores.back()) || !isWhole(values.back()) ||
        scores.back().map != scores.front().map || values.back().map != values.front().map ||
        cast<RankedTensorType>(values.back().value.getType()).getDimSize(*value->getResultPosition(key)) != size)
      return {};
  }
  // A dimension of the result that neither has would be repeated.
  for (unsigned n = 0; n != rank; ++n)
    if (!scores.front().map.isFunctionOfDim(n) && !values.front().map.isFunctionOfDim(n))
      return {};
  b.setInsertionPoint(quotient);
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, loc, quotient.getDpsInits()[0]), space = sizes;
  space.push_back(b.getIndexAttr(numKeys));
  PartsJoiner joiner(space, rank);
  std::optional<JoinedParts> joinedScores = joiner.match(scores), joinedValues = joiner.matchOperand(values);
  if (!joinedScores || !joinedValues)
    return {};
  Part score = joiner.write(b, loc, *joinedScores), value = joiner.write(b, loc, *joinedValues);
  Value weights = SoftmaxOp::create(b, loc, score.value.getType(), score.value, *score.map.getResultPosition(key));
  auto withoutSummed = [&](AffineMap map) { return AffineMap::get(rank + 1, 0, map.getResults(), b.getContext()); };
  return contraction(
      b, loc, sizes, getElementTypeOrSelf(quotient->getResult(0)), weights, value.value,
      {withoutSummed(score.map), withoutSummed(value.map), b.getMultiDimIdentityMap(rank + 1).dropResult(rank)});
}

} // namespace

bool raiseRunningSoftmax(RewriterBase &b, linalg::LinalgOp quotient) {
  if (!isPointwise(quotient) || !isa_and_nonnull<arith::DivFOp>(getScalarOp(quotient)))
    return false;
  RunningSoftmax softmax(quotient);
  Value whole = softmax.match() ? softmax.write(b) : Value();
  if (!whole)
    return false;
  remark::passed(quotient.getLoc(), remark::RemarkOpts::name("RunningSoftmax").category("attn-raise-contraction"))
      << "a softmax with a running maximum is one over all keys";
  b.replaceOp(quotient, castTo(b, quotient.getLoc(), whole, quotient->getResult(0).getType()));
  return true;
}

} // namespace attn
