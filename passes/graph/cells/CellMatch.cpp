#include "passes/graph/cells/CellMatch.h"

#include "passes/graph/Structured.h"
#include "passes/graph/element/Access.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Transforms/RegionUtils.h"

using namespace mlir;

namespace attn {

bool GateTerm::hasWeightOf(const GateTerm &other) const {
  if (!weight)
    return false;
  auto own = weight.getDefiningOp<WeightOp>(), theirs = other.weight.getDefiningOp<WeightOp>();
  bool isSame = weight == other.weight || (own && theirs && own.getGlobal() == theirs.getGlobal());
  return isSame && unitDim == other.unitDim && firstUnit == other.firstUnit && first == other.first &&
         size == other.size;
}

namespace {

/// The input of an elementwise op that `scalar` is an element of, and the op; null if it is none.
OpOperand *inputOf(Value scalar, linalg::LinalgOp &op) {
  auto argument = dyn_cast<BlockArgument>(scalar);
  op = argument ? dyn_cast<linalg::LinalgOp>(argument.getOwner()->getParentOp()) : linalg::LinalgOp();
  if (!op || !isPointwise(op))
    return nullptr;
  OpOperand *operand = op.getMatchingOpOperand(argument);
  bool isAligned = op.getMatchingIndexingMap(op.getDpsInitOperand(0)).isIdentity();
  return op.isDpsInput(operand) && isAligned ? operand : nullptr;
}

bool isNumber(const CellElement &element, double number) { return numberOf(element) == number; }

/// select(x < bound, bound, x), or > for an upper bound: x.
std::optional<CellElement> matchBound(const CellElement &element, bool isLower, double bound) {
  auto select = getOp<arith::SelectOp>(element);
  auto compare = select ? select.getCondition().getDefiningOp<arith::CmpFOp>() : arith::CmpFOp();
  auto predicate = isLower ? arith::CmpFPredicate::OLT : arith::CmpFPredicate::OGT;
  if (compare && compare.getPredicate() == predicate && compare.getLhs() == select.getFalseValue() &&
      isNumber({compare.getRhs(), element.column}, bound) && isNumber(operand(element, 1), bound))
    return operand(element, 2);
  Operation *op = element.value.getDefiningOp();
  bool isExtreme = isLower ? isa_and_nonnull<arith::MaximumFOp, arith::MaxNumFOp>(op)
                           : isa_and_nonnull<arith::MinimumFOp, arith::MinNumFOp>(op);
  for (unsigned n : {0, 1})
    if (isExtreme && isNumber(operand(element, n), bound))
      return operand(element, 1 - n);
  return std::nullopt;
}

/// a * b for a number a: a and b.
template <typename Op> std::optional<std::pair<double, CellElement>> withNumber(const CellElement &element) {
  if (!getOp<Op>(element))
    return std::nullopt;
  for (unsigned n : {0, 1})
    if (std::optional<double> number = numberOf(operand(element, n)))
      return std::pair(*number, operand(element, 1 - n));
  return std::nullopt;
}

using Activated = std::pair<ActivationAttr, CellElement>;

/// A function into [0, 1], of what.
std::optional<Activated> matchGate(const CellElement &element) {
  MLIRContext *context = element.value.getContext();
  if (getOp<arith::DivFOp>(element) && isNumber(operand(element, 0), 1)) {
    std::optional<std::pair<double, CellElement>> sum = withNumber<arith::AddFOp>(operand(element, 1));
    if (!sum || sum->first != 1 || !getOp<math::ExpOp>(sum->second))
      return std::nullopt;
    CellElement power = operand(sum->second, 0);
    if (!getOp<arith::NegFOp>(power))
      return std::nullopt;
    return Activated{ActivationAttr::get(context, ActivationKind::sigmoid, {}, {}), operand(power, 0)};
  }
  std::optional<CellElement> above = matchBound(element, /*isLower=*/false, 1);
  std::optional<CellElement> line = above ? matchBound(*above, /*isLower=*/true, 0) : std::nullopt;
  auto sum = line ? withNumber<arith::AddFOp>(*line) : std::nullopt;
  auto product = sum ? withNumber<arith::MulFOp>(sum->second) : std::nullopt;
  if (!product)
    return std::nullopt;
  Builder b(context);
  return Activated{ActivationAttr::get(context, ActivationKind::hard_sigmoid, b.getF64FloatAttr(product->first),
                                       b.getF64FloatAttr(sum->first)),
                   product->second};
}

/// The function of a candidate or of the cell that goes out, of what.
std::optional<Activated> matchSquash(const CellElement &element) {
  MLIRContext *context = element.value.getContext();
  if (getOp<math::TanhOp>(element))
    return Activated{ActivationAttr::get(context, ActivationKind::tanh, {}, {}), operand(element, 0)};
  if (std::optional<CellElement> x = matchBound(element, /*isLower=*/true, 0))
    return Activated{ActivationAttr::get(context, ActivationKind::relu, {}, {}), *x};
  return std::nullopt;
}

bool isConstant(Value value) {
  return value && (value.getDefiningOp<WeightOp>() || value.getDefiningOp<arith::ConstantOp>());
}

class CellMatcher {
public:
  CellMatcher(linalg::LinalgOp op, bool splitInputs) : result(op), splitInputs(splitInputs) {}

