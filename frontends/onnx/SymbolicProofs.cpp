#include "frontends/onnx/Limits.h"
#include "frontends/onnx/Symbolic.h"
#include "frontends/onnx/SymbolicStorage.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

// What is known of expressions: bounds, equality, and what a run has been required to keep.

using namespace attn::onnx;
using llvm::ArrayRef;

/// How many min, max and select atoms a proof looks into, one inside another and
/// in all.
static constexpr unsigned kProofDepth = 4, kProofSteps = 200;

namespace {
/// All values between two bounds, each of which may be unknown.
struct Interval {
  std::optional<int64_t> low, high;
};
} // namespace

static Interval multiply(const Interval &a, const Interval &b) {
  auto product = [](std::optional<int64_t> x, std::optional<int64_t> y) {
    return x && y ? checkedMul(*x, *y) : std::nullopt;
  };
  if (a.low && b.low && *a.low >= 0 && *b.low >= 0)
    return {product(a.low, b.low).value_or(0), product(a.high, b.high)};
  if (a.low && a.high && *a.low == *a.high) {
    Interval scaled{product(a.low, b.low), product(a.low, b.high)};
    if (*a.low < 0)
      std::swap(scaled.low, scaled.high);
    return scaled;
  }
  std::optional<int64_t> corners[] = {product(a.low, b.low), product(a.low, b.high), product(a.high, b.low),
                                      product(a.high, b.high)};
  if (llvm::is_contained(corners, std::nullopt))
    return {};
  auto [low, high] = std::minmax_element(std::begin(corners), std::end(corners));
  return {*low, *high};
}

std::optional<int64_t> Symbols::intervalLower(const Expr &a) const {
  int64_t sum = 0;
  for (const auto &[monomial, coefficient] : a.getTerms()) {
    Interval term{1, 1};
    for (unsigned id : monomial)
      term = id == kOverflowAtom ? Interval() : multiply(term, {storage->atoms[id].lower, storage->atoms[id].upper});
    term = multiply({coefficient, coefficient}, term);
    std::optional<int64_t> next = term.low ? checkedAdd(sum, *term.low) : std::nullopt;
    if (!next)
      return std::nullopt;
    sum = *next;
  }
  return sum;
}

/// Besides intervals: an atom in a linear term may be replaced by an operand
/// that bounds it (max(x, y) >= x), or a bound must hold for each of the
/// operands that it may be (min(x, y) is x or y).
std::optional<int64_t> Symbols::lowerBound(const Expr &a, unsigned depth, unsigned &steps) const {
  std::optional<int64_t> best = intervalLower(a);
  if (depth == 0 || steps == 0)
    return best;
  --steps;
  for (const auto &[monomial, coefficient] : a.getTerms()) {
    if (monomial.size() != 1 || monomial[0] == kOverflowAtom)
      continue;
    const Atom &atom = storage->atoms[monomial[0]];
    if (atom.kind != Kind::Min && atom.kind != Kind::Max && atom.kind != Kind::Select && atom.kind != Kind::FloorDiv)
      continue;
    Expr rest = a - Expr::atom(monomial[0]) * Expr(coefficient);
    auto with = [&, coefficient = coefficient](const Expr &replacement) {
      return lowerBound(rest + replacement * Expr(coefficient), depth - 1, steps);
    };
    std::optional<int64_t> found;
    if (atom.kind == Kind::FloorDiv) {
      // x >= 0 and y >= 1: floordiv(x, y) <= x.
      if (coefficient < 0 && intervalLower(atom.operands[0]).value_or(-1) >= 0 &&
          intervalLower(atom.operands[1]).value_or(0) >= 1)
        found = with(atom.operands[0]);
    } else {
      auto choices = ArrayRef(atom.operands).take_back(2);
      std::optional<int64_t> x = with(choices[0]), y = with(choices[1]);
      bool either = atom.kind == Kind::Max ? coefficient > 0 : atom.kind == Kind::Min && coefficient < 0;
      if (either)
        found = x && y ? std::optional(std::max(*x, *y)) : (x ? x : y);
      else if (x && y)
        found = std::min(*x, *y);
    }
    if (found && (!best || *found > *best))
      best = found;
  }
  return best;
}

std::optional<int64_t> Symbols::lowerBound(const Expr &a) const {
  unsigned steps = kProofSteps;
  return lowerBound(a, kProofDepth, steps);
}

std::optional<int64_t> Symbols::upperBound(const Expr &a) const {
  std::optional<int64_t> negated = lowerBound(Expr(0) - a);
  return negated ? checkedMul(*negated, -1) : std::nullopt;
}

Expr Symbols::simplify(const Expr &a) const {
  if (storage->replacements.empty() || a.overflowed())
    return a;
  Expr result;
  for (const auto &[monomial, coefficient] : a.getTerms()) {
    Expr term(coefficient);
    for (unsigned id : monomial) {
      auto it = storage->replacements.find(id);
      term = term * (it == storage->replacements.end() ? Expr::atom(id) : it->second);
    }
    result = result + term;
  }
  return result;
}

