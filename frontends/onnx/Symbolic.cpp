#include "frontends/onnx/Symbolic.h"
#include "frontends/onnx/Limits.h"
#include "frontends/onnx/SymbolicStorage.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/SaveAndRestore.h"
#include <algorithm>
#include <numeric>
#include <tuple>

using namespace attn::onnx;
using llvm::ArrayRef;
using Terms = std::map<Expr::Monomial, int64_t>;

//===----------------------------------------------------------------------===//
// Polynomials
//===----------------------------------------------------------------------===//

Expr::Expr(int64_t constant) {
  if (constant)
    terms[{}] = constant;
}

Expr Expr::atom(unsigned id) {
  Expr result;
  result.terms[{id}] = 1;
  return result;
}

Expr Expr::overflow() { return atom(kOverflowAtom); }
bool Expr::overflowed() const { return terms.count({kOverflowAtom}); }

std::optional<int64_t> Expr::constant() const {
  if (terms.empty())
    return 0;
  if (terms.size() == 1 && terms.begin()->first.empty())
    return terms.begin()->second;
  return std::nullopt;
}

/// Adds `coefficient` * `monomial`; false when it leaves 64 bits.
static bool addTerm(Terms &terms, const Expr::Monomial &monomial, int64_t coefficient) {
  auto [it, fresh] = terms.try_emplace(monomial, coefficient);
  if (!fresh) {
    std::optional<int64_t> sum = checkedAdd(it->second, coefficient);
    if (!sum)
      return false;
    it->second = *sum;
  }
  if (it->second == 0)
    terms.erase(it);
  return true;
}

static Expr::Monomial multiply(const Expr::Monomial &a, const Expr::Monomial &b) {
  Expr::Monomial result;
  std::merge(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(result));
  return result;
}

namespace attn::onnx {

Expr operator*(const Expr &a, const Expr &b) {
  if (a.overflowed() || b.overflowed())
    return Expr::overflow();
  Expr result;
  for (const auto &[x, xc] : a.terms)
    for (const auto &[y, yc] : b.terms) {
      std::optional<int64_t> product = checkedMul(xc, yc);
      if (!product || x.size() + y.size() > kMaxDegree || !addTerm(result.terms, multiply(x, y), *product) ||
          result.terms.size() > kMaxTerms)
        return Expr::overflow();
    }
  return result;
}

Expr operator+(const Expr &a, const Expr &b) {
  if (a.overflowed() || b.overflowed())
    return Expr::overflow();
  Expr result = a;
  for (const auto &[monomial, coefficient] : b.terms)
    if (!addTerm(result.terms, monomial, coefficient))
      return Expr::overflow();
  return result.terms.size() > kMaxTerms ? Expr::overflow() : result;
}

Expr operator-(const Expr &a, const Expr &b) { return a + b * Expr(-1); }

Expr product(ArrayRef<Expr> factors) {
  Expr result(1);
  for (const Expr &factor : factors)
    result = result * factor;
  return result;
}

} // namespace attn::onnx

/// Degree first, then lexicographic: an order that multiplication keeps, so
/// division by the greatest term ends.
static bool before(const Expr::Monomial &a, const Expr::Monomial &b) {
  return std::make_pair(a.size(), ArrayRef(a)) < std::make_pair(b.size(), ArrayRef(b));
}

uint64_t Expr::content() const {
  uint64_t factor = 0;
  for (const auto &[monomial, coefficient] : terms)
    factor = std::gcd(factor, coefficient < 0 ? -uint64_t(coefficient) : uint64_t(coefficient));
  return factor;
}

/// a / b as monomials.
static std::optional<Expr::Monomial> divide(const Expr::Monomial &a, const Expr::Monomial &b) {
  if (!std::includes(a.begin(), a.end(), b.begin(), b.end()))
    return std::nullopt;
  Expr::Monomial result;
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(result));
  return result;
}

static Expr monomialExpr(const Expr::Monomial &monomial, int64_t coefficient) {
  Expr result(coefficient);
  for (unsigned atom : monomial)
    result = result * Expr::atom(atom);
  return result;
}