  std::optional<CellMatch> match() {
    auto type = dyn_cast<RankedTensorType>(result->getResult(0).getType());
    if (!type || type.getRank() < 2 || type.isDynamicDim(type.getRank() - 1) || !type.getElementType().isF32())
      return std::nullopt;
    units = type.getDimSize(type.getRank() - 1);
    CellElement state = resolve({result->getResult(0), 0});
    for (auto matchKind : {&CellMatcher::matchLstm, &CellMatcher::matchGru, &CellMatcher::matchRnn}) {
      found = CellMatch();
      found.units = units;
      found.result = result;
      if ((this->*matchKind)(state))
        return std::move(found);
    }
    return std::nullopt;
  }

private:
  bool matchLstm(const CellElement &state);
  bool matchCellSum(const CellElement &sum, const Activated &output, ActivationAttr squash);
  bool matchGru(const CellElement &state);
  bool matchBlend(const CellElement &update, const CellElement &first, const CellElement &second);
  bool matchState(const CellElement &update, const CellElement &next, const CellElement &before);
  bool matchReset(const CellElement &sum, const Activated &update);
  bool matchRnn(const CellElement &state);
  bool addGate(const CellElement &sum, Gate &gate);
  bool addProduct(linalg::LinalgOp product, int64_t column, Gate &gate);
  bool addVector(const CellElement &element, Gate &gate);
  bool addColumns(const CellElement &element, Gate &gate);
  bool addSummand(const CellElement &summand, Gate &gate);
  /// The tensor of an element, or null; of one with a column for each unit.
  static Value tensorOf(const CellElement &element);
  Value toTensor(const CellElement &element);
  void collectSummands(const CellElement &sum, SmallVectorImpl<CellElement> &summands, unsigned depth = 0);

