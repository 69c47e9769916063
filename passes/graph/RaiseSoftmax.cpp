#include "dialects/attn/AttnOps.h"
#include "passes/Passes.h"
#include "passes/graph/Access.h"
#include "passes/graph/AssumeRequired.h"
#include "passes/graph/Structured.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/IR/Remarks.h"

using namespace mlir;

namespace attn {
#define GEN_PASS_DEF_RAISESOFTMAXPASS
#include "passes/Passes.h.inc"

namespace {

/// A tensor and how it is read at a point of the loops of the op at hand.
struct Read {
  Value value;
  Access access;
};

/// The scalar op that computes the element of an elementwise op from elements
/// of its inputs, conversions between float types aside.
Operation *getScalarOp(linalg::LinalgOp op) {
  return op && isPointwise(op) ? stripConversions(op.getBlock()->getTerminator()->getOperand(0)).getDefiningOp()
                               : nullptr;
}

/// The input of `op` whose element `scalar` is, or null.
OpOperand *getInput(linalg::LinalgOp op, Value scalar) {
  auto argument = dyn_cast<BlockArgument>(stripConversions(scalar));
  if (!argument || argument.getOwner() != op.getBlock())
    return nullptr;
  OpOperand *operand = op.getMatchingOpOperand(argument);
  return op.isDpsInput(operand) ? operand : nullptr;
}

/// Whether `operand` is read element for element: at the place that is written.
bool isAligned(linalg::LinalgOp op, OpOperand *operand) {
  return op.getMatchingIndexingMap(operand) == op.getMatchingIndexingMap(op.getDpsInitOperand(0));
}

class SoftmaxFinder {
public:
  /// Raises `op` = e / sum(e) or exp(log softmax), if it is one of them.
  LogicalResult raise(RewriterBase &rewriter, linalg::LinalgOp op);

  /// Drops the row's maximum from the input of `softmax`: s - max and max - s.
  void dropMaximum(RewriterBase &rewriter, SoftmaxOp softmax);

private:
  bool reducesRowsOf(Read reduced, Read rows, Combiner combiner, const Atoms &keys);
  std::optional<Atoms> findKeys(Read reduced, Read rows, Combiner combiner);

