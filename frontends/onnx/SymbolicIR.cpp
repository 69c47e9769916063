#include "frontends/onnx/Symbolic.h"
#include "frontends/onnx/SymbolicStorage.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace attn::onnx;

void Symbols::enterHome(Block *block) {
  homes.push_back(block);
  storage->before.emplace_back();
}

void Symbols::leaveHome() {
  homes.pop_back();
  if (std::optional<Storage::Knowledge> &before = storage->before.back()) {
    storage->replacements = std::move(before->replacements);
    storage->equal = std::move(before->equal);
  }
  storage->before.pop_back();
  storage->bounded.resize(std::min(storage->bounded.size(), homes.size()));
}

bool Symbols::noteBounded(const Expr &a) {
  auto &bounded = storage->bounded;
  if (llvm::any_of(bounded, [&](const auto &home) { return home.count(a.getTerms()); }))
    return false;
  bounded.resize(std::max<size_t>(homes.size(), 1));
  bounded.back().insert(a.getTerms());
  return true;
}

std::optional<size_t> Symbols::level(const Expr &a, size_t count) const {
  size_t result = 0;
  if (a.overflowed())
    return std::nullopt;
  for (const auto &term : a.getTerms())
    for (unsigned id : term.first) {
      // From the inside: most of what is asked for is near.
      size_t found = count;
      while (found > 0 && homes[found - 1] != storage->atoms[id].home)
        --found;
      if (found == 0)
        return std::nullopt;
      result = std::max(result, found - 1);
    }
  return result;
}

Value Symbols::materialize(OpBuilder &b, Location loc, const Expr &a) { return emit(b, loc, a); }

Expr Symbols::alias(OpBuilder &b, Location loc, const Expr &a) {
  if (a.getTerms().size() <= 1)
    return a;
  auto [it, fresh] = storage->aliases.try_emplace(a.getTerms());
  if (fresh)
    it->second = opaque(materialize(b, loc, a), lowerBound(a), upperBound(a));
  return it->second;
}

OpFoldResult Symbols::size(OpBuilder &b, Location loc, const Expr &a) {
  if (std::optional<int64_t> constant = a.constant())
    return b.getIndexAttr(*constant);
  return materialize(b, loc, a);
}

Value Symbols::emit(OpBuilder &b, Location loc, const Expr &a) {
  if (a.overflowed()) {
    usedOverflow = true;
    return arith::ConstantIndexOp::create(b, loc, 0);
  }
  OpBuilder::InsertionGuard guard(b);
  if (!homes.empty())
    b.setInsertionPointToEnd(homes[level(a, homes.size()).value_or(homes.size() - 1)]);
  auto &memo = storage->values;
  auto it = memo.find(a.getTerms());
  // All is appended to one block: what stands in it comes first.
  if (it != memo.end() && it->second.getParentBlock() == b.getInsertionBlock())
    return it->second;

  Value sum;
  const auto &terms = a.getTerms();
  if (std::optional<int64_t> constant = a.constant()) {
    sum = arith::ConstantIndexOp::create(b, loc, *constant);
  } else if (terms.size() == 1 && terms.begin()->second == 1) {
    // One product: all atoms but the last, shared with others, times the last.
    const Expr::Monomial &monomial = terms.begin()->first;
    if (monomial.size() == 1) {
      sum = emitAtom(b, loc, monomial[0]);
    } else {
      Expr front(1);
      for (unsigned id : llvm::ArrayRef(monomial).drop_back())
        front = front * Expr::atom(id);
      Value product = emit(b, loc, front);
      sum = arith::MulIOp::create(b, loc, product, emit(b, loc, Expr::atom(monomial.back())));
    }
  } else {
    // Greater monomials first, so that the constant comes last; the first term
    // is a positive one where there is one.
    std::vector<std::pair<Expr::Monomial, int64_t>> ordered;
    for (bool positive : {true, false})
      for (const auto &term : llvm::reverse(terms))
        if (positive == (term.second > 0))
          ordered.push_back(term);
    for (auto &[monomial, coefficient] : ordered) {
      bool subtract = sum && coefficient < 0 && coefficient != INT64_MIN;
      int64_t factor = subtract ? -coefficient : coefficient;
      Expr product(1);
      for (unsigned id : monomial)
        product = product * Expr::atom(id);
      Value term = monomial.empty() ? emit(b, loc, Expr(factor)) : emit(b, loc, product);
      if (!monomial.empty() && factor != 1)
        term = arith::MulIOp::create(b, loc, term, emit(b, loc, Expr(factor)));
      if (!sum)
        sum = term;
      else if (subtract)
        sum = arith::SubIOp::create(b, loc, sum, term);
      else
        sum = arith::AddIOp::create(b, loc, sum, term);
    }
  }
  memo[terms] = sum;
  return sum;
}