/// a = quotient * b + remainder, with coefficients of the remainder's divisible
/// terms in [0, leading coefficient of b) when that is positive.
static std::pair<Expr, Expr> divideWithRemainder(Expr a, const Expr &b) {
  const auto *lead = &*b.getTerms().begin();
  for (const auto &term : b.getTerms())
    if (before(lead->first, term.first))
      lead = &term;
  Expr quotient, remainder;
  for (size_t step = 0; step < 4 * kMaxTerms && !a.getTerms().empty() && !a.overflowed(); ++step) {
    auto top = llvm::max_element(a.getTerms(), [](auto &x, auto &y) { return before(x.first, y.first); });
    Expr::Monomial monomial = top->first;
    int64_t coefficient = top->second;
    std::optional<Expr::Monomial> ratio = divide(monomial, lead->first);
    int64_t whole = 0;
    if (ratio && !(coefficient == INT64_MIN && lead->second == -1))
      whole = floorDivide(coefficient, lead->second);
    if (whole != 0) {
      Expr part = monomialExpr(*ratio, whole);
      quotient = quotient + part;
      a = a - part * b;
    }
    // What is left of this term cannot be divided.
    auto rest = a.getTerms().find(monomial);
    if (rest != a.getTerms().end()) {
      Expr part = monomialExpr(monomial, rest->second);
      remainder = remainder + part;
      a = a - part;
    }
  }
  return {quotient, remainder + a};
}

/// Takes out of both what all of their terms have as a factor.
static void cancelFactors(Expr &a, Expr &b) {
  uint64_t factor = std::gcd(a.content(), b.content());
  std::optional<Expr::Monomial> shared;
  for (const Expr *expr : {&a, &b})
    for (const auto &[monomial, coefficient] : expr->getTerms()) {
      Expr::Monomial both;
      if (shared)
        std::set_intersection(shared->begin(), shared->end(), monomial.begin(), monomial.end(),
                              std::back_inserter(both));
      shared = shared ? both : monomial;
    }
  if (factor > INT64_MAX || (factor <= 1 && (!shared || shared->empty())))
    return;
  for (Expr *expr : {&a, &b}) {
    Expr rest;
    for (const auto &[monomial, coefficient] : expr->getTerms())
      rest = rest + monomialExpr(*divide(monomial, *shared), coefficient / int64_t(factor));
    *expr = rest;
  }
}

std::optional<Expr> Symbols::exactQuotient(const Expr &a, const Expr &b) {
  if (b.is(0) || a.overflowed() || b.overflowed())
    return std::nullopt;
  auto [quotient, remainder] = divideWithRemainder(a, b);
  if (!remainder.is(0) || quotient.overflowed())
    return std::nullopt;
  return quotient;
}

//===----------------------------------------------------------------------===//
// Atoms
//===----------------------------------------------------------------------===//

Symbols::Symbols() : storage(std::make_unique<Storage>()) {}
Symbols::~Symbols() = default;

static mlir::Block *homeOf(mlir::Value value) { return value ? value.getParentBlock() : nullptr; }

Expr Symbols::dimension(llvm::StringRef name, mlir::Value value, int64_t lower) {
  auto [it, fresh] = storage->dimensions.try_emplace(name, storage->atoms.size());
  if (fresh)
    storage->atoms.push_back({Kind::Dimension, name.str(), {}, lower, std::nullopt, value, 0, false, homeOf(value)});
  return Expr::atom(it->second);
}

bool Symbols::isData(const Expr &a) const {
  if (a.overflowed() || lowerBound(a).value_or(-1) >= 0)
    return false;
  for (const auto &term : a.getTerms())
    for (unsigned id : term.first)
      if (storage->atoms[id].data)
        return true;
  return false;
}

std::optional<Expr> Symbols::lookup(llvm::StringRef name) const {
  auto it = storage->dimensions.find(name);
  return it == storage->dimensions.end() ? std::nullopt : std::optional(Expr::atom(it->second));
}

Expr Symbols::opaque(mlir::Value index, std::optional<int64_t> lower, std::optional<int64_t> upper) {
  storage->atoms.push_back({Kind::Opaque, "", {}, lower, upper, index, 0, lower.value_or(-1) < 0, homeOf(index)});
  return Expr::atom(storage->atoms.size() - 1);
}

Expr Symbols::read(mlir::Value index, std::optional<int64_t> lower, std::optional<int64_t> upper) {
  Expr result = opaque(index, lower, upper);
  storage->atoms.back().data = true;
  return result;
}

