#include "passes/graph/attention/Normalization.h"

#include "passes/graph/Structured.h"
#include "passes/graph/attention/AttentionMatch.h"
#include "passes/graph/attention/AttentionSink.h"
#include "passes/graph/element/LowerBound.h"
#include "passes/graph/element/RowReduction.h"

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
  auto root = [](Value value) {
    while (isView(value.getDefiningOp()))
      value = value.getDefiningOp()->getOperand(0);
    return value;
  };
  terms = root(terms);
  return worklist(Values{value}, [&](Value next, Values &list) {
    Operation *op = next.getDefiningOp();
    followTensors(op, list);
    return getReduction(op) == Combiner::sum && root(op->getOperand(0)) == terms;
  });
}

bool isMultipleOfNonNegative(Value value, unsigned depth) {
  while (isView(value.getDefiningOp()))
    value = value.getDefiningOp()->getOperand(0);
  if (isNonNegative(value))
    return true;
  auto op = value.getDefiningOp<linalg::LinalgOp>();
  auto product = dyn_cast_or_null<arith::MulFOp>(getScalarOp(op));
  return product && depth != 0 && llvm::any_of(product->getOperands(), [&](Value factor) {
           OpOperand *input = getInput(op, factor);
           return input && isa<RankedTensorType>(input->get().getType()) && !isStatic(input->get()) &&
                  isMultipleOfNonNegative(input->get(), depth - 1);
         });
}

/// What makes a softmax over `keys` of which `value` is a multiple: sets base, input, kind and isShifted of `found`.
static bool findBase(AtomSpace &space, Read value, const Atoms &keys, Normalization &found, unsigned depth = 8) {
  space.walkUp(value.value, value.access);
  space.resolve(value.access);
  if (auto softmax = value.value.getDefiningOp<SoftmaxOp>()) {
    Atoms wanted(keys);
    space.resolve(wanted);
    if (softmax.getLog() || value.access[softmax.getDim()] != wanted)
      return false;
    found.base = softmax.getResult();
    found.input = softmax.getInput();
    found.kind = Normalizer::softmax;
    return true;
  }
  auto op = value.value.getDefiningOp<linalg::LinalgOp>();
  Operation *scalar = getScalarOp(op);
  if (!scalar || depth-- == 0)
    return false;
  auto follow = [&](Value factor) {
    std::optional<Read> read = readOperand(space, op, getInput(op, factor), value.access);
    return read && findBase(space, *read, keys, found, depth);
  };
  if (isa<arith::MulFOp>(scalar))
    return follow(scalar->getOperand(0)) || follow(scalar->getOperand(1));
  if (auto select = dyn_cast<arith::SelectOp>(scalar)) {
    auto isZero = [&](Value chosen) {
      auto number = dyn_cast_or_null<FloatAttr>(splatConstant(chosen));
      OpOperand *input = getInput(op, chosen);
      return (number && number.getValue().isZero()) || (input && isZeroFill(input->get()));
    };
    return (isZero(select.getTrueValue()) && follow(select.getFalseValue())) ||
           (isZero(select.getFalseValue()) && follow(select.getTrueValue()));
  }
  OpOperand *exponent = isa<math::ExpOp>(scalar) ? getInput(op, scalar->getOperand(0)) : nullptr;
  if (!exponent || !isAligned(op, exponent))
    return false;
  auto shift = exponent->get().getDefiningOp<linalg::LinalgOp>();
  auto difference = dyn_cast_or_null<arith::SubFOp>(getScalarOp(shift));
  OpOperand *scores = difference ? getInput(shift, difference.getLhs()) : nullptr;
  if (!scores || !isAligned(shift, scores) || scores->get().getType() != value.value.getType())
    return false;
  std::optional<Read> maximum = readOperand(space, shift, getInput(shift, difference.getRhs()), value.access);
  std::optional<unsigned> unitDim;
  std::optional<Atoms> over =
      maximum ? findReducedAtoms(space, *maximum, {scores->get(), value.access}, Combiner::maximum, unitDim)
              : std::nullopt;
  Atoms wanted(keys);
  space.resolve(wanted);
  if (over)
    space.resolve(*over);
  if (!over || *over != wanted)
    return false;
  found.base = value.value;
  found.input = scores->get();
  found.kind = Normalizer::softmax;
  found.isShifted = true;
  return true;
}