  linalg::LinalgOp result;
  bool splitInputs;
  int64_t units = 0;
  CellMatch found;
};

Value CellMatcher::tensorOf(const CellElement &element) {
  if (isa<RankedTensorType>(element.value.getType()))
    return element.value;
  Operation *op = element.value.getDefiningOp();
  auto owner = op ? dyn_cast<linalg::LinalgOp>(op->getParentOp()) : linalg::LinalgOp();
  bool isWhole = owner && isPointwise(owner) && owner.getBlock()->getTerminator()->getOperand(0) == element.value;
  return isWhole ? owner->getResult(0) : Value();
}

Value CellMatcher::toTensor(const CellElement &element) {
  Value value = tensorOf(element);
  auto type = value ? cast<RankedTensorType>(value.getType()) : RankedTensorType();
  return type && element.column == 0 && type.getRank() > 0 && type.getShape().back() == units ? value : Value();
}

//===----------------------------------------------------------------------===//
// Sums
//===----------------------------------------------------------------------===//

bool CellMatcher::addProduct(linalg::LinalgOp product, int64_t column, Gate &gate) {
  if (!isContraction(product) || !isZeroFill(product.getDpsInits()[0]))
    return false;
  SmallVector<AffineMap> maps = product.getIndexingMapsArray();
  SmallVector<unsigned> sums;
  product.getReductionDims(sums);
  if (sums.size() != 1 || maps[2].getNumResults() < 2)
    return false;
  AffineExpr unit = maps[2].getResults().back(), depth = getAffineDimExpr(sums[0], product.getContext());
  for (unsigned n : {0, 1}) {
    Value weight = product->getOperand(n), input = product->getOperand(1 - n);
    SmallVector<AffineExpr> read(maps[2].getResults().drop_back());
    read.push_back(depth);
    std::optional<unsigned> unitDim = maps[n].getResultPosition(unit);
    if (!isConstant(weight) || !unitDim || maps[n].getNumResults() != 2 || !maps[n].getResultPosition(depth) ||
        ArrayRef<AffineExpr>(read) != maps[1 - n].getResults())
      continue;
    auto type = cast<RankedTensorType>(weight.getType());
    if (!type.hasStaticShape() || column + units > type.getDimSize(*unitDim) || isConstant(input))
      continue;
    auto inputType = cast<RankedTensorType>(input.getType());
    SmallVector<ConcatPart> parts;
    if (splitInputs)
      parts = concatParts(input, inputType.getRank() - 1);
    if (parts.empty())
      parts.push_back({input, 0, inputType.getShape().back()});
    if (ShapedType::isDynamic(parts.front().size))
      return false;
    for (const ConcatPart &part : llvm::reverse(parts))
      gate.terms.push_back({product, part.source, weight, *unitDim, column, part.offset, part.size});
    return true;
  }
  return false;
}

/// A vector with an element for each unit, and the same for all rows.
bool CellMatcher::addVector(const CellElement &element, Gate &gate) {
  if (std::optional<double> number = numberOf(element)) {
    gate.biases.push_back({{}, 0, *number});
    return true;
  }
  Value vector = element.value;
  linalg::LinalgOp op;
  if (!isa<RankedTensorType>(vector.getType())) {
    OpOperand *input = inputOf(vector, op);
    if (!input || !isa<RankedTensorType>(input->get().getType()))
      return false;
    AffineMap map = op.getMatchingIndexingMap(input);
    if (map.getNumResults() != 1 || map.getResult(0) != getAffineDimExpr(op.getNumLoops() - 1, op.getContext()))
      return false;
    vector = input->get();
  }
  vector = rootOf(vector);
  auto type = cast<RankedTensorType>(vector.getType());
  if (!isConstant(vector) || type.getRank() == 0 || type.getNumElements() != type.getShape().back() ||
      element.column + units > type.getShape().back())
    return false;
  gate.biases.push_back({vector, element.column, 0});
  return true;
}

/// A tensor with a column for each unit, whatever has made it: a product of all steps, of which this is one step's.
bool CellMatcher::addColumns(const CellElement &element, Gate &gate) {
  Value value = tensorOf(element);
  auto type = value ? cast<RankedTensorType>(value.getType()) : RankedTensorType();
  if (!type || type.getRank() == 0 || !type.getElementType().isF32() || isConstant(value) ||
      ShapedType::isDynamic(type.getShape().back()) || element.column + units > type.getShape().back())
    return false;
  gate.terms.push_back({nullptr, value, Value(), 0, element.column, 0, 0});
  return true;
}

bool CellMatcher::addSummand(const CellElement &summand, Gate &gate) {
  auto product = summand.value.getDefiningOp<linalg::LinalgOp>();
  return (product && addProduct(product, summand.column, gate)) || addVector(summand, gate) ||
         addColumns(summand, gate);
}

/// The summands of a sum of sums. Beyond the limits a sum is one of them, which is nothing that a gate has.
void CellMatcher::collectSummands(const CellElement &sum, SmallVectorImpl<CellElement> &summands, unsigned depth) {
  constexpr size_t kMost = 64;
  if (!getOp<arith::AddFOp>(sum) || depth == kMost || summands.size() >= kMost) {
    summands.push_back(sum);
    return;
  }
  collectSummands(operand(sum, 0), summands, depth + 1);
  collectSummands(operand(sum, 1), summands, depth + 1);
}

/// The summands of a gate; false where one is nothing that a gate has.
bool CellMatcher::addGate(const CellElement &sum, Gate &gate) {
  SmallVector<CellElement> summands;
  collectSummands(sum, summands);
  return llvm::all_of(summands, [&](const CellElement &summand) { return addSummand(summand, gate); });
}

//===----------------------------------------------------------------------===//
// Cells
//===----------------------------------------------------------------------===//

/// h = o squash(c)
bool CellMatcher::matchLstm(const CellElement &state) {
  if (!getOp<arith::MulFOp>(state))
    return false;
  for (unsigned n : {0, 1}) {
    std::optional<Activated> output = matchGate(operand(state, n)), squash = matchSquash(operand(state, 1 - n));
    if (output && squash && matchCellSum(squash->second, *output, squash->first))
      return true;
  }
  return false;
}

/// c' = f c + i squash(g)
bool CellMatcher::matchCellSum(const CellElement &sum, const Activated &output, ActivationAttr squash) {
  Value memory = toTensor(sum);
  if (!getOp<arith::AddFOp>(sum) || !memory)
    return false;
  for (unsigned side : {0, 1}) {
    CellElement fresh = operand(sum, side), kept = operand(sum, 1 - side);
    if (!getOp<arith::MulFOp>(fresh) || !getOp<arith::MulFOp>(kept))
      return false;
    for (unsigned n : {0, 1})
      for (unsigned m : {0, 1}) {
        std::optional<Activated> input = matchGate(operand(fresh, n)), candidate = matchSquash(operand(fresh, 1 - n)),
                                 forget = matchGate(operand(kept, m));
        Value before = toTensor(operand(kept, 1 - m));
        if (!input || !candidate || !forget || !before || input->first != output.first || forget->first != output.first)
          continue;
        SmallVector<Gate> gates(4);
        if (!addGate(input->second, gates[0]) || !addGate(output.second, gates[1]) ||
            !addGate(forget->second, gates[2]) || !addGate(candidate->second, gates[3]))
          continue;
        found.cell = RecurrentLayer::Lstm;
        found.memory = cast<linalg::LinalgOp>(memory.getDefiningOp());
        found.before = before;
        found.activations = {output.first, candidate->first, squash};
        found.gates = std::move(gates);
        return true;
      }
  }
  return false;
}

/// h' = (1 - z) n + z h, or n + z (h - n), n - z (n - h), h + (1 - z) (n - h); or the same with n and h exchanged
bool CellMatcher::matchGru(const CellElement &state) {
  auto oneMinus = [](const CellElement &element) -> std::optional<CellElement> {
    if (!getOp<arith::SubFOp>(element) || !isNumber(operand(element, 0), 1))
      return std::nullopt;
    return operand(element, 1);
  };
  bool isDifference = static_cast<bool>(getOp<arith::SubFOp>(state));
  if (!isDifference && !getOp<arith::AddFOp>(state))
    return false;
  for (unsigned side : {0, 1}) {
    CellElement first = operand(state, side), second = operand(state, 1 - side);
    if (isDifference && side == 1)
      break;
    if (!getOp<arith::MulFOp>(second))
      continue;
    for (unsigned m : {0, 1}) {
      CellElement factor = operand(second, m), other = operand(second, 1 - m);
      if (getOp<arith::SubFOp>(other)) {
        CellElement from = operand(other, 0), to = operand(other, 1);
        if (!isDifference && to == first && matchBlend(factor, first, from))
          return true;
        if (isDifference && from == first && matchBlend(factor, first, to))
          return true;
        std::optional<CellElement> update = oneMinus(factor);
        if (!isDifference && update && to == first && matchBlend(*update, from, first))
          return true;
      }
      if (isDifference || !getOp<arith::MulFOp>(first))
        continue;
      for (unsigned n : {0, 1})
        if (std::optional<CellElement> update = oneMinus(operand(first, n)); update && *update == factor)
          if (matchBlend(factor, operand(first, 1 - n), other))
            return true;
    }
  }
  return false;
}

/// (1 - update) * first + update * second
bool CellMatcher::matchBlend(const CellElement &update, const CellElement &first, const CellElement &second) {
  found.mirrored = false;
  if (matchState(update, first, second))
    return true;
  found.mirrored = true;
  return matchState(update, second, first);
}

bool CellMatcher::matchState(const CellElement &update, const CellElement &next, const CellElement &before) {
  std::optional<Activated> gate = matchGate(update), candidate = matchSquash(next);
  found.before = toTensor(before);
  if (!gate || !candidate || !found.before)
    return false;
  found.cell = RecurrentLayer::Gru;
  found.gates.assign(3, Gate());
  found.activations = {gate->first, candidate->first};
  return addGate(gate->second, found.gates[0]) && matchReset(candidate->second, *gate);
}

/// The sum of the candidate: products of the input, biases, and the old state's part, which the reset gate shuts.
bool CellMatcher::matchReset(const CellElement &sum, const Activated &update) {
  SmallVector<CellElement> summands;
  collectSummands(sum, summands);
  std::optional<Activated> reset;
  auto isReset = [&](const CellElement &product, unsigned n) {
    std::optional<Activated> gate = matchGate(operand(product, n));
    if (!gate || gate->first != update.first || reset)
      return false;
    reset = gate;
    return true;
  };
  found.reset.reset();
  found.resetState = {};
  for (const CellElement &summand : summands) {
    if (getOp<arith::MulFOp>(summand)) { // r (h R + b)
      found.reset.emplace();
      unsigned n = isReset(summand, 0) ? 0 : 1;
      if ((n == 1 && !isReset(summand, 1)) || !addGate(operand(summand, 1 - n), *found.reset))
        return false;
      continue;
    }
    if (!addSummand(summand, found.gates[2]))
      return false;
  }
  if (found.reset)
    return addGate(reset->second, found.gates[1]);
  for (const GateTerm &term : found.gates[2].terms) { // (r h) R
    CellElement product = resolve({term.input, 0});
    if (!getOp<arith::MulFOp>(product))
      continue;
    for (unsigned n : {0, 1})
      if (toTensor(operand(product, 1 - n)) == found.before && isReset(product, n)) {
        found.resetState = term.input;
        return addGate(reset->second, found.gates[1]);
      }
  }
  return false;
}

/// h' = squash(x W + h R + b): the rest of the graph must show that h is a state.
bool CellMatcher::matchRnn(const CellElement &state) {
  std::optional<Activated> squash = matchSquash(state);
  found.cell = RecurrentLayer::Rnn;
  found.gates.assign(1, Gate());
  if (!squash || !addGate(squash->second, found.gates[0]))
    return false;
  found.activations = {squash->first};
  return true;
}

} // namespace

bool dependsOn(Value value, Operation *source) {
  return worklist(Values{value}, [&](Value next, Values &list) {
    Operation *op = next.getDefiningOp();
    op = op ? source->getBlock()->findAncestorOpInBlock(*op) : nullptr;
    // What stands before does not depend on it.
    if (op && !op->isBeforeInBlock(source)) {
      llvm::append_range(list, op->getOperands());
      visitUsedValuesDefinedAbove(op->getRegions(), [&](OpOperand *used) { list.push_back(used->get()); });
    }
    return op == source;
  });
}

std::optional<CellMatch> matchCell(linalg::LinalgOp op, bool splitInputs) {
  if (!isPointwise(op) || !op.getMatchingIndexingMap(op.getDpsInitOperand(0)).isIdentity())
    return std::nullopt;
  return CellMatcher(op, splitInputs).match();
}

} // namespace attn
