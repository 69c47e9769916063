#ifndef FRONTENDS_ONNX_SYMBOLICSTORAGE_H
#define FRONTENDS_ONNX_SYMBOLICSTORAGE_H

#include "frontends/onnx/Symbolic.h"
#include "llvm/ADT/StringMap.h"
#include <set>

// Shared by Symbolic.cpp (arithmetic), SymbolicProofs.cpp and SymbolicIR.cpp (values).

namespace attn::onnx {

/// What stands for a number that has no int64: see Expr::overflow.
inline constexpr unsigned kOverflowAtom = ~0u;

inline int64_t floorDivide(int64_t a, int64_t b) {
  int64_t quotient = a / b;
  return quotient - ((a % b != 0) && ((a < 0) != (b < 0)));
}

struct Symbols::Atom {
  Kind kind;
  std::string name;                    // Dimension
  llvm::SmallVector<Expr, 3> operands; // all but Dimension and Opaque
  std::optional<int64_t> lower, upper;
  mlir::Value value;           // Dimension and Opaque
  unsigned depth = 0;          // atoms inside atoms
  bool data = false;           // depends on an Opaque that is read, or without a lower bound of 0
  mlir::Block *home = nullptr; // the innermost that a value of it is made in
};

struct Symbols::Storage {
  using Terms = std::map<Expr::Monomial, int64_t>;

  std::vector<Atom> atoms;
  llvm::StringMap<unsigned> dimensions;
  std::map<std::pair<Kind, std::vector<Terms>>, unsigned> made;
  std::map<unsigned, Expr> replacements; // atom -> what it is known to equal
  std::map<Terms, bool> equal;           // differences known to be 0
  std::map<Terms, Expr> aliases;
  std::map<Terms, mlir::Value> values;
  std::map<Terms, mlir::Value> estimates;
  std::vector<std::set<Terms>> bounded; // that are noted, one a home

  /// What was known before the first assumption in a home, to be known again
  /// after it; nullopt: nothing was assumed in it.
  struct Knowledge {
    std::map<unsigned, Expr> replacements;
    std::map<Terms, bool> equal;
  };
  llvm::SmallVector<std::optional<Knowledge>, 2> before; // one a home but the first
};

} // namespace attn::onnx

#endif // FRONTENDS_ONNX_SYMBOLICSTORAGE_H
