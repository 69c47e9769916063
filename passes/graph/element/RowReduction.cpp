#include "passes/graph/element/RowReduction.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/DenseSet.h"

using namespace mlir;

namespace attn {

Operation *getScalarOp(linalg::LinalgOp op) {
  return op && isPointwise(op) ? stripConversions(op.getBlock()->getTerminator()->getOperand(0)).getDefiningOp()
                               : nullptr;
}

OpOperand *getInput(linalg::LinalgOp op, Value scalar) {
  auto argument = dyn_cast<BlockArgument>(stripConversions(scalar));
  if (!argument || argument.getOwner() != op.getBlock())
    return nullptr;
  OpOperand *operand = op.getMatchingOpOperand(argument);
  return op.isDpsInput(operand) ? operand : nullptr;
}

bool isAligned(linalg::LinalgOp op, OpOperand *operand) {
  return op.getMatchingIndexingMap(operand) == op.getMatchingIndexingMap(op.getDpsInitOperand(0));
}

std::optional<Quotient> readQuotient(linalg::LinalgOp op, unsigned side, AtomSpace &space) {
  Operation *scalar = getScalarOp(op);
  if (!scalar || !isa<arith::DivFOp, arith::MulFOp>(scalar) || (side == 1 && isa<arith::DivFOp>(scalar)))
    return std::nullopt;
  OpOperand *numerator = getInput(op, scalar->getOperand(side));
  OpOperand *denominator = getInput(op, scalar->getOperand(1 - side));
  if (!numerator || !denominator || !isAligned(op, numerator) || !isa<RankedTensorType>(denominator->get().getType()))
    return std::nullopt;
  Access result;
  for (int64_t dim = 0, rank = cast<RankedTensorType>(op->getResult(0).getType()).getRank(); dim != rank; ++dim)
    result.push_back(space.add(Extent::of(op->getResult(0), dim)));
  std::optional<Access> access =
      AtomSpace::operandAccess(op.getMatchingIndexingMap(denominator), AtomSpace::loopAtoms(op, result));
  if (!access)
    return std::nullopt;
  Read sum{denominator->get(), *access};
  if (isa<arith::MulFOp>(scalar)) { // x * (1 / y)
    space.walkUp(sum.value, sum.access);
    auto inverse = sum.value.getDefiningOp<linalg::LinalgOp>();
    auto division = dyn_cast_or_null<arith::DivFOp>(getScalarOp(inverse));
    auto one = division ? dyn_cast_or_null<FloatAttr>(splatConstant(division.getLhs())) : FloatAttr();
    OpOperand *divisor = one && one.getValue().isExactlyValue(1) ? getInput(inverse, division.getRhs()) : nullptr;
    if (!divisor)
      return std::nullopt;
    access =
        AtomSpace::operandAccess(inverse.getMatchingIndexingMap(divisor), AtomSpace::loopAtoms(inverse, sum.access));
    if (!access)
      return std::nullopt;
    sum = {divisor->get(), *access};
  }
  return Quotient{numerator, sum, result};
}

std::optional<Read> readReduced(AtomSpace &space, Read reduced, Combiner combiner, Atoms &summed) {
  space.walkUp(reduced.value, reduced.access);
  auto op = reduced.value.getDefiningOp<linalg::LinalgOp>();
  if (getReduction(op) != combiner)
    return std::nullopt;
  SmallVector<Atoms> loops = AtomSpace::loopAtoms(op, reduced.access);
  AffineMap map = op.getMatchingIndexingMap(op.getDpsInputOperand(0));
  for (auto [dim, expr] : llvm::enumerate(map.getResults())) {
    unsigned loop = cast<AffineDimExpr>(expr).getPosition();
    if (op.getIteratorTypesArray()[loop] != utils::IteratorType::reduction)
      continue;
    loops[loop] = space.add(Extent::of(op->getOperand(0), dim));
    llvm::append_range(summed, loops[loop]);
  }
  std::optional<Access> access = AtomSpace::operandAccess(map, loops);
  return access ? std::optional(Read{op->getOperand(0), *access}) : std::nullopt;
}

/// The atoms of `rows` in whose place `input` has `summed`; they are equal otherwise.
static std::optional<Atoms> placeKeys(ArrayRef<Atoms> rows, ArrayRef<Atoms> input, Atoms summed) {
  if (rows.size() != input.size())
    return std::nullopt;
  Atoms keys, placed;
  for (auto [mine, theirs] : llvm::zip_equal(rows, input)) {
    if (mine == theirs)
      continue;
    if (llvm::any_of(theirs, [&](unsigned atom) { return !llvm::is_contained(summed, atom); }))
      return std::nullopt;
    llvm::append_range(keys, mine);
    llvm::append_range(placed, theirs);
  }
  llvm::sort(placed);
  llvm::sort(summed);
  if (keys.empty() || placed != summed)
    return std::nullopt;
  // A key that also stands elsewhere is a diagonal.
  for (const Atoms &theirs : input)
    for (unsigned atom : theirs)
      if (llvm::is_contained(keys, atom))
        return std::nullopt;
  return keys;
}

std::optional<Atoms> findReducedAtoms(AtomSpace &space, Read reduced, Read rows, Combiner combiner,
                                      std::optional<unsigned> &unitDim) {
  Atoms summed;
  space.walkUp(reduced.value, reduced.access);
  std::optional<Read> input = readReduced(space, reduced, combiner, summed);
  if (!input)
    return std::nullopt;
  if (summed.empty()) { // a dimension of size 1 has no atoms; only its position tells which it is
    auto op = reduced.value.getDefiningOp<linalg::LinalgOp>();
    AffineMap map = op.getMatchingIndexingMap(op.getDpsInputOperand(0));
    SmallVector<unsigned> sums;
    op.getReductionDims(sums);
    if (sums.size() == 1 && op->getOperand(0) == rows.value)
      unitDim = map.getResultPosition(getAffineDimExpr(sums.front(), op.getContext()));
    return unitDim ? std::optional(Atoms()) : std::nullopt;
  }
  space.walkUp(input->value, input->access);
  space.walkUp(rows.value, rows.access);
  space.resolve(input->access);
  space.resolve(rows.access);
  space.resolve(summed);
  return input->value == rows.value ? placeKeys(rows.access, input->access, summed) : std::nullopt;
}

std::optional<Read> readOperand(AtomSpace &space, linalg::LinalgOp op, OpOperand *operand, Access access) {
  if (!operand || !isa<RankedTensorType>(operand->get().getType()))
    return std::nullopt;
  space.resolve(access);
  std::optional<Access> at =
      AtomSpace::operandAccess(op.getMatchingIndexingMap(operand), AtomSpace::loopAtoms(op, access));
  return at ? std::optional(Read{operand->get(), *at}) : std::nullopt;
}

std::optional<double> constantFactor(linalg::LinalgOp op) {
  if (!isPointwise(op) || op.getNumDpsInputs() != 1 || !getElementTypeOrSelf(op->getResult(0)).isF32())
    return std::nullopt;
  BlockArgument input = op.getMatchingBlockArgument(op.getDpsInputOperand(0));
  Operation *scale = op.getBlock()->getTerminator()->getOperand(0).getDefiningOp();
  if (!scale || !isa<arith::MulFOp, arith::DivFOp>(scale) || !input.getType().isF32())
    return std::nullopt;
  Value factor = scale->getOperand(1);
  if (scale->getOperand(0) != input) {
    if (isa<arith::DivFOp>(scale) || factor != input)
      return std::nullopt;
    factor = scale->getOperand(0);
  }
  auto constant = dyn_cast_or_null<FloatAttr>(splatConstant(factor));
  if (!constant || !constant.getValue().isFiniteNonZero())
    return std::nullopt;
  double value = constant.getValueAsDouble();
  return isa<arith::DivFOp>(scale) ? 1 / value : value;
}

OpOperand *findUnshifted(linalg::LinalgOp shift, unsigned side, int64_t dim) {
  auto difference = dyn_cast_or_null<arith::SubFOp>(getScalarOp(shift));
  OpOperand *scores = difference ? getInput(shift, difference->getOperand(side)) : nullptr;
  OpOperand *maximum = difference ? getInput(shift, difference->getOperand(1 - side)) : nullptr;
  if (!scores || !maximum || !isAligned(shift, scores) || scores->get().getType() != shift->getResult(0).getType() ||
      !shift.getMatchingIndexingMap(shift.getDpsInitOperand(0)).isIdentity())
    return nullptr;
  AtomSpace space;
  Access rows;
  for (int64_t n = 0, rank = cast<RankedTensorType>(scores->get().getType()).getRank(); n != rank; ++n)
    rows.push_back(space.add(Extent::of(scores->get(), n)));
  std::optional<Read> row = readOperand(space, shift, maximum, rows);
  std::optional<unsigned> unitDim;
  std::optional<Atoms> keys =
      row ? findReducedAtoms(space, *row, {scores->get(), rows}, Combiner::maximum, unitDim) : std::nullopt;
  if (!keys)
    return nullptr;
  Atoms expected(rows[dim]);
  space.resolve(expected);
  space.resolve(*keys);
  return *keys == expected && unitDim.value_or(dim) == dim ? scores : nullptr;
}

/// A divisor is made of its sum in few steps.
constexpr unsigned kMostTerms = 256;

/// findTotal, of values not `seen` yet.
static std::optional<std::pair<Value, Atoms>> findTotal(AtomSpace &space, Read value, const Read &terms,
                                                        std::optional<unsigned> &unitDim, DenseSet<Value> &seen) {
  space.walkUp(value.value, value.access);
  if (!seen.insert(value.value).second || seen.size() > kMostTerms)
    return std::nullopt;
  space.resolve(value.access);
  if (std::optional<Atoms> keys = findReducedAtoms(space, value, terms, Combiner::sum, unitDim))
    return std::pair(value.value, *keys);
  auto op = value.value.getDefiningOp<linalg::LinalgOp>();
  if (!op || !isPointwise(op))
    return std::nullopt;
  SmallVector<OpOperand *> inputs = op.getDpsInputOperands();
  for (OpOperand *input : llvm::reverse(inputs))
    if (std::optional<Read> read = readOperand(space, op, input, value.access))
      if (auto total = findTotal(space, *read, terms, unitDim, seen))
        return total;
  return std::nullopt;
}

std::optional<std::pair<Value, Atoms>> findTotal(AtomSpace &space, const Read &value, const Read &terms,
                                                 std::optional<unsigned> &unitDim) {
  DenseSet<Value> seen;
  return findTotal(space, value, terms, unitDim, seen);
}

Scalar readScalar(AtomSpace &space, Read read) {
  while (true) {
    space.walkUp(read.value, read.access);
    space.resolve(read.access);
    auto op = read.value.getDefiningOp<linalg::LinalgOp>();
    if (!op || !isPointwise(op))
      return {read.value, {}, read.access};
    Value yielded = stripConversions(op.getBlock()->getTerminator()->getOperand(0));
    OpOperand *input = getInput(op, yielded);
    SmallVector<Atoms> loops = AtomSpace::loopAtoms(op, read.access);
    if (!input)
      return {yielded, op, Access(loops.begin(), loops.end())};
    std::optional<Access> access = AtomSpace::operandAccess(op.getMatchingIndexingMap(input), loops);
    if (!access || !isa<RankedTensorType>(input->get().getType()))
      return {yielded, op, Access(loops.begin(), loops.end())};
    read = {input->get(), *access};
  }
}

Scalar readOperand(AtomSpace &space, const Scalar &scalar, unsigned n) {
  linalg::LinalgOp op = scalar.op;
  Value value = stripConversions(scalar.value.getDefiningOp()->getOperand(n));
  Access loops(scalar.at);
  for (Atoms &atoms : loops)
    space.resolve(atoms);
  OpOperand *input = getInput(op, value);
  if (!input)
    return {value, op, loops};
  std::optional<Access> access = AtomSpace::operandAccess(op.getMatchingIndexingMap(input), loops);
  if (!access || !isa<RankedTensorType>(input->get().getType()))
    return {value, op, loops};
  return readScalar(space, {input->get(), *access});
}

bool isSame(AtomSpace &space, Scalar a, Scalar b) {
  for (Scalar *scalar : {&a, &b})
    for (Atoms &atoms : scalar->at)
      space.resolve(atoms);
  return a.value == b.value && a.op == b.op && a.at == b.at;
}

/// The atoms of `rows` over which `scalar` is their maximum.
static std::optional<Atoms> findMaximum(AtomSpace &space, const Scalar &scalar, const Read &rows) {
  std::optional<unsigned> unitDim;
  if (scalar.op || !isa<RankedTensorType>(scalar.value.getType()))
    return std::nullopt;
  return findReducedAtoms(space, {scalar.value, scalar.at}, rows, Combiner::maximum, unitDim);
}

/// Whether `condition` asks of nothing but the maximum of a row of `rows`, and no more than whether that is infinite or
/// NaN: all other numbers give one answer.
static bool asksWhetherFinite(AtomSpace &space, const Scalar &condition, const Read &rows, unsigned depth = 8) {
  if (auto number = dyn_cast_or_null<FloatAttr>(splatConstant(condition.value)))
    return number.getValue().isInfinity();
  if (splatConstant(condition.value) || findMaximum(space, condition, rows))
    return true;
  Operation *op = condition.op ? condition.value.getDefiningOp() : nullptr;
  if (!isa_and_nonnull<arith::CmpFOp, arith::CmpIOp, math::AbsFOp, arith::XOrIOp, arith::AndIOp, arith::OrIOp,
                       arith::ExtUIOp, arith::TruncIOp, arith::UIToFPOp>(op) ||
      depth == 0)
    return false;
  return llvm::all_of(llvm::seq(op->getNumOperands()), [&](unsigned n) {
    return asksWhetherFinite(space, readOperand(space, condition, n), rows, depth - 1);
  });
}

/// The atoms over which `shift` is the maximum of a row of `rows`, or is where that is finite; the choice may be
/// spelled as a sum of products with 1 and 0.
static std::optional<Atoms> findFiniteMaximum(AtomSpace &space, const Scalar &shift, const Read &rows) {
  if (!shift.op)
    return findMaximum(space, shift, rows);
  auto isZero = [&](const Scalar &x) {
    if (!getAs<arith::MulFOp>(x))
      return matchPattern(x.value, m_AnyZeroFloat());
    return matchPattern(readOperand(space, x, 0).value, m_AnyZeroFloat()) ||
           matchPattern(readOperand(space, x, 1).value, m_AnyZeroFloat());
  };
  if (getAs<arith::SelectOp>(shift)) {
    if (!asksWhetherFinite(space, readOperand(space, shift, 0), rows))
      return std::nullopt;
    std::optional<Atoms> found = findFiniteMaximum(space, readOperand(space, shift, 1), rows);
    return found ? found : findFiniteMaximum(space, readOperand(space, shift, 2), rows);
  }
  bool isSum = static_cast<bool>(getAs<arith::AddFOp>(shift));
  for (unsigned n : {0, 1})
    if (isSum || getAs<arith::MulFOp>(shift)) {
      Scalar other = readOperand(space, shift, 1 - n);
      if (isSum ? isZero(other)
                : getAs<arith::UIToFPOp>(other) && asksWhetherFinite(space, readOperand(space, other, 0), rows))
        if (std::optional<Atoms> found = findFiniteMaximum(space, readOperand(space, shift, n), rows))
          return found;
    }
  return std::nullopt;
}

bool isFiniteMaximum(AtomSpace &space, Read shift, Read rows, Atoms keys) {
  std::optional<Atoms> found = findFiniteMaximum(space, readScalar(space, std::move(shift)), rows);
  if (!found)
    return false;
  space.resolve(keys);
  space.resolve(*found);
  return *found == keys;
}

std::optional<Atoms> findLogSumExpAtoms(AtomSpace &space, Read logs, Read rows) {
  // log(sum(exp(x - max(x)))) + max(x); without the maximum, exponentials may overflow
  Scalar result = readScalar(space, std::move(logs));
  if (!getAs<arith::AddFOp>(result))
    return std::nullopt;
  for (unsigned n : {0, 1}) {
    Scalar log = readOperand(space, result, n), shift = readOperand(space, result, 1 - n);
    std::optional<Atoms> highest = getAs<math::LogOp>(log) ? findFiniteMaximum(space, shift, rows) : std::nullopt;
    if (!highest)
      continue;
    Scalar sum = readOperand(space, log, 0);
    Atoms summed;
    std::optional<Read> input = sum.op ? std::nullopt : readReduced(space, {sum.value, sum.at}, Combiner::sum, summed);
    Scalar exponential = input ? readScalar(space, *input) : Scalar();
    if (!input || !getAs<math::ExpOp>(exponential))
      continue;
    Scalar difference = readOperand(space, exponential, 0);
    if (!getAs<arith::SubFOp>(difference) || !isSame(space, readOperand(space, difference, 1), shift))
      continue;
    Scalar element = readOperand(space, difference, 0), row = readScalar(space, rows);
    for (Access *lists : {&element.at, &row.at})
      space.resolve(*lists);
    space.resolve(summed);
    if (element.value == row.value && element.op == row.op)
      if (std::optional<Atoms> keys = placeKeys(row.at, element.at, summed)) {
        space.resolve(*keys);
        space.resolve(*highest);
        if (*keys == *highest)
          return keys;
      }
  }
  return std::nullopt;
}

} // namespace attn