/// `op` = x / f(sum(x)): a normaliser of what x is a multiple of, or none.
static std::optional<Normalization> findScaledRows(linalg::LinalgOp op, const Quotient &quotient, AtomSpace &space) {
  Value terms = quotient.numerator->get(), result = op->getResult(0);
  std::optional<unsigned> unitDim;
  auto total = findTotal(space, quotient.denominator, {terms, quotient.result}, unitDim);
  if (!total)
    return std::nullopt;
  auto &[sum, keys] = *total;
  Access at(quotient.result);
  space.resolve(at);
  space.resolve(keys);
  auto *dim = unitDim ? at.begin() + *unitDim : llvm::find(at, keys);
  if (dim == at.end())
    return std::nullopt;
  Normalization found(Normalizer::none, terms, result, dim - at.begin());
  found.divisor = quotient.denominator.value;
  found.terms = found.base = terms;
  found.total = sum;
  (void)findBase(space, {terms, quotient.result}, keys, found);
  // exp(x - max(x)) over its sum: RaiseSoftmax makes one op of it.
  Read whole{terms, quotient.result}, divisor = quotient.denominator;
  space.walkUp(whole.value, whole.access);
  space.walkUp(divisor.value, divisor.access);
  if (found.isShifted && whole.value == found.base && divisor.value == sum)
    return std::nullopt;
  return found;
}

std::optional<Normalization> findSumNormalization(linalg::LinalgOp op) {
  for (unsigned side : {0, 1}) {
    AtomSpace space;
    std::optional<Quotient> quotient = readQuotient(op, side, space);
    if (!quotient || !isa<FloatType>(getElementTypeOrSelf(op->getResult(0))) ||
        !isMultipleOfNonNegative(quotient->numerator->get()))
      continue;
    Value terms = quotient->numerator->get(), result = op->getResult(0);
    if (terms.getType() != result.getType() || !op.getMatchingIndexingMap(quotient->numerator).isIdentity())
      continue;
    if (std::optional<Normalization> sink = findShiftedSink(op, *quotient, space))
      return sink;
    // A multiple of a softmax: more than a function of a score.
    if (std::optional<Normalization> scaled = findScaledRows(op, *quotient, space);
        scaled && scaled->kind == Normalizer::softmax)
      return scaled;
    Read sum = quotient->denominator;
    // exp(x) / (c + sum(exp(x))): one more score, log(c).
    std::optional<double> more;
    space.walkUp(sum.value, sum.access);
    auto shifted = sum.value.getDefiningOp<linalg::LinalgOp>();
    auto exponential = terms.getDefiningOp<linalg::LinalgOp>();
    auto exp = dyn_cast_or_null<math::ExpOp>(getScalarOp(exponential));
    OpOperand *exponent = exp ? getInput(exponential, exp.getOperand()) : nullptr;
    if (auto add = dyn_cast_or_null<arith::AddFOp>(getScalarOp(shifted)); add && exponent)
      for (unsigned n : {0, 1}) {
        auto constant = dyn_cast_or_null<FloatAttr>(splatConstant(add->getOperand(n)));
        OpOperand *rest = getInput(shifted, add->getOperand(1 - n));
        double number = constant ? constant.getValueAsDouble() : 0;
        if (!rest || !(number > 0) || !std::isfinite(number) || !isAligned(exponential, exponent) ||
            exponent->get().getType() != result.getType())
          continue;
        if (std::optional<Access> at = AtomSpace::operandAccess(shifted.getMatchingIndexingMap(rest),
                                                                AtomSpace::loopAtoms(shifted, sum.access))) {
          sum = {rest->get(), *at};
          more = std::log(number);
          break;
        }
      }
    std::optional<unsigned> unitDim;
    std::optional<Atoms> keys = findReducedAtoms(space, sum, {terms, quotient->result}, Combiner::sum, unitDim);
    Access at(quotient->result);
    if (keys) {
      space.resolve(at);
      space.resolve(*keys);
      auto *dim = unitDim ? at.begin() + *unitDim : llvm::find(at, *keys);
      if (dim != at.end()) {
        Normalization found(more ? Normalizer::softmax : Normalizer::sum, more ? exponent->get() : terms, result,
                            dim - at.begin());
        found.sinkScore = more;
        return found;
      }
    }
    if (std::optional<Normalization> scaled = keys ? std::nullopt : findScaledRows(op, *quotient, space))
      return scaled;
    if (!keys && holdsSumOf(quotient->denominator.value, terms)) {
      Normalization found(Normalizer::sum, terms, result, 0);
      found.flaw = "the weights are not divided by the sum of their row alone";
      return found;
    }
  }
  return std::nullopt;
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
        isGate |= !isView(op) && isNonNegative(next);
      return false;
    });
    if (isGate && isScore && !isOther)
      return &sum->getOpOperand(n);
  }
  return nullptr;
}

} // namespace attn
