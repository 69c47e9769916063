#ifndef FRONTENDS_ONNX_SYMBOLIC_H
#define FRONTENDS_ONNX_SYMBOLIC_H

#include "mlir/IR/Builders.h"
#include "mlir/IR/Value.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace attn::onnx {

/// An integer that shape arithmetic computes: a polynomial with integer
/// coefficients over atoms. An atom is a named input dimension or an
/// expression that polynomials cannot say (floordiv, mod, min, max, select, a
/// value read from a tensor), made once for equal operands. So `batch * seq`
/// of two places of the graph is one expression, `(batch * seq * 12) / seq` is
/// `batch * 12`, and a reshape can be proved to split or merge dimensions.
///
/// Arithmetic that leaves 64 bits or kMaxTerms gives an expression with
/// overflowed() set, which spreads. Nothing may be built from it: folding stops
/// there, and a shape that has it is an error.
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
  bool overflowed() const;
  /// The greatest factor that all coefficients have in common; 0 of 0.
  uint64_t content() const;
  static Expr overflow();

  friend Expr operator+(const Expr &a, const Expr &b);
  friend Expr operator-(const Expr &a, const Expr &b);
  friend Expr operator*(const Expr &a, const Expr &b);
  friend bool operator==(const Expr &a, const Expr &b) { return a.terms == b.terms; }
  friend bool operator!=(const Expr &a, const Expr &b) { return !(a == b); }

  const std::map<Monomial, int64_t> &getTerms() const { return terms; }

private:
  std::map<Monomial, int64_t> terms; // no zero coefficients
};

/// 1 of none: the number of elements of a shape.
Expr product(llvm::ArrayRef<Expr> factors);

/// The atoms of one import, what is known of them, and their values in the IR.
///
/// Named dimensions are at least 0: a caller may pass an empty tensor. So
/// `Equal(batch, -1)` is decided, `Equal(batch, 0)` is not.
class Symbols {
public:
  Symbols();
  ~Symbols();

  /// The dimension that the model calls `name`, at least `lower`, with its
  /// value at entry. Equal names give the same atom.
  Expr dimension(llvm::StringRef name, mlir::Value value, int64_t lower = 0);
  /// Whether `a` may be negative because of values that are read or computed in
  /// the run: then a 0 or -1 in it can mean what ONNX gives them a meaning for.
  bool isData(const Expr &a) const;
  /// The dimension made under `name`, if any.
  std::optional<Expr> lookup(llvm::StringRef name) const;
  /// A fresh atom for an index computed in the IR.
  Expr opaque(mlir::Value index, std::optional<int64_t> lower = std::nullopt,
              std::optional<int64_t> upper = std::nullopt);
  /// The same for an element of a tensor, which may be anything its type holds.
  Expr read(mlir::Value index, std::optional<int64_t> lower, std::optional<int64_t> upper);

  /// `a`, or one atom for it when it is a sum: keeps products short, and hides
  /// from them what the sum is made of.
  Expr alias(mlir::OpBuilder &b, mlir::Location loc, const Expr &a);

  /// Division by an expression that is 0 at run time gives an unspecified
  /// value (and no trap): whoever divides requires what follows from it.
  Expr floorDiv(const Expr &a, const Expr &b); // exact division of polynomials where possible
  Expr ceilDiv(const Expr &a, const Expr &b);
  Expr truncDiv(const Expr &a, const Expr &b); // ONNX Div on integers
  Expr mod(const Expr &a, const Expr &b);      // sign of the divisor, as ONNX Mod (fmod = 0)
  Expr min(const Expr &a, const Expr &b);
  Expr max(const Expr &a, const Expr &b);

  /// 1 where it holds, 0 elsewhere.
  Expr equal(const Expr &a, const Expr &b);
  Expr less(const Expr &a, const Expr &b);
  /// a where condition (0 or 1) is 1, otherwise b.
  Expr select(const Expr &condition, const Expr &a, const Expr &b);

  /// Decides a comparison for every value the atoms can have; nullopt: open.
  std::optional<bool> isEqual(const Expr &a, const Expr &b) const;
  std::optional<bool> isLess(const Expr &a, const Expr &b) const; // a < b
  /// Whether `a` is the lesser of `b` and of what is never less than 2, as a slice
  /// of a table has it: where one of them is 1, both are.
  bool isCapped(const Expr &a, const Expr &b) const;
  /// From here on a == b (an attn.require said so): isEqual knows, also inside
  /// products.
  void assumeEqual(const Expr &a, const Expr &b);
  /// From here on a >= 0, likewise; only of a multiple of one atom plus a constant, and outside of branches and bodies.
  void assumeNotNegative(const Expr &a);
  /// `a` with each atom replaced that is known to equal something simpler.
  Expr simplify(const Expr &a) const;
  /// Greatest proved lower bound and least proved upper bound of `a`.
  std::optional<int64_t> lowerBound(const Expr &a) const;
  std::optional<int64_t> upperBound(const Expr &a) const;
  /// The quotient of polynomials when `b` divides `a` for all values.
  static std::optional<Expr> exactQuotient(const Expr &a, const Expr &b);