Expr Symbols::make(Kind kind, ArrayRef<Expr> operands, std::optional<int64_t> lower, std::optional<int64_t> upper) {
  std::vector<Terms> key;
  unsigned depth = 0;
  bool data = false;
  for (const Expr &operand : operands) {
    if (operand.overflowed())
      return Expr::overflow();
    key.push_back(operand.getTerms());
    for (const auto &term : operand.getTerms())
      for (unsigned id : term.first) {
        depth = std::max(depth, storage->atoms[id].depth + 1);
        data |= storage->atoms[id].data;
      }
  }
  if (depth > kMaxExprDepth)
    return Expr::overflow();
  auto [it, fresh] = storage->made.try_emplace({kind, std::move(key)}, storage->atoms.size());
  if (fresh) {
    size_t place = 0;
    for (const Expr &operand : operands)
      place = std::max(place, level(operand, homes.size()).value_or(0));
    mlir::Block *home = homes.empty() ? nullptr : homes[place];
    storage->atoms.push_back({kind, "", llvm::SmallVector<Expr, 3>(operands), lower, upper, {}, depth, data, home});
  }
  return Expr::atom(it->second);
}

std::optional<Expr> Symbols::joinQuotients(const Expr &a, const Expr &b) {
  const auto &terms = a.getTerms();
  auto isAtom = [](const auto &term) { return term.first.size() == 1 && term.second == 1; };
  auto inner = llvm::find_if(terms, isAtom);
  if (inner == terms.end() || b.constant().value_or(0) < 1)
    return std::nullopt;
  unsigned id = inner->first.front();
  std::optional<int64_t> added = (a - Expr::atom(id)).constant();
  if (!added || storage->atoms[id].kind != Kind::FloorDiv)
    return std::nullopt;
  Expr dividend = storage->atoms[id].operands[0], divisor = storage->atoms[id].operands[1];
  std::optional<int64_t> by =
      divisor.constant().value_or(0) > 0 ? checkedMul(*divisor.constant(), *b.constant()) : std::nullopt;
  Expr whole = simplify(dividend + divisor * Expr(*added));
  // Where the quotient is known to be exact, the dividend may have become a multiple of it, or of one of another that
  // is.
  if (!by || whole.overflowed() || numJoined == kMaxExprDepth ||
      llvm::any_of(whole.getTerms(), [&](const auto &term) { return llvm::is_contained(term.first, id); }))
    return std::nullopt;
  llvm::SaveAndRestore deeper(numJoined, numJoined + 1);
  return floorDiv(whole, Expr(*by));
}

Expr Symbols::floorDiv(const Expr &x, const Expr &y) {
  Expr a = simplify(x), b = simplify(y);
  if (b.is(0) || a.overflowed() || b.overflowed())
    return Expr::overflow();
  if (a.is(INT64_MIN) && b.is(-1))
    return Expr::overflow();
  cancelFactors(a, b); // one that is 0 made the quotient unspecified
  auto [quotient, remainder] = divideWithRemainder(a, b);
  if (quotient.overflowed() || remainder.overflowed())
    return Expr::overflow();
  if (remainder.is(0) || (a.constant() && b.constant()))
    return quotient;
  std::optional<int64_t> low = lowerBound(remainder), divisor = lowerBound(b);
  bool small = low && *low >= 0 && isLess(remainder, b) == true;
  if (small)
    return quotient;
  if (std::optional<Expr> joined = joinQuotients(remainder, b))
    return quotient + *joined;
  // Splitting is worth it where the divisor is a constant: (2n + 3) / 2 = n + 1.
  if (b.constant() && *b.constant() > 0)
    return quotient + make(Kind::FloorDiv, {remainder, b}, low ? std::optional(floorDivide(*low, *b.constant())) : low,
                           upperBound(remainder) ? std::optional(floorDivide(*upperBound(remainder), *b.constant()))
                                                 : std::nullopt);
  std::optional<int64_t> dividend = lowerBound(a);
  if (dividend && *dividend >= 0 && divisor && *divisor >= 0)
    return make(Kind::FloorDiv, {a, b}, 0, upperBound(a));
  return make(Kind::FloorDiv, {a, b});
}

Expr Symbols::ceilDiv(const Expr &a, const Expr &b) { return Expr(0) - floorDiv(Expr(0) - a, b); }