/// Never 0: the hardware traps.
Value Symbols::emitDivisor(OpBuilder &b, Location loc, const Expr &a) {
  Value value = emit(b, loc, a);
  if (lowerBound(a).value_or(0) >= 1 || upperBound(a).value_or(0) <= -1)
    return value;
  Value one = emit(b, loc, Expr(1)), zero = emit(b, loc, Expr(0));
  if (lowerBound(a).value_or(-1) >= 0)
    return arith::MaxSIOp::create(b, loc, value, one);
  Value isZero = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, value, zero);
  return arith::SelectOp::create(b, loc, isZero, one, value);
}

Value Symbols::emitAtom(OpBuilder &b, Location loc, unsigned id) {
  // By value: emitting operands never makes atoms, but costs nothing to be safe.
  Atom atom = storage->atoms[id];
  if (atom.value)
    return atom.value;
  auto operand = [&](unsigned n) { return emit(b, loc, atom.operands[n]); };
  auto asIndex = [&](Value bit) { return arith::IndexCastUIOp::create(b, loc, b.getIndexType(), bit).getResult(); };
  switch (atom.kind) {
  case Kind::Dimension:
  case Kind::Opaque:
    break;
  case Kind::FloorDiv: {
    Value dividend = operand(0), divisor = emitDivisor(b, loc, atom.operands[1]);
    if (lowerBound(atom.operands[0]).value_or(-1) >= 0 && lowerBound(atom.operands[1]).value_or(-1) >= 0)
      return arith::DivSIOp::create(b, loc, dividend, divisor);
    return arith::FloorDivSIOp::create(b, loc, dividend, divisor);
  }
  case Kind::TruncDiv: {
    Value dividend = operand(0);
    return arith::DivSIOp::create(b, loc, dividend, emitDivisor(b, loc, atom.operands[1]));
  }
  case Kind::Mod: {
    Value dividend = operand(0), divisor = emitDivisor(b, loc, atom.operands[1]);
    Value remainder = arith::RemSIOp::create(b, loc, dividend, divisor);
    if (lowerBound(atom.operands[0]).value_or(-1) >= 0 && lowerBound(atom.operands[1]).value_or(-1) >= 0)
      return remainder;
    // C's remainder has the dividend's sign, ONNX's the divisor's.
    Value zero = emit(b, loc, Expr(0));
    Value nonzero = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, remainder, zero);
    Value mixed = arith::XOrIOp::create(b, loc, remainder, divisor);
    Value differ = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, mixed, zero);
    Value wrap = arith::AndIOp::create(b, loc, nonzero, differ);
    Value shifted = arith::AddIOp::create(b, loc, remainder, divisor);
    return arith::SelectOp::create(b, loc, wrap, shifted, remainder);
  }
  case Kind::Min:
  case Kind::Max: {
    Value x = operand(0), y = operand(1);
    if (atom.kind == Kind::Min)
      return arith::MinSIOp::create(b, loc, x, y);
    return arith::MaxSIOp::create(b, loc, x, y);
  }
  case Kind::Equal:
  case Kind::Less: {
    Value x = operand(0), y = operand(1);
    auto predicate = atom.kind == Kind::Equal ? arith::CmpIPredicate::eq : arith::CmpIPredicate::slt;
    return asIndex(arith::CmpIOp::create(b, loc, predicate, x, y));
  }
  case Kind::Select: {
    Value condition = operand(0), x = operand(1), y = operand(2);
    Value holds = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, condition, emit(b, loc, Expr(0)));
    return arith::SelectOp::create(b, loc, holds, x, y);
  }
  }
  llvm_unreachable("a dimension without a value");
}