  /// Values are written at the end of a home, so that all that is imported
  /// later may use them: of the innermost in which an atom of theirs is made.
  /// Without a home: at the builder's insertion point.
  void setHome(mlir::Block *block) { homes.assign(1, block); }
  /// A branch or the body of a loop, inside the homes there are. What is assumed
  /// within ends with it.
  void enterHome(mlir::Block *block);
  void leaveHome();
  llvm::ArrayRef<mlir::Block *> getHomes() const { return homes; }
  /// Whether the atoms of `a` are made where one stands, or further out.
  bool isVisible(const Expr &a) const { return level(a, homes.size()).has_value(); }
  /// Likewise, once the innermost home is left.
  bool outlivesHome(const Expr &a) const { return level(a, homes.size() - 1).has_value(); }
  /// The value of `a` as an index, written once.
  mlir::Value materialize(mlir::OpBuilder &b, mlir::Location loc, const Expr &a);
  /// Whether `a` depends on what the run reads, and is not proved to lie in
  /// [0, limit]: its value may have left 64 bits.
  bool mayExceed(const Expr &a, int64_t limit) const;
  /// About the value of `a`, as f64 arithmetic has it, which does not wrap.
  mlir::Value estimate(mlir::OpBuilder &b, mlir::Location loc, const Expr &a);
  /// Whether `a` is noted for the first time where one stands, or further out.
  bool noteBounded(const Expr &a);
  /// Whether an expression that overflowed was materialized (as 0) since the
  /// last call: the node is in error.
  bool takeOverflow() { return std::exchange(usedOverflow, false); }
  /// A constant attribute or the value: what tensor ops take as a size.
  mlir::OpFoldResult size(mlir::OpBuilder &b, mlir::Location loc, const Expr &a);

  /// The name of a dimension that is exactly one named atom, else "".
  llvm::StringRef name(const Expr &a) const;
  /// A name for the size of an output: the expression's text if it is made of
  /// named dimensions ("past + seq"), else "" (unknown until the run).
  std::string outputName(const Expr &a) const;
  /// Whether `a` is made of named dimensions alone, and so known when a run begins.
  bool isNamed(const Expr &a) const;
  /// For messages: "batch*seq + 2". What has no name is a size that the run tells.
  std::string print(const Expr &a) const;

private:
  enum class Kind { Dimension, Opaque, FloorDiv, TruncDiv, Mod, Min, Max, Equal, Less, Select };
  struct Atom;

  Expr make(Kind kind, llvm::ArrayRef<Expr> operands, std::optional<int64_t> lower = std::nullopt,
            std::optional<int64_t> upper = std::nullopt);
  /// floor((floor(x / m) + c) / n) = floor((x + c * m) / (m * n)), as sizes of strided windows follow each other; nullopt
  /// where `a` is no such quotient or `b` no number above 0.
  std::optional<Expr> joinQuotients(const Expr &a, const Expr &b);
  /// Makes `other` stand for the atom from here on.
  void replaceAtom(unsigned id, const Expr &other);
  /// Makes the atom again from its operands, of which more may be known now.
  void makeAnew(unsigned id);
  std::optional<int64_t> intervalLower(const Expr &a) const;
  std::optional<int64_t> lowerBound(const Expr &a, unsigned depth, unsigned &steps) const;
  std::string print(const Expr &a, unsigned depth) const;
  mlir::Value emit(mlir::OpBuilder &b, mlir::Location loc, const Expr &a);
  mlir::Value emitAtom(mlir::OpBuilder &b, mlir::Location loc, unsigned id);
  mlir::Value estimateAtom(mlir::OpBuilder &b, mlir::Location loc, unsigned id);
  mlir::Value emitDivisor(mlir::OpBuilder &b, mlir::Location loc, const Expr &a);

  /// The home, of the first `count`, at whose end `a` can be written; nullopt:
  /// an atom of it is made elsewhere.
  std::optional<size_t> level(const Expr &a, size_t count) const;

  struct Storage; // in SymbolicStorage.h
  std::unique_ptr<Storage> storage;
  llvm::SmallVector<mlir::Block *, 2> homes;
  bool usedOverflow = false;
  unsigned numJoined = 0; ///< quotients of the one at hand
};

} // namespace attn::onnx

#endif // FRONTENDS_ONNX_SYMBOLIC_H
