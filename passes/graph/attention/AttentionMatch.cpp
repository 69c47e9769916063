#include "passes/graph/attention/AttentionMatch.h"

#include "passes/graph/Structured.h"
#include "passes/graph/attention/RegionWriter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/LinalgInterfaces.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;

namespace attn {
namespace {

/// Whether `op` only rounds its input to a narrower float type.
bool isRounding(linalg::LinalgOp op) {
  if (!isPointwise(op) || op.getNumDpsInputs() != 1)
    return false;
  auto trunc = op.getBlock()->getTerminator()->getOperand(0).getDefiningOp<arith::TruncFOp>();
  return trunc && trunc.getIn() == op.getMatchingBlockArgument(op.getDpsInputOperand(0));
}

/// Follows the result through its only uses as long as they round it to `wanted` or, with `moves`, are views; so the
/// attention writes the layout that its consumer reads.
void walkDown(AttentionMatch &match, Type wanted, bool moves) {
  AttentionMatch::Operand &result = match.result;
  while (result.value.hasOneUse()) {
    OpOperand &use = *result.value.use_begin();
    Operation *user = use.getOwner();
    match.space.resolve(result.access);
    if (!moves && isView(user))
      return;
    if (auto collapse = dyn_cast<tensor::CollapseShapeOp>(user)) {
      Access merged(collapse.getResultType().getRank());
      for (auto [dim, group] : llvm::enumerate(collapse.getReassociationIndices()))
        for (int64_t n : group)
          llvm::append_range(merged[dim], result.access[n]);
      result = {collapse.getResult(), merged};
      continue;
    }
    if (auto expand = dyn_cast<tensor::ExpandShapeOp>(user)) {
      Access split(expand.getResultType().getRank());
      for (auto [dim, group] : llvm::enumerate(expand.getReassociationIndices())) {
        SmallVector<Extent> extents;
        for (int64_t n : group)
          extents.push_back(Extent::of(expand.getResult(), n));
        // Without splitting: an atom that is split here would need a name of its own in the maps.
        std::optional<SmallVector<Atoms>> lists = match.space.cut(result.access[dim], extents, /*maySplit=*/false);
        if (!lists)
          return;
        for (auto [n, atoms] : llvm::zip_equal(group, *lists))
          split[n] = atoms;
      }
      result = {expand.getResult(), split};
      continue;
    }
    if (auto cast = dyn_cast<tensor::CastOp>(user)) {
      if (!isa<RankedTensorType>(cast.getType()))
        return;
      result.value = cast;
      continue;
    }
    auto op = dyn_cast<linalg::LinalgOp>(user);
    if (!op || !op.isDpsInput(&use))
      return;
    AffineMap from = op.getMatchingIndexingMap(&use);
    bool rounding = getElementTypeOrSelf(result.value) != wanted && isRounding(op) &&
                    getElementTypeOrSelf(op->getResult(0)) == wanted;
    if ((getMovedInput(op) != &use && !rounding) || !from.isPermutation())
      return;
    AffineMap to = op.getMatchingIndexingMap(op.getDpsInitOperand(0));
    Access moved;
    for (AffineExpr expr : to.getResults())
      moved.push_back(result.access[*from.getResultPosition(expr)]);
    result = {op->getResult(0), moved};
  }
}

} // namespace

bool isMultipleOf(Value value, Value weight) {
  value = stripConversions(value);
  if (value == weight)
    return true;
  Operation *op = value.getDefiningOp();
  auto isFree = [&](Value other) { return !isComputedFrom(other, weight); };
  if (isa_and_nonnull<arith::MulFOp>(op))
    return (isMultipleOf(op->getOperand(0), weight) && isFree(op->getOperand(1))) ||
           (isMultipleOf(op->getOperand(1), weight) && isFree(op->getOperand(0)));
  if (isa_and_nonnull<arith::DivFOp>(op))
    return isMultipleOf(op->getOperand(0), weight) && isFree(op->getOperand(1));
  if (auto select = dyn_cast_or_null<arith::SelectOp>(op)) {
    auto isPart = [&](Value chosen) { return matchPattern(chosen, m_AnyZeroFloat()) || isMultipleOf(chosen, weight); };
    return isFree(select.getCondition()) && isPart(select.getTrueValue()) && isPart(select.getFalseValue());
  }
  return false;
}

/// Writes what the rows of `softmax` are divided by, and the weight region from what it normalises; `access` is how
/// the weights are read, and is set to how that is.
static LogicalResult matchDivisor(AttentionMatch &match, const Normalization &softmax, Access &access, Miss &miss) {
  auto yielded = [](Region &region) { return cast<YieldOp>(region.front().back()).getValue(); };
  Value quotient = match.weight->front().getArgument(0), made = stripConversions(yielded(*match.weight));
  if (made != quotient) {
    bool isNorm = softmax.kind == Normalizer::none && !isMultipleOf(made, quotient);
    return miss.set(isNorm
                        ? "no contraction: other values are added to what a function of its row's sum divides (a norm)"
                        : "the weights are changed after they are divided by more than their sum",
                    softmax.location);
  }
  // A function of one number: how the sum is read does not matter.
  AttentionMatch scratch;
  scratch.computeType = match.computeType;
  SmallVector<unsigned> captured;
  RegionWriter writer(scratch, softmax.total, "the sum of the weights and what divides them", captured, miss);
  Access row;
  for (int64_t dim = 0, rank = cast<RankedTensorType>(softmax.divisor.getType()).getRank(); dim != rank; ++dim)
    row.push_back(scratch.space.add(Extent::of(softmax.divisor, dim)));
  FailureOr<std::unique_ptr<Region>> divisor = writer.write(softmax.divisor, row);
  if (failed(divisor))
    return failure();
  if (!captured.empty() || !scratch.indices.empty())
    return miss.set("the weights are not divided by the sum of their row alone", softmax.location);
  match.divisor = std::move(*divisor);
  match.isShifted = softmax.isShifted;
  match.weightCaptures.clear();
  RegionWriter terms(match, softmax.base, "the softmax and the weighted sum", match.weightCaptures, miss);
  FailureOr<std::unique_ptr<Region>> weight = terms.write(softmax.terms, access);
  if (failed(weight))
    return failure();
  if (!isMultipleOf(yielded(**weight), (*weight)->front().getArgument(0)))
    return miss.set("what is divided by its sum is no multiple of a softmax", softmax.location);
  match.weight = std::move(*weight);
  access = *terms.targetAccess;
  match.space.resolve(access);
  return success();
}

std::optional<Access> nameLoops(AtomSpace &space, Value operand, AffineMap map, SmallVector<Atoms> &loops,
                                SmallVector<bool> &known) {
  for (auto [n, expr] : llvm::enumerate(map.getResults())) {
    auto dim = dyn_cast<AffineDimExpr>(expr);
    if (!dim)
      return std::nullopt;
    if (!known[dim.getPosition()]) {
      loops[dim.getPosition()] = space.add(Extent::of(operand, n));
      known[dim.getPosition()] = true;
    }
  }
  return AtomSpace::operandAccess(map, loops);
}

SmallVector<OpOperand *> findWeightedSums(Value weights) {
  SmallVector<OpOperand *> found;
  worklist(Values{weights}, [&](Value value, Values &list) {
    for (OpOperand &use : value.getUses()) {
      Operation *user = use.getOwner();
      auto linalgOp = dyn_cast<linalg::LinalgOp>(user);
      if (linalgOp && !linalgOp.isDpsInput(&use))
        continue;
      if (isContraction(user))
        found.push_back(&use);
      else if (isPerElement(user))
        list.push_back(user->getResult(0));
    }
    return false;
  });
  return found;
}

/// Whether another contraction reads what `sum` makes, through elementwise ops, views and norms.
static bool isWeighedBehind(Operation *sum) {
  return hasUse(
      sum->getResult(0), [](OpOperand &use) { return isContraction(use.getOwner()); },
      [](Operation *user) { return isView(user) || isa<linalg::LinalgOp, LayerNormOp>(user); });
}

/// Reads the weighted sum of which `weights` is an operand: its values, its result, and over what it sums. Gives how
/// the weights are read.
static Access readWeightedSum(AttentionMatch &match, OpOperand &weights) {
  auto sum = cast<linalg::LinalgOp>(weights.getOwner());
  SmallVector<Atoms> loops(sum.getNumLoops());
  SmallVector<bool> known(sum.getNumLoops(), false);
  SmallVector<AffineMap> maps = sum.getIndexingMapsArray();
  unsigned number = weights.getOperandNumber();
  Value values = sum->getOperand(1 - number);
  // The maps of a contraction are projected permutations.
  Access weightAccess = *nameLoops(match.space, weights.get(), maps[number], loops, known);
  match.value = {values, *nameLoops(match.space, values, maps[1 - number], loops, known)};
  match.result.value = sum->getResult(0);
  for (AffineExpr expr : maps[2].getResults())
    match.result.access.push_back(loops[cast<AffineDimExpr>(expr).getPosition()]);
  SmallVector<unsigned> sums;
  sum.getReductionDims(sums);
  for (unsigned loop : sums)
    llvm::append_range(match.keys, loops[loop]);
  return weightAccess;
}

unsigned countValueViews(OpOperand &weights) {
  unsigned count = 0;
  Value values = weights.getOwner()->getOperand(1 - weights.getOperandNumber());
  while ((values = getViewed(values.getDefiningOp())))
    ++count;
  return count;
}

/// Sees to it that the normaliser, whose result is read at `access`, and the weighted sum run over the same atoms.
static LogicalResult matchKeys(AttentionMatch &match, const Normalization &softmax, const Access &access, Miss &miss) {
  Operation *sum = match.result.value.getDefiningOp();
  match.space.resolve(match.keys);
  auto isKey = [&](unsigned atom) { return match.isKey(atom); };
  Atoms normalized;
  if (softmax.kind != Normalizer::none || softmax.divisor) {
    normalized = access[softmax.dim];
  } else { // all that is summed, in the order of the weights
    for (const Atoms &atoms : access)
      llvm::copy_if(atoms, std::back_inserter(normalized), isKey);
  }
  Atoms sorted(normalized);
  llvm::sort(sorted);
  llvm::sort(match.keys);
  if (isStatic(match.value.value) && llvm::none_of(normalized, isKey) && isWeighedBehind(sum))
    return miss.set(
        "the weights of several rows are mixed before they weigh values (talking heads): each needs the rows "
        "of all heads",
        sum->getLoc());
  if (sorted != match.keys)
    return miss.set("the weights are summed over other dimensions than the softmax runs over", sum->getLoc());
  match.keys = normalized;
  return success();
}

/// Takes from `softmax`, whose result is read at `access`, how it normalises rows.
static void readNormalizer(AttentionMatch &match, const Normalization &softmax, const Access &access) {
  match.normalizer = softmax.kind;
  match.sinkScore = softmax.sinkScore;
  match.isSinkShifted = softmax.isSinkShifted;
  match.isSinkInMaximum = softmax.isSinkInMaximum;
  if (softmax.sink) {
    match.sink.value = softmax.sink;
    for (int64_t dim : softmax.sinkDims)
      match.sink.access.push_back(dim < 0 ? Atoms() : access[dim]);
    match.space.walkUp(match.sink.value, match.sink.access);
  }
  if ((softmax.sink || softmax.sinkScore) && !softmax.isSinkLost)
    match.maskedRows = MaskedRows::zero; // the sink takes all of such a row
  if (softmax.kind == Normalizer::none)
    match.maskedRows = MaskedRows::zero; // whatever it says
}

FailureOr<AttentionMatch> matchAttention(const Normalization &softmax, OpOperand &weights, const ScoreSource &source,
                                         Follow follow, Miss &miss, unsigned valueViews) {
  auto sum = cast<linalg::LinalgOp>(weights.getOwner());
  if (softmax.isLog)
    return miss.set("the weights are logarithms", softmax.location);
  if (!isZeroFill(sum.getDpsInits()[0]))
    return miss.set("the weighted sum accumulates onto other values", sum.getLoc());

  AttentionMatch match;
  match.wholeCaptures = follow != Follow::everything && follow != Follow::captures;
  match.transposesScores = follow == Follow::transposed;
  match.wholeScores = follow == Follow::values || match.transposesScores;
  match.wholeOperands = follow != Follow::everything && follow != Follow::operands && follow != Follow::values;
  match.computeType = accumulatorType(getElementTypeOrSelf(sum->getResult(0)));
  Access weightAccess = readWeightedSum(match, weights);
  RegionWriter writer(match, softmax.result, "the softmax and the weighted sum", match.weightCaptures, miss);
  FailureOr<std::unique_ptr<Region>> region = writer.write(weights.get(), weightAccess);
  if (failed(region))
    return failure();
  match.weight = std::move(*region);
  Access access = *writer.targetAccess;
  match.space.resolve(access);
  if (failed(matchKeys(match, softmax, access, miss)))
    return failure();
  match.weights = {softmax.result, access};
  if (softmax.divisor && failed(matchDivisor(match, softmax, access, miss)))
    return failure();
  readNormalizer(match, softmax, access);
  if (failed(matchScores(match, softmax, access, source, miss)))
    return failure();
  for (; !match.wholeOperands && valueViews != 0 && match.space.stepUp(match.value.value, match.value.access);
       --valueViews)
    ;
  // Where the heads of the operands stand before their chunks, say, and those of the result behind them.
  walkDown(match, getElementTypeOrSelf(match.value.value),
           /*moves=*/follow != Follow::captures && follow != Follow::nothing && !match.transposesScores);
  return match;
}

} // namespace attn