//===----------------------------------------------------------------------===//
// Estimates
//===----------------------------------------------------------------------===//

bool Symbols::mayExceed(const Expr &a, int64_t limit) const {
  bool data = false;
  if (a.overflowed())
    return true;
  for (const auto &term : a.getTerms())
    data |= llvm::any_of(term.first, [&](unsigned id) { return storage->atoms[id].data; });
  if (!data)
    return false;
  std::optional<int64_t> upper = upperBound(a);
  return lowerBound(a).value_or(-1) < 0 || !upper || *upper > limit;
}

static Value toDouble(OpBuilder &b, Location loc, Value index) {
  Value integer = arith::IndexCastOp::create(b, loc, b.getI64Type(), index);
  return arith::SIToFPOp::create(b, loc, b.getF64Type(), integer);
}

Value Symbols::estimate(OpBuilder &b, Location loc, const Expr &a) {
  if (a.overflowed())
    return toDouble(b, loc, emit(b, loc, a));
  OpBuilder::InsertionGuard guard(b);
  if (!homes.empty())
    b.setInsertionPointToEnd(homes[level(a, homes.size()).value_or(homes.size() - 1)]);
  auto it = storage->estimates.find(a.getTerms());
  if (it != storage->estimates.end() && it->second.getParentBlock() == b.getInsertionBlock())
    return it->second;
  Value sum;
  for (const auto &[monomial, coefficient] : a.getTerms()) {
    Value term;
    if (coefficient != 1 || monomial.empty())
      term = arith::ConstantOp::create(b, loc, b.getF64FloatAttr(coefficient));
    for (unsigned id : monomial) {
      Value factor = estimateAtom(b, loc, id);
      term = term ? arith::MulFOp::create(b, loc, term, factor).getResult() : factor;
    }
    sum = sum ? arith::AddFOp::create(b, loc, sum, term).getResult() : term;
  }
  if (!sum)
    sum = arith::ConstantOp::create(b, loc, b.getF64FloatAttr(0));
  storage->estimates[a.getTerms()] = sum;
  return sum;
}

Value Symbols::estimateAtom(OpBuilder &b, Location loc, unsigned id) {
  Atom atom = storage->atoms[id];
  auto whole = [&] { return toDouble(b, loc, emit(b, loc, Expr::atom(id))); };
  if (!atom.data) // its value is what it should be
    return whole();
  auto operand = [&](unsigned n) { return estimate(b, loc, atom.operands[n]); };
  switch (atom.kind) {
  case Kind::Dimension:
  case Kind::Opaque:
  case Kind::Mod:
  case Kind::Equal:
  case Kind::Less:
    return whole();
  case Kind::FloorDiv:
  case Kind::TruncDiv: {
    Value dividend = operand(0), divisor = operand(1);
    Value zero = arith::ConstantOp::create(b, loc, b.getF64FloatAttr(0));
    Value one = arith::ConstantOp::create(b, loc, b.getF64FloatAttr(1));
    Value isZero = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, divisor, zero);
    divisor = arith::SelectOp::create(b, loc, isZero, one, divisor);
    Value quotient = arith::DivFOp::create(b, loc, dividend, divisor);
    return atom.kind == Kind::FloorDiv ? math::FloorOp::create(b, loc, quotient).getResult()
                                       : math::TruncOp::create(b, loc, quotient).getResult();
  }
  case Kind::Min:
  case Kind::Max: {
    Value x = operand(0), y = operand(1);
    auto predicate = atom.kind == Kind::Min ? arith::CmpFPredicate::OLT : arith::CmpFPredicate::OGT;
    return arith::SelectOp::create(b, loc, arith::CmpFOp::create(b, loc, predicate, x, y), x, y);
  }
  case Kind::Select: {
    Value condition = emit(b, loc, atom.operands[0]), x = operand(1), y = operand(2);
    Value holds = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, condition, emit(b, loc, Expr(0)));
    return arith::SelectOp::create(b, loc, holds, x, y);
  }
  }
  llvm_unreachable("a kind of atom");
}
