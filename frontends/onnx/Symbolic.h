#ifndef FRONTENDS_ONNX_SYMBOLIC_H
#define FRONTENDS_ONNX_SYMBOLIC_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/Value.h"
#include <cstdint>
#include <map>
#include <optional>

namespace attn::onnx {

/// An integer that shape arithmetic computes: a polynomial with integer
/// coefficients over atoms. An atom is a named input dimension or an
/// expression that polynomials cannot say (floordiv, mod, min, max, select, a
/// value read from a tensor), made once for equal operands. So `batch * seq`
/// of two places of the graph is one expression, `(batch * seq * 12) / seq` is
/// `batch * 12`, and a reshape can be proved to split or merge dimensions.
///
/// A value type; equality is equality of the polynomials.
class Expr {
public:
  using Monomial = llvm::SmallVector<unsigned, 2>; // atoms, ascending, repeated for powers

  Expr() = default; // 0
  Expr(int64_t constant);
  static Expr atom(unsigned id);

  std::optional<int64_t> constant() const; // the value, when no atom takes part
  bool is(int64_t value) const { return constant() == value; }

  friend Expr operator+(const Expr &a, const Expr &b);
  friend Expr operator-(const Expr &a, const Expr &b);
  friend Expr operator*(const Expr &a, const Expr &b);
  friend bool operator==(const Expr &a, const Expr &b) { return a.terms == b.terms; }
  friend bool operator!=(const Expr &a, const Expr &b) { return !(a == b); }

  const std::map<Monomial, int64_t> &getTerms() const { return terms; }

private:
  std::map<Monomial, int64_t> terms; // no zero coefficients
};

/// The atoms of one import, what is known of them, and their values in the IR.
class Symbols {
public:
  /// The dimension that the model calls `name`, at least `lower`, with its
  /// value at entry. Equal names give the same atom.
  Expr dimension(llvm::StringRef name, mlir::Value value, int64_t lower = 0);
  /// A fresh atom for an index computed in the IR.
  Expr opaque(mlir::Value index, std::optional<int64_t> lower = std::nullopt);

  Expr floorDiv(const Expr &a, const Expr &b); // exact division of polynomials where possible
  Expr truncDiv(const Expr &a, const Expr &b); // ONNX Div on integers
  Expr mod(const Expr &a, const Expr &b);      // sign of the divisor, as ONNX Mod (fmod = 0)
  Expr min(const Expr &a, const Expr &b);
  Expr max(const Expr &a, const Expr &b);

  /// Decides a comparison for every value the atoms can have; nullopt: open.
  std::optional<bool> isEqual(const Expr &a, const Expr &b) const;
  std::optional<bool> isLess(const Expr &a, const Expr &b) const; // a < b
  /// Greatest proved lower bound of `a`.
  std::optional<int64_t> lowerBound(const Expr &a) const;

  /// The value of `a` as an index, written at the builder's insertion point
  /// (or reused where an earlier one dominates it).
  mlir::Value materialize(mlir::OpBuilder &b, mlir::Location loc, const Expr &a);
  /// A constant attribute or the value: what tensor ops take as a size.
  mlir::OpFoldResult size(mlir::OpBuilder &b, mlir::Location loc, const Expr &a);

  /// For messages: "batch*seq + 2".
  std::string print(const Expr &a) const;

private:
  struct Atom; // in Symbolic.cpp
  std::vector<std::shared_ptr<Atom>> atoms;
};

} // namespace attn::onnx

#endif // FRONTENDS_ONNX_SYMBOLIC_H
