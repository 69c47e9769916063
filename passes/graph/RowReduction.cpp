#include "passes/graph/RowReduction.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

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

std::optional<Atoms> findReducedAtoms(AtomSpace &space, Read reduced, Read rows, Combiner combiner,
                                      std::optional<unsigned> &unitDim) {
  space.walkUp(reduced.value, reduced.access);
  auto op = reduced.value.getDefiningOp<linalg::LinalgOp>();
  if (getReduction(op) != combiner)
    return std::nullopt;
  SmallVector<Atoms> loops = AtomSpace::loopAtoms(op, reduced.access);
  AffineMap map = op.getMatchingIndexingMap(op.getDpsInputOperand(0));
  Atoms summed;
  for (auto [dim, expr] : llvm::enumerate(map.getResults())) {
    unsigned loop = cast<AffineDimExpr>(expr).getPosition();
    if (op.getIteratorTypesArray()[loop] != utils::IteratorType::reduction)
      continue;
    loops[loop] = space.add(Extent::of(op->getOperand(0), dim));
    llvm::append_range(summed, loops[loop]);
  }
  std::optional<Access> access = AtomSpace::operandAccess(map, loops);
  if (!access)
    return std::nullopt;
  if (summed.empty()) { // a dimension of size 1 has no atoms; only its position tells which it is
    SmallVector<unsigned> sums;
    op.getReductionDims(sums);
    if (sums.size() == 1 && op->getOperand(0) == rows.value)
      unitDim = map.getResultPosition(getAffineDimExpr(sums.front(), op.getContext()));
    return unitDim ? std::optional(Atoms()) : std::nullopt;
  }
  Read input{op->getOperand(0), *access};
  space.walkUp(input.value, input.access);
  space.walkUp(rows.value, rows.access);
  space.resolve(input.access);
  space.resolve(rows.access);
  space.resolve(summed);
  if (input.value != rows.value)
    return std::nullopt;
  // Equal but for the atoms that are summed, which stand in the keys' place.
  Atoms keys, placed;
  for (auto [mine, theirs] : llvm::zip_equal(rows.access, input.access)) {
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
  for (const Atoms &theirs : input.access)
    for (unsigned atom : theirs)
      if (llvm::is_contained(keys, atom))
        return std::nullopt;
  return keys;
}

} // namespace attn
