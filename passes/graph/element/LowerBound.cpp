#include "passes/graph/element/LowerBound.h"

#include "passes/graph/Structured.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include <algorithm>
#include <cmath>
#include <limits>

using namespace mlir;

namespace attn {

constexpr double kNoBound = -std::numeric_limits<double>::infinity();

/// Elements that one bound looks at. What layers of products and residual sums hand on is read at places of its own in
/// each layer, so that their number doubles with each.
constexpr unsigned kMaxSteps = 1000;

LowerBound::LowerBound(ElementReader &reader) : ElementDomain(reader, kNoBound) {}

std::optional<double> LowerBound::constantOperand(const Element &element, unsigned n) {
  return numberOf(reader.resolve(reader.operand(element, n)).value);
}

/// What `select` chooses, also by what its test says of it: x > c ? x : ..., x < c ? ... : x.
double LowerBound::ofChosen(const Element &select, bool isTrue) {
  Element chosen = reader.operand(select, isTrue ? 1 : 2), test = reader.condition(reader.operand(select, 0));
  double bound = of(chosen);
  auto compare = test.value.getDefiningOp<arith::CmpFOp>();
  if (!compare || !isSame(reader.operand(test, 0), chosen))
    return bound;
  using Predicate = arith::CmpFPredicate;
  bool isAbove = isTrue ? llvm::is_contained({Predicate::OGT, Predicate::OGE}, compare.getPredicate())
                        : llvm::is_contained({Predicate::OLT, Predicate::ULT, Predicate::OLE, Predicate::ULE},
                                             compare.getPredicate());
  std::optional<double> limit = constantOperand(test, 1);
  return isAbove && limit ? std::max(bound, *limit) : bound;
}

double LowerBound::ofSum(const Element &element) {
  double first = ofOperand(element, 0);
  return first == kNoBound ? kNoBound : first + ofOperand(element, 1);
}

/// Of a product or a quotient.
double LowerBound::ofProduct(const Element &element) {
  bool isProduct = isa<arith::MulFOp>(element.getOp());
  if (isProduct && isSame(reader.operand(element, 0), reader.operand(element, 1)))
    return 0;
  for (unsigned n : {0, 1})
    if (std::optional<double> number = constantOperand(element, n); number && *number > 0 && std::isfinite(*number)) {
      if (isProduct)
        return ofOperand(element, 1 - n) * *number;
      if (n == 1)
        return ofOperand(element, 0) / *number;
    }
  double second = ofOperand(element, 1);
  // Divided by -0.0, what is above 0 is minus infinity.
  return ofOperand(element, 0) >= 0 && (isProduct ? second >= 0 : second > 0) ? 0 : kNoBound;
}

double LowerBound::compute(const Element &element) {
  if (++steps > kMaxSteps)
    return kNoBound;
  if (std::optional<double> number = numberOf(element.value))
    return std::isnan(*number) ? kNoBound : *number;
  Operation *op = element.getOp();
  auto of = [&](unsigned n) { return ofOperand(element, n); };
  if (!op)
    return kNoBound;
  if (auto softmax = dyn_cast<SoftmaxOp>(op))
    return softmax.getLog() ? kNoBound : 0;
  if (isContraction(op))
    return llvm::all_of(reader.sources(element), [&](const Element &factor) { return this->of(factor) >= 0; })
               ? 0
               : kNoBound;
  if (isa<math::ExpOp, math::Exp2Op, math::AbsFOp, math::SqrtOp, arith::UIToFPOp>(op))
    return 0;
  if (isa<math::TanhOp, math::ErfOp, math::ExpM1Op>(op))
    return -1;
  if (isa<math::PowFOp, math::Log1pOp>(op))
    return of(0) >= 0 ? 0 : kNoBound;
  if (isa<arith::MaximumFOp, arith::MaxNumFOp>(op))
    return std::max(of(0), of(1));
  if (isa<arith::MinimumFOp, arith::MinNumFOp>(op))
    return std::min(of(0), of(1));
  if (isa<arith::AddFOp>(op))
    return ofSum(element);
  if (isa<arith::ExtFOp, arith::TruncFOp>(op))
    return of(0);
  if (isa<arith::SelectOp>(op))
    return std::min(ofChosen(element, /*isTrue=*/true), ofChosen(element, /*isTrue=*/false));
  if (isa<arith::MulFOp, arith::DivFOp>(op))
    return ofProduct(element);
  if (std::optional<double> number = isa<arith::SubFOp>(op) ? constantOperand(element, 1) : std::nullopt)
    return of(0) - *number;
  return kNoBound;
}

bool isNonNegative(Value tensor) {
  ElementReader reader(tensor);
  return LowerBound(reader).of(reader.at(tensor)) >= 0;
}

} // namespace attn