  AtomSpace space;
  /// Set by findKeys where the dimension has size 1.
  std::optional<unsigned> unitDim;
};

/// The atoms of `rows` over which `reduced` combines its elements: `reduced` is
/// that reduction, and both are read at one point.
std::optional<Atoms> SoftmaxFinder::findKeys(Read reduced, Read rows, Combiner combiner) {
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

bool SoftmaxFinder::reducesRowsOf(Read reduced, Read rows, Combiner combiner, const Atoms &keys) {
  std::optional<Atoms> found = findKeys(std::move(reduced), std::move(rows), combiner);
  if (!found)
    return false;
  Atoms expected(keys);
  space.resolve(expected);
  space.resolve(*found);
  return *found == expected;
}

LogicalResult SoftmaxFinder::raise(RewriterBase &rewriter, linalg::LinalgOp op) {
  Operation *scalar = getScalarOp(op);
  if (!scalar || !isa<arith::DivFOp, arith::MulFOp>(scalar))
    return failure();
  for (unsigned side : {0, 1}) {
    if (side == 1 && isa<arith::DivFOp>(scalar))
      break;
    OpOperand *numerator = getInput(op, scalar->getOperand(side));
    OpOperand *denominator = getInput(op, scalar->getOperand(1 - side));
    if (!numerator || !denominator || !isAligned(op, numerator))
      continue;
    space = AtomSpace();
    unitDim = std::nullopt;
    Access result;
    for (int64_t dim = 0, rank = cast<RankedTensorType>(op->getResult(0).getType()).getRank(); dim != rank; ++dim)
      result.push_back(space.add(Extent::of(op->getResult(0), dim)));
    SmallVector<Atoms> loops = AtomSpace::loopAtoms(op, result);
    std::optional<Access> access = AtomSpace::operandAccess(op.getMatchingIndexingMap(denominator), loops);
    if (!access)
      continue;
    Read sum{denominator->get(), *access};
    if (isa<arith::MulFOp>(scalar)) { // e * (1 / sum(e))
      space.walkUp(sum.value, sum.access);
      auto inverse = sum.value.getDefiningOp<linalg::LinalgOp>();
      auto division = dyn_cast_or_null<arith::DivFOp>(getScalarOp(inverse));
      auto one = division ? dyn_cast_or_null<FloatAttr>(splatConstant(division.getLhs())) : FloatAttr();
      OpOperand *divisor = one && one.getValue().isExactlyValue(1) ? getInput(inverse, division.getRhs()) : nullptr;
      if (!divisor)
        continue;
      access =
          AtomSpace::operandAccess(inverse.getMatchingIndexingMap(divisor), AtomSpace::loopAtoms(inverse, sum.access));
      if (!access)
        continue;
      sum = {divisor->get(), *access};
    }

    // The numerator up to the exponential, and the views between.
    Read exponential{numerator->get(), result};
    SmallVector<Operation *> views;
    while (isView(exponential.value.getDefiningOp())) {
      views.push_back(exponential.value.getDefiningOp());
      if (!space.stepUp(exponential.value, exponential.access))
        break;
    }
    auto exp = exponential.value.getDefiningOp<linalg::LinalgOp>();
    auto scalarExp = dyn_cast_or_null<math::ExpOp>(getScalarOp(exp));
    OpOperand *exponent = scalarExp ? getInput(exp, scalarExp.getOperand()) : nullptr;
    if (!exponent || !isAligned(exp, exponent))
      continue;
    std::optional<Atoms> keys = findKeys(sum, exponential, Combiner::sum);
    if (!keys)
      continue;

    // exp(s - max(s)): without the maximum is the same softmax.
    Value scores = exponent->get();
    auto shift = scores.getDefiningOp<linalg::LinalgOp>();
    if (auto difference = dyn_cast_or_null<arith::SubFOp>(getScalarOp(shift))) {
      OpOperand *shifted = getInput(shift, difference.getLhs()), *maximum = getInput(shift, difference.getRhs());
      space.resolve(exponential.access);
      std::optional<Access> at;
      if (shifted && maximum && isAligned(shift, shifted))
        at = AtomSpace::operandAccess(shift.getMatchingIndexingMap(maximum),
                                      AtomSpace::loopAtoms(shift, exponential.access));
      if (at && reducesRowsOf({maximum->get(), *at}, {shifted->get(), exponential.access}, Combiner::maximum, *keys))
        scores = shifted->get();
    }
    space.resolve(exponential.access);
    space.resolve(*keys);
    auto *dim = unitDim ? exponential.access.begin() + *unitDim : llvm::find(exponential.access, *keys);
    if (dim == exponential.access.end() ||
        getElementTypeOrSelf(scores) != getElementTypeOrSelf(exponential.value.getType()))
      continue;

    rewriter.setInsertionPoint(op);
    Value raised =
        SoftmaxOp::create(rewriter, op.getLoc(), scores.getType(), scores, dim - exponential.access.begin(), false);
    if (raised.getType() != exponential.value.getType())
      raised = tensor::CastOp::create(rewriter, op.getLoc(), exponential.value.getType(), raised);
    IRMapping mapping;
    mapping.map(exponential.value, raised);
    for (Operation *view : llvm::reverse(views))
      rewriter.clone(*view, mapping);
    raised = mapping.lookup(numerator->get());
    if (raised.getType() != op->getResult(0).getType()) // rounded to a half type by the division
      return failure();
    remark::passed(op.getLoc(), remark::RemarkOpts::name("Softmax").category("attn-raise-softmax"))
        << "an exponential over its sum is a softmax";
    rewriter.replaceOp(op, raised);
    return success();
  }
  return failure();
}

/// softmax(s - max(s)) -> softmax(s), softmax(max(s) - s) -> softmax(-s)
void SoftmaxFinder::dropMaximum(RewriterBase &rewriter, SoftmaxOp softmax) {
  auto shift = softmax.getInput().getDefiningOp<linalg::LinalgOp>();
  auto difference = dyn_cast_or_null<arith::SubFOp>(getScalarOp(shift));
  if (!difference || shift->getNumResults() != 1)
    return;
  for (unsigned side : {0, 1}) {
    OpOperand *scores = getInput(shift, difference->getOperand(side));
    OpOperand *maximum = getInput(shift, difference->getOperand(1 - side));
    if (!scores || !maximum || !isAligned(shift, scores) || scores->get().getType() != softmax.getType() ||
        !shift.getMatchingIndexingMap(shift.getDpsInitOperand(0)).isIdentity())
      continue;
    space = AtomSpace();
    Access rows;
    for (int64_t dim = 0, rank = softmax.getType().getRank(); dim != rank; ++dim)
      rows.push_back(space.add(Extent::of(softmax.getInput(), dim)));
    std::optional<Access> at =
        AtomSpace::operandAccess(shift.getMatchingIndexingMap(maximum), AtomSpace::loopAtoms(shift, rows));
    if (!at || !reducesRowsOf({maximum->get(), *at}, {scores->get(), rows}, Combiner::maximum, rows[softmax.getDim()]))
      continue;
    rewriter.setInsertionPoint(softmax);
    Value input = scores->get();
    if (side == 1) {
      AffineMap identity = rewriter.getMultiDimIdentityMap(softmax.getType().getRank());
      input = elementwise(rewriter, softmax.getLoc(), tensor::getMixedSizes(rewriter, softmax.getLoc(), input),
                          softmax.getType().getElementType(), input, identity,
                          [](OpBuilder &b, Location loc, ValueRange args) -> Value {
                            return arith::NegFOp::create(b, loc, args.front());
                          });
    }
    rewriter.modifyOpInPlace(softmax, [&] { softmax.getInputMutable().assign(input); });
    return;
  }
}

/// exp(log_softmax(x)) -> softmax(x)
LogicalResult raiseExponential(RewriterBase &rewriter, linalg::LinalgOp op) {
  auto exp = dyn_cast_or_null<math::ExpOp>(getScalarOp(op));
  OpOperand *input = exp ? getInput(op, exp.getOperand()) : nullptr;
  auto log = input ? input->get().getDefiningOp<SoftmaxOp>() : SoftmaxOp();
  if (!log || !log.getLog() || !isAligned(op, input) || log.getType() != op->getResult(0).getType())
    return failure();
  rewriter.setInsertionPoint(op);
  rewriter.replaceOpWithNewOp<SoftmaxOp>(op, log.getType(), log.getInput(), log.getDim(), false);
  return success();
}

struct RaiseSoftmaxPass : impl::RaiseSoftmaxPassBase<RaiseSoftmaxPass> {
  void runOnOperation() override {
    assumeRequiredSizes(getOperation());
    SmallVector<linalg::LinalgOp> ops;
    getOperation()->walk([&](linalg::LinalgOp op) { ops.push_back(op); });
    IRRewriter rewriter(&getContext());
    for (linalg::LinalgOp op : ops)
      if (isPointwise(op) && failed(SoftmaxFinder().raise(rewriter, op)))
        (void)raiseExponential(rewriter, op);
    getOperation()->walk([&](SoftmaxOp op) { SoftmaxFinder().dropMaximum(rewriter, op); });
  }
};

} // namespace
} // namespace attn
