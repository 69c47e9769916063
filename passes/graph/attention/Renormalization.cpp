#include "passes/graph/Formulas.h"
#include "passes/graph/attention/Normalization.h"
#include "passes/graph/element/Rows.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include <cmath>
#include <limits>

using namespace mlir;

namespace attn {
namespace {

/// Weights of which a softmax is left where a tensor of zeros and ones has ones.
struct MaskedWeights {
  SoftmaxOp softmax;
  Element shown;
};

/// `terms`, of the root's type, as w m, m a bool that became a number, or as m ? w : 0.
std::optional<MaskedWeights> readMaskedWeights(RowReader &rows, const Element &terms) {
  Element product = rows.strip(terms);
  if (!product.getOp() || product.getOp()->getParentOp() != terms.value.getDefiningOp())
    return std::nullopt;
  auto readSoftmax = [&](unsigned n) {
    std::optional<Element> weights = rows.tensor(rows.operand(product, n));
    auto softmax = weights && rows.isWhole(*weights) ? weights->value.getDefiningOp<SoftmaxOp>() : SoftmaxOp();
    return softmax && !softmax.getLog() ? softmax : SoftmaxOp();
  };
  if (getAs<arith::SelectOp>(product)) {
    Element condition = rows.scalar(product, product.getOp()->getOperand(0));
    auto test = getAs<arith::CmpIOp>(condition);
    bool isByte = test && test.getPredicate() == arith::CmpIPredicate::ne && matchPattern(test.getRhs(), m_Zero());
    std::optional<Element> shown = isByte ? rows.tensor(rows.operand(condition, 0)) : std::nullopt;
    SoftmaxOp softmax = numberOf(rows.of(product, 2)) == 0 ? readSoftmax(1) : SoftmaxOp();
    return softmax && shown ? std::optional(MaskedWeights{softmax, *shown}) : std::nullopt;
  }
  if (!getAs<arith::MulFOp>(product))
    return std::nullopt;
  for (unsigned n : {0, 1}) {
    std::optional<Element> shown = rows.tensor(rows.operand(product, 1 - n));
    auto number = shown ? getAs<arith::UIToFPOp>(rows.strip(*shown)) : arith::UIToFPOp();
    SoftmaxOp softmax = number && number.getIn().getType().isInteger(1) ? readSoftmax(n) : SoftmaxOp();
    if (softmax)
      return MaskedWeights{softmax, *shown};
  }
  return std::nullopt;
}

/// Whether `condition` tests that the sum of a row of `terms` over `keys` is above 0.
bool testsSum(RowReader &rows, Element condition, const Element &terms, const Places &keys) {
  condition = rows.condition(condition);
  auto above = getAs<arith::CmpFOp>(condition);
  return above && above.getPredicate() == arith::CmpFPredicate::OGT && numberOf(rows.of(condition, 1)) == 0 &&
         rows.combines(rows.of(condition, 0), terms, Combiner::sum, keys);
}

/// The rows of `quotient` where it is x over its sum, or (`isGuarded`) over a number where that is 0.
std::optional<Places> readRenormalized(RowReader &rows, const Quotient &quotient, bool &isGuarded) {
  Element divisor = rows.strip(quotient.denominator);
  isGuarded = bool(getAs<arith::SelectOp>(divisor));
  Element sum = isGuarded ? rows.of(divisor, 1) : divisor;
  std::optional<Places> keys = rows.combined(sum, quotient.numerator, Combiner::sum);
  if (!keys || !isGuarded)
    return keys;
  std::optional<double> other = numberOf(rows.of(divisor, 2));
  bool isGuard =
      other && *other > 0 && std::isfinite(*other) && testsSum(rows, rows.of(divisor, 0), quotient.numerator, *keys);
  return isGuard ? keys : std::nullopt;
}

/// Whether `guard` leaves `quotient` where the sum of its row of `terms` is above 0, and is 0 elsewhere.
bool isRowGuard(linalg::LinalgOp guard, Value quotient, Value terms, int64_t dim) {
  if (!isPointwise(guard) || guard->getResult(0).getType() != terms.getType())
    return false;
  RowReader rows(guard->getResult(0));
  rows.stopAt(quotient);
  std::optional<Element> select = rows.own();
  if (!select || !getAs<arith::SelectOp>(*select) || numberOf(rows.of(*select, 2)) != 0)
    return false;
  std::optional<Element> kept = rows.tensor(rows.operand(*select, 1));
  auto test = getAs<arith::CmpIOp>(rows.scalar(*select, select->getOp()->getOperand(0)));
  Places keys{rows.at(terms).at.getResult(dim)};
  return kept && kept->value == quotient && rows.isWhole(*kept) && test &&
         testsSum(rows, rows.of(*select, 0), rows.at(terms), keys);
}

} // namespace

LogicalResult raiseRenormalized(RewriterBase &rewriter, linalg::LinalgOp op) {
  RowReader rows(op->getResult(0));
  std::optional<Element> own = rows.own();
  std::optional<Quotient> quotient = own && getAs<arith::DivFOp>(*own) ? rows.quotient(0) : std::nullopt;
  bool isGuarded = false;
  std::optional<Places> keys =
      quotient && rows.isWhole(quotient->numerator) ? readRenormalized(rows, *quotient, isGuarded) : std::nullopt;
  std::optional<MaskedWeights> weights = keys ? readMaskedWeights(rows, quotient->numerator) : std::nullopt;
  if (!weights || rows.findDim(*keys) != weights->softmax.getDim())
    return failure();
  SoftmaxOp softmax = weights->softmax;
  Value terms = quotient->numerator.value;

  // A row that sees no key: 0 by the guard behind the quotient.
  linalg::LinalgOp last = op;
  if (op->getResult(0).hasOneUse())
    if (auto guard = dyn_cast<linalg::LinalgOp>(*op->user_begin());
        guard && isRowGuard(guard, op->getResult(0), terms, softmax.getDim()))
      last = guard;
  if (isGuarded && last == op)
    return failure(); // scores of NaN would become 0 with those rows

  rewriter.setInsertionPoint(last);
  Location loc = softmax.getLoc();
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(rewriter, loc, softmax.getInput());
  Type element = softmax.getType().getElementType();
  unsigned rank = softmax.getType().getRank();
  AffineMap identity = rewriter.getMultiDimIdentityMap(rank);
  AffineMap shownAt = AffineMap::get(rank, 0, weights->shown.at.getResults(), rewriter.getContext());
  Value scores =
      elementwise(rewriter, loc, sizes, element, {softmax.getInput(), weights->shown.value}, {identity, shownAt},
                  formula([&](ArrayRef<Num> x) {
                    return select(x[1] != 0, x[0], constantLike(x[0], -std::numeric_limits<double>::infinity()));
                  }));
  auto raised = SoftmaxOp::create(rewriter, loc, scores.getType(), scores, softmax.getDim(), false);
  raised->setAttr(kAssumesAttr,
                  rewriter.getStringAttr("|score| < 40: what a mask behind the softmax hides outweighs no other key"));
  Value result = raised;
  if (last != op)
    result = elementwise(rewriter, loc, sizes, element, result, identity,
                         [&](OpBuilder &b, Location loc, ValueRange args) -> Value {
                           Value none = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::UNO, args[0], args[0]);
                           Value zero = floatConstant(b, loc, element, 0);
                           return arith::SelectOp::create(b, loc, none, zero, args[0]);
                         });
  rewriter.replaceOp(last, result);
  return success();
}

} // namespace attn