Expr Symbols::truncDiv(const Expr &x, const Expr &y) {
  Expr a = simplify(x), b = simplify(y);
  if (b.is(0) || a.overflowed() || b.overflowed())
    return Expr::overflow();
  if (a.constant() && b.constant())
    return *a.constant() == INT64_MIN && b.is(-1) ? Expr::overflow() : Expr(*a.constant() / *b.constant());
  if (std::optional<Expr> exact = exactQuotient(a, b))
    return *exact;
  if (lowerBound(a).value_or(-1) >= 0 && lowerBound(b).value_or(-1) >= 0)
    return floorDiv(a, b);
  return make(Kind::TruncDiv, {a, b});
}

Expr Symbols::mod(const Expr &x, const Expr &y) {
  Expr a = simplify(x), b = simplify(y);
  if (b.is(0) || a.overflowed() || b.overflowed())
    return Expr::overflow();
  Expr remainder = divideWithRemainder(a, b).second;
  if (remainder.is(0) || (a.constant() && b.constant()) ||
      (lowerBound(remainder).value_or(-1) >= 0 && isLess(remainder, b) == true))
    return remainder;
  if (b.constant() && *b.constant() > 0)
    return make(Kind::Mod, {remainder, b}, 0, *b.constant() - 1);
  std::optional<int64_t> divisor = lowerBound(b);
  return make(Kind::Mod, {a, b}, divisor && *divisor >= 0 ? std::optional<int64_t>(0) : std::nullopt);
}

Expr Symbols::min(const Expr &x, const Expr &y) {
  Expr a = simplify(x), b = simplify(y);
  if (a.overflowed() || b.overflowed())
    return Expr::overflow();
  if (lowerBound(b - a).value_or(-1) >= 0)
    return a;
  if (lowerBound(a - b).value_or(-1) >= 0)
    return b;
  for (const Expr *sum : {&a, &b}) {
    // min(1, n + min(1, n)) = min(1, n), where n is at least 0.
    if (!(sum == &a ? b : a).is(1))
      continue;
    for (const auto &[monomial, coefficient] : sum->getTerms()) {
      if (monomial.size() != 1 || coefficient < 0)
        continue;
      const auto &atom = storage->atoms[monomial.front()];
      if (atom.kind != Kind::Min || !llvm::is_contained(atom.operands, Expr(1)))
        continue;
      Expr other = atom.operands[atom.operands[0].is(1) ? 1 : 0], rest = *sum - monomialExpr(monomial, coefficient);
      if (lowerBound(other).value_or(-1) >= 0 && lowerBound(rest - other).value_or(-1) >= 0)
        return min(rest, 1);
    }
  }
  std::optional<int64_t> la = lowerBound(a), lb = lowerBound(b), ua = upperBound(a), ub = upperBound(b);
  bool ordered = a.getTerms() < b.getTerms();
  return make(Kind::Min, {ordered ? a : b, ordered ? b : a},
              la && lb ? std::optional(std::min(*la, *lb)) : std::nullopt,
              ua && ub ? std::optional(std::min(*ua, *ub)) : (ua ? ua : ub));
}

Expr Symbols::max(const Expr &x, const Expr &y) {
  Expr a = simplify(x), b = simplify(y);
  if (a.overflowed() || b.overflowed())
    return Expr::overflow();
  if (lowerBound(b - a).value_or(-1) >= 0)
    return b;
  if (lowerBound(a - b).value_or(-1) >= 0)
    return a;
  std::optional<int64_t> la = lowerBound(a), lb = lowerBound(b), ua = upperBound(a), ub = upperBound(b);
  bool ordered = a.getTerms() < b.getTerms();
  return make(Kind::Max, {ordered ? a : b, ordered ? b : a},
              la && lb ? std::optional(std::max(*la, *lb)) : (la ? la : lb),
              ua && ub ? std::optional(std::max(*ua, *ub)) : std::nullopt);
}

Expr Symbols::equal(const Expr &a, const Expr &b) {
  if (std::optional<bool> known = isEqual(a, b))
    return Expr(*known);
  bool ordered = a.getTerms() < b.getTerms();
  return make(Kind::Equal, {ordered ? a : b, ordered ? b : a}, 0, 1);
}

Expr Symbols::less(const Expr &a, const Expr &b) {
  if (std::optional<bool> known = isLess(a, b))
    return Expr(*known);
  return make(Kind::Less, {a, b}, 0, 1);
}

