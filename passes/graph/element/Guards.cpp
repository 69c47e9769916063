#include "passes/graph/element/Guards.h"

#include "mlir/Analysis/Presburger/Simplex.h"

using namespace mlir;
using namespace mlir::presburger;

namespace attn {

/// Numbers beyond this are taken as unbounded, so that none wraps.
static constexpr int64_t kMaxBound = int64_t{1} << 62;

Linear Linear::variable(unsigned number, int64_t factor) {
  Linear result;
  result.factors.resize(number + 1);
  result.factors.back() = factor;
  return result;
}

std::optional<int64_t> Linear::getConstant() const {
  return llvm::all_of(factors, [](int64_t factor) { return factor == 0; }) ? std::optional(constant) : std::nullopt;
}

Linear operator+(const Linear &a, const Linear &b) {
  Linear sum = a;
  sum.constant += b.constant;
  sum.factors.resize(std::max(a.factors.size(), b.factors.size()));
  for (auto [n, factor] : llvm::enumerate(b.factors))
    sum.factors[n] += factor;
  return sum;
}

Linear operator*(const Linear &a, int64_t factor) {
  Linear product = a;
  product.constant *= factor;
  for (int64_t &f : product.factors)
    f *= factor;
  return product;
}

static SmallVector<int64_t> toRow(const Linear &number, unsigned numVariables) {
  SmallVector<int64_t> row(numVariables + 1);
  llvm::copy(number.factors, row.begin());
  row.back() = number.constant;
  return row;
}

void Guards::add(const Linear &atLeastZero) {
  // Of two that differ by a constant, the lesser one says both.
  for (Linear &number : numbers)
    if (std::optional<int64_t> more = (atLeastZero - number).getConstant()) {
      number.constant += std::min<int64_t>(*more, 0);
      return;
    }
  numbers.push_back(atLeastZero);
}

void Guards::addRange(const Linear &number, const Linear &size) {
  add(number);
  add(size - number - Linear{1});
}

unsigned Guards::numVariables() const {
  size_t result = 0;
  for (const Linear &number : numbers)
    result = std::max(result, number.factors.size());
  return result;
}

Simplex Guards::toSimplex(unsigned numVariables) const {
  Simplex simplex(numVariables);
  for (unsigned n = 0; n != numVariables; ++n)
    simplex.addInequality(getDynamicAPIntVec(toRow(Linear::variable(n), numVariables)));
  for (const Linear &number : numbers)
    simplex.addInequality(getDynamicAPIntVec(toRow(number, numVariables)));
  return simplex;
}

bool Guards::isEmpty() const { return toSimplex(numVariables()).isEmpty(); }

Guards::Bounds Guards::bounds(const Linear &number) const {
  if (std::optional<int64_t> constant = number.getConstant())
    return {constant, constant};
  unsigned count = std::max<unsigned>(numVariables(), number.factors.size());
  Simplex simplex = toSimplex(count);
  if (simplex.isEmpty())
    return {};
  auto [least, greatest] = simplex.computeIntegerBounds(getDynamicAPIntVec(toRow(number, count)));
  auto toBound = [](const MaybeOptimum<DynamicAPInt> &bound) {
    bool isKnown = bound.isBounded() && *bound > DynamicAPInt(-kMaxBound) && *bound < DynamicAPInt(kMaxBound);
    return isKnown ? std::optional(int64_t(*bound)) : std::nullopt;
  };
  return {toBound(least), toBound(greatest)};
}

bool Guards::isZero(const Linear &number) const {
  Bounds found = bounds(number);
  return found.least == 0 && found.greatest == 0;
}

} // namespace attn
