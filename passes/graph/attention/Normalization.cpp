#include "passes/graph/attention/Normalization.h"

#include "passes/graph/Structured.h"
#include "passes/graph/attention/AttentionSink.h"
#include "passes/graph/element/LowerBound.h"
#include "passes/graph/element/Rows.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Transforms/RegionUtils.h"
#include <cmath>

using namespace mlir;

namespace attn {

bool isStatic(Value value) {
  unsigned most = 256;
  return !worklist(Values{value}, [&](Value next, Values &list) {
    Operation *op = next.getDefiningOp();
    // Sizes do not count: a table is cut to them, positions are counted up to them.
    if (next.getType().isIndex())
      return false;
    if (!op || op->getNumRegions() > 1 || most-- == 0)
      return true;
    llvm::append_range(list, op->getOperands());
    // What a body reads besides its op's operands, as a gather does.
    visitUsedValuesDefinedAbove(op->getRegions(), [&](OpOperand *used) { list.push_back(used->get()); });
    return false;
  });
}

/// Whether `value` is computed by elementwise ops and views from a sum of what `terms` is a view of.
static bool holdsSumOf(Value value, Value terms) {
  terms = stripViews(terms);
  return isMadeOf(value, [&](Value source) {
    Operation *op = source.getDefiningOp();
    return getReduction(op) == Combiner::sum && stripViews(op->getOperand(0)) == terms;
  });
}

bool isMultipleOfNonNegative(Value value, unsigned depth) {
  if (isNonNegative(value))
    return true;
  ElementReader reader(value);
  Element product = reader.strip(reader.at(value));
  return depth != 0 && getAs<arith::MulFOp>(product) && llvm::any_of(llvm::seq(2), [&](unsigned n) {
           std::optional<Element> factor = reader.tensor(reader.operand(product, n));
           return factor && !isStatic(factor->value) && isMultipleOfNonNegative(factor->value, depth - 1);
         });
}

/// The tensor whose elements `element`, in a body, are, place for place; null where there is none.
static Value madeBy(const Element &element) {
  auto op = cast<linalg::LinalgOp>(element.getOp()->getParentOp());
  bool isWhole = getScalarOp(op) == element.getOp() && op.getMatchingIndexingMap(op.getDpsInitOperand(0)).isIdentity();
  return isWhole ? op->getResult(0) : Value();
}

/// What makes a softmax over `keys` of which `element` is a multiple: sets base, input, kind and isShifted of `found`.
static bool findBase(RowReader &rows, const Element &element, const Places &keys, Normalization &found,
                     unsigned depth = 8) {
  Element of = rows.strip(element);
  if (auto softmax = of.value.getDefiningOp<SoftmaxOp>()) {
    if (softmax.getLog() || rows.findDims(of.at, keys) != std::pair<int64_t, int64_t>(softmax.getDim(), 1))
      return false;
    found.base = softmax.getResult();
    found.input = softmax.getInput();
    found.kind = Normalizer::softmax;
    return true;
  }
  if (depth-- == 0)
    return false;
  auto follow = [&](unsigned n) { return findBase(rows, rows.operand(of, n), keys, found, depth); };
  if (getAs<arith::MulFOp>(of))
    return follow(0) || follow(1);
  if (getAs<arith::SelectOp>(of))
    return (numberOf(rows.of(of, 1)) == 0 && follow(2)) || (numberOf(rows.of(of, 2)) == 0 && follow(1));
  std::optional<Element> exponent = getAs<math::ExpOp>(of) ? rows.tensor(rows.operand(of, 0)) : std::nullopt;
  Element difference = exponent ? rows.strip(*exponent) : of;
  std::optional<Element> scores =
      getAs<arith::SubFOp>(difference) ? rows.tensor(rows.operand(difference, 0)) : std::nullopt;
  Value base = scores ? madeBy(of) : Value();
  if (!base || scores->at != of.at || scores->value.getType() != base.getType() ||
      !rows.combines(rows.operand(difference, 1), *scores, Combiner::maximum, keys))
    return false;
  found.base = base;
  found.input = scores->value;
  found.kind = Normalizer::softmax;
  found.isShifted = true;
  return true;
}

/// x / f(sum(x)): a normaliser of what x is a multiple of, or none.
static std::optional<Normalization> findScaledRows(RowReader &rows, Value result, const Quotient &quotient) {
  std::optional<Total> total = rows.total(quotient.denominator, quotient.numerator);
  std::optional<int64_t> dim = total ? rows.findDim(total->keys) : std::nullopt;
  if (!dim)
    return std::nullopt;
  Value terms = quotient.numerator.value;
  Normalization found(Normalizer::none, terms, result, *dim);
  found.divisor = quotient.denominator.value;
  found.terms = found.base = terms;
  found.total = total->sum;
  (void)findBase(rows, quotient.numerator, total->keys, found);
  // exp(x - max(x)) over its sum: RaiseSoftmax makes one op of it.
  Element whole = rows.strip(quotient.numerator);
  if (found.isShifted && getAs<math::ExpOp>(whole) && rows.strip(quotient.denominator).value == total->sum)
    return std::nullopt;
  return found;
}

/// Whether a body of `op` asks whether a number is NaN or infinite, or (`any`) compares numbers in any way.
static bool comparesFloats(Operation *op, bool any) {
  auto isInfinite = [](Value value) { return std::isinf(numberOf(value).value_or(0)); };
  auto isTest = [&](Operation *inner) {
    auto compare = dyn_cast<arith::CmpFOp>(inner);
    return isa<math::IsNaNOp, math::IsInfOp, math::IsFiniteOp>(inner) ||
           (compare &&
            (any || compare.getLhs() == compare.getRhs() || isInfinite(compare.getLhs()) ||
             isInfinite(compare.getRhs()) ||
             llvm::is_contained({arith::CmpFPredicate::UNO, arith::CmpFPredicate::ORD}, compare.getPredicate())));
  };
  return op->walk([&](Operation *inner) { return isTest(inner) ? WalkResult::interrupt() : WalkResult::advance(); })
      .wasInterrupted();
}

bool hasGuard(Value exponentials) {
  using Reached = std::pair<Value, unsigned>; // and whether it is near
  return worklist(SmallVector<Reached>{{exponentials, true}}, [](Reached reached, SmallVectorImpl<Reached> &list) {
    auto [value, isNear] = reached;
    for (Operation *user : value.getUsers()) {
      if (comparesFloats(user, isNear))
        return true;
      bool staysNear = isNear && (isPerElement(user) || getReduction(user) == Combiner::sum);
      ValueRange results =
          user->hasTrait<OpTrait::IsTerminator>() ? user->getParentOp()->getResults() : ValueRange(user->getResults());
      for (Value result : results)
        list.push_back({result, staysNear});
    }
    return false;
  });
}

/// exp(x) / (c + sum(exp(x))): one more score, log(c). Not where exponentials may overflow and the graph replaces what
/// becomes of them.
static std::optional<Normalization> findConstantSink(RowReader &rows, Value result, const Quotient &quotient) {
  Element sum = rows.strip(quotient.denominator), exponential = rows.strip(quotient.numerator);
  std::optional<Element> scores =
      getAs<math::ExpOp>(exponential) ? rows.tensor(rows.operand(exponential, 0)) : std::nullopt;
  if (!scores || !rows.isWhole(*scores) || !getAs<arith::AddFOp>(sum))
    return std::nullopt;
  for (unsigned n : {0, 1}) {
    std::optional<double> number = numberOf(rows.of(sum, n));
    if (!number || !(*number > 0) || !std::isfinite(*number))
      continue;
    std::optional<Places> keys = rows.combined(rows.operand(sum, 1 - n), exponential, Combiner::sum);
    std::optional<int64_t> dim = keys ? rows.findDim(*keys) : std::nullopt;
    if (!dim)
      continue;
    if (!findUnshifted(scores->value, 0, *dim) && hasGuard(quotient.numerator.value))
      return std::nullopt;
    Normalization found(Normalizer::softmax, scores->value, result, *dim);
    found.sinkScore = std::log(*number);
    return found;
  }
  return std::nullopt;
}

std::optional<Normalization> findSumNormalization(linalg::LinalgOp op) {
  if (!isPointwise(op) || !isa<FloatType>(getElementTypeOrSelf(op->getResult(0))))
    return std::nullopt;
  Value result = op->getResult(0);
  for (unsigned side : {0, 1}) {
    RowReader rows(result);
    std::optional<Quotient> quotient = rows.quotient(side);
    if (!quotient || !rows.isWhole(quotient->numerator) || !isMultipleOfNonNegative(quotient->numerator.value))
      continue;
    if (std::optional<Normalization> sink = findShiftedSink(rows, result, *quotient))
      return sink;
    // A multiple of a softmax: more than a function of a score.
    std::optional<Normalization> scaled = findScaledRows(rows, result, *quotient);
    if (scaled && scaled->kind == Normalizer::softmax)
      return scaled;
    if (std::optional<Normalization> sink = findConstantSink(rows, result, *quotient))
      return sink;
    Value terms = quotient->numerator.value;
    if (std::optional<Places> keys = rows.combined(quotient->denominator, quotient->numerator, Combiner::sum)) {
      if (std::optional<int64_t> dim = rows.findDim(*keys))
        return Normalization(Normalizer::sum, terms, result, *dim);
      continue;
    }
    if (scaled)
      return scaled;
    if (holdsSumOf(quotient->denominator.value, terms)) {
      Normalization found(Normalizer::sum, terms, result, 0);
      found.flaw = "the weights are not divided by the sum of their row alone";
      return found;
    }
  }
  return std::nullopt;
}

bool isOfProduct(Value value) {
  return isMadeOf(value, [](Value source) {
    Operation *op = source.getDefiningOp();
    return isContraction(op) && !isStatic(op->getOperand(0)) && !isStatic(op->getOperand(1));
  });
}

/// Whether an elementwise op multiplies scores by `value`, or chooses them by it. What is added to them is no gate.
static bool scalesScores(Value value) {
  return llvm::any_of(value.getUsers(), [](Operation *user) {
    return isPointwise(user) && isOfProduct(user->getResult(0)) &&
           llvm::any_of(*cast<linalg::LinalgOp>(user).getBlock(),
                        llvm::IsaPred<arith::MulFOp, arith::DivFOp, arith::SelectOp>);
  });
}

OpOperand *findGate(linalg::LinalgOp sum) {
  if (!isContraction(sum) || sum->getResult(0).use_empty())
    return nullptr;
  for (unsigned n : {0, 1}) {
    Value weights = sum->getOperand(n);
    if (isStatic(sum->getOperand(1 - n)))
      continue;
    bool isGate = false, isScore = false, isOther = false;
    worklist(Values{weights}, [&](Value next, Values &list) {
      Operation *op = next.getDefiningOp();
      isOther |= isa_and_nonnull<SoftmaxOp, AttentionOp>(op);
      if (isContraction(op))
        isScore |= !isStatic(op->getOperand(0)) && !isStatic(op->getOperand(1));
      if (followTensors(op, list))
        isGate |= !isView(op) && isNonNegative(next) && (isOfProduct(next) || scalesScores(next));
      return false;
    });
    if (isGate && isScore && !isOther)
      return &sum->getOpOperand(n);
  }
  return nullptr;
}

} // namespace attn