Expr Symbols::select(const Expr &condition, const Expr &a, const Expr &b) {
  if (condition.constant())
    return condition.is(0) ? b : a;
  if (a == b)
    return a;
  if (a.is(1) && b.is(0))
    return condition;
  if (a.is(0) && b.is(1))
    return Expr(1) - condition;
  std::optional<int64_t> la = lowerBound(a), lb = lowerBound(b), ua = upperBound(a), ub = upperBound(b);
  return make(Kind::Select, {condition, a, b}, la && lb ? std::optional(std::min(*la, *lb)) : std::nullopt,
              ua && ub ? std::optional(std::max(*ua, *ub)) : std::nullopt);
}

//===----------------------------------------------------------------------===//
// Names
//===----------------------------------------------------------------------===//

llvm::StringRef Symbols::name(const Expr &a) const {
  if (a.getTerms().size() != 1)
    return "";
  const auto &[monomial, coefficient] = *a.getTerms().begin();
  if (coefficient != 1 || monomial.size() != 1 || monomial[0] == kOverflowAtom)
    return "";
  return storage->atoms[monomial[0]].name;
}

std::string Symbols::outputName(const Expr &a) const {
  if (a.constant() || a.overflowed())
    return "";
  for (const auto &term : a.getTerms())
    for (unsigned id : term.first)
      if (storage->atoms[id].kind != Kind::Dimension)
        return "";
  std::string text = print(a);
  return text.size() > 100 ? "" : text;
}

bool Symbols::isNamed(const Expr &a) const {
  llvm::SmallVector<Expr> rest{a};
  llvm::SmallDenseSet<unsigned> seen;
  while (!rest.empty()) {
    Expr next = rest.pop_back_val();
    if (next.overflowed())
      continue;
    for (const auto &term : next.getTerms())
      for (unsigned id : term.first) {
        if (storage->atoms[id].kind == Kind::Opaque)
          return false;
        if (seen.insert(id).second)
          rest.append(storage->atoms[id].operands.begin(), storage->atoms[id].operands.end());
      }
  }
  return true;
}

std::string Symbols::print(const Expr &a) const { return print(a, 0); }

std::string Symbols::print(const Expr &a, unsigned depth) const {
  static const char *const names[] = {"", "", "floordiv", "truncdiv", "mod", "min", "max", "equal", "less", "select"};
  bool isAlone =
      a.getTerms().size() == 1 && a.getTerms().begin()->second == 1 && a.getTerms().begin()->first.size() == 1;
  auto atomText = [&](unsigned id) {
    if (id == kOverflowAtom)
      return std::string("(beyond 64 bits)");
    const Atom &atom = storage->atoms[id];
    if (atom.kind == Kind::Dimension)
      return atom.name;
    if (atom.kind == Kind::Opaque)
      return std::string(isAlone ? "a size that the run tells" : "(a size that the run tells)");
    std::string text = std::string(names[unsigned(atom.kind)]) + "(";
    for (auto [n, operand] : llvm::enumerate(atom.operands))
      text += (n ? ", " : "") + (depth < 4 ? print(operand, depth + 1) : "...");
    return text + ")";
  };
  std::vector<std::pair<Expr::Monomial, int64_t>> terms(a.getTerms().begin(), a.getTerms().end());
  // std::map is in order within a degree.
  llvm::sort(terms, [](const auto &x, const auto &y) {
    return std::make_pair(y.first.size(), ArrayRef(x.first)) < std::make_pair(x.first.size(), ArrayRef(y.first));
  });
  std::string text;
  for (auto &[monomial, coefficient] : terms) {
    bool negative = coefficient < 0;
    text += text.empty() ? (negative ? "-" : "") : (negative ? " - " : " + ");
    uint64_t magnitude = negative ? 0 - uint64_t(coefficient) : uint64_t(coefficient);
    if (magnitude != 1 || monomial.empty())
      text += std::to_string(magnitude) + (monomial.empty() ? "" : "*");
    for (auto [n, id] : llvm::enumerate(monomial))
      text += (n ? "*" : "") + atomText(id);
    if (text.size() > 400) // atoms nest; a message needs no more
      return text.substr(0, 400) + "...";
  }
  return text.empty() ? "0" : text;
}