std::optional<bool> Symbols::isEqual(const Expr &a, const Expr &b) const {
  if (a.overflowed() || b.overflowed())
    return std::nullopt;
  if (a == b)
    return true;
  Expr difference = simplify(a - b);
  if (difference.overflowed())
    return std::nullopt;
  if (std::optional<int64_t> constant = difference.constant())
    return *constant == 0;
  if (storage->equal.count(difference.getTerms()))
    return true;
  if (lowerBound(difference).value_or(0) > 0 || upperBound(difference).value_or(0) < 0)
    return false;
  return std::nullopt;
}

std::optional<bool> Symbols::isLess(const Expr &a, const Expr &b) const {
  Expr difference = simplify(b - a);
  if (difference.overflowed())
    return std::nullopt;
  if (lowerBound(difference).value_or(0) > 0)
    return true;
  if (std::optional<int64_t> upper = upperBound(difference); upper && *upper <= 0)
    return false;
  return std::nullopt;
}

bool Symbols::isCapped(const Expr &a, const Expr &b) const {
  const auto &terms = a.getTerms();
  if (terms.size() != 1 || terms.begin()->first.size() != 1 || terms.begin()->second != 1 || a.overflowed())
    return false;
  const Atom &atom = storage->atoms[terms.begin()->first.front()];
  if (atom.kind != Kind::Min)
    return false;
  const Expr &x = atom.operands[0], &y = atom.operands[1];
  Expr other = simplify(b);
  return (x == other && lowerBound(y).value_or(0) >= 2) || (y == other && lowerBound(x).value_or(0) >= 2);
}

void Symbols::replaceAtom(unsigned id, const Expr &other) {
  for (auto &entry : storage->replacements) {
    Expr updated;
    for (const auto &[m, c] : entry.second.getTerms()) {
      Expr term(c);
      for (unsigned atom : m)
        term = term * (atom == id ? other : Expr::atom(atom));
      updated = updated + term;
    }
    entry.second = updated;
  }
  storage->replacements[id] = other;
}

void Symbols::assumeEqual(const Expr &a, const Expr &b) {
  if (isEqual(a, b))
    return;
  Expr difference = simplify(a - b);
  if (difference.overflowed())
    return;
  if (!storage->before.empty() && !storage->before.back())
    storage->before.back() = Storage::Knowledge{storage->replacements, storage->equal};
  storage->equal[difference.getTerms()] = true;
  storage->equal[(Expr(0) - difference).getTerms()] = true;
  // An atom alone on one side gives way to the other side, the youngest atom
  // first: a dimension of the model stays. Replacements never mention replaced
  // atoms (both sides are simplified), so one pass is enough. A multiple of one
  // atom that is 0 makes the atom 0.
  bool isMultiple = difference.getTerms().size() == 1;
  for (const auto &[monomial, coefficient] : llvm::reverse(difference.getTerms())) {
    if (monomial.size() != 1 || (coefficient != 1 && coefficient != -1 && !isMultiple))
      continue;
    unsigned id = monomial[0];
    Expr other = isMultiple ? Expr(0) : Expr::atom(id) - difference * Expr(coefficient);
    if (llvm::any_of(other.getTerms(), [&](const auto &term) { return llvm::is_contained(term.first, id); }))
      continue;
    replaceAtom(id, other);
    return;
  }
}

void Symbols::assumeNotNegative(const Expr &a) {
  Expr sum = simplify(a);
  if (homes.size() > 1 || sum.overflowed() || sum.getTerms().empty())
    return;
  const auto &[monomial, coefficient] = *sum.getTerms().rbegin();
  if (monomial.size() != 1 || coefficient < 1)
    return;
  std::optional<int64_t> rest = (sum - Expr::atom(monomial[0]) * Expr(coefficient)).constant();
  std::optional<int64_t> least = rest ? checkedMul(floorDivide(*rest, coefficient), -1) : std::nullopt;
  std::optional<int64_t> &lower = storage->atoms[monomial[0]].lower;
  if (!least || (lower && *lower >= *least))
    return;
  lower = least;
  // What was made of it follows. Twice: a quotient may be older than another that says what it is.
  for (int round = 0; round != 2; ++round)
    for (unsigned id = 0, count = storage->atoms.size(); id != count; ++id)
      makeAnew(id);
}

/// A quotient that is not negative is rounded down where it was rounded to zero, and the lesser of two may be known
/// now.
void Symbols::makeAnew(unsigned id) {
  Kind kind = storage->atoms[id].kind;
  if (!llvm::is_contained({Kind::FloorDiv, Kind::TruncDiv, Kind::Min, Kind::Max}, kind) ||
      storage->replacements.count(id))
    return;
  Expr x = simplify(storage->atoms[id].operands[0]), y = simplify(storage->atoms[id].operands[1]);
  Expr again = simplify(kind == Kind::Min        ? min(x, y)
                        : kind == Kind::Max      ? max(x, y)
                        : kind == Kind::FloorDiv ? floorDiv(x, y)
                                                 : truncDiv(x, y));
  auto mentions = [&](const auto &term) { return llvm::is_contained(term.first, id); };
  if (!again.overflowed() && !llvm::any_of(again.getTerms(), mentions))
    replaceAtom(id, again);
  std::optional<int64_t> low = lowerBound(x), by = y.constant();
  if (kind == Kind::FloorDiv && low && by && *by > 0)
    storage->atoms[id].lower = std::max(storage->atoms[id].lower.value_or(INT64_MIN), floorDivide(*low, *by));
}
