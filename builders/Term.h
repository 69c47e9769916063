#ifndef BUILDERS_TERM_H
#define BUILDERS_TERM_H

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/TypeUtilities.h"
#include <type_traits>

namespace attn {

class Mask;

/// An SSA value that knows where code is emitted: at its builder's insertion
/// point when an operator is applied, not where the value was made. Operators
/// (Operators.h) are defined for every class derived from it that has
///   with(Value)   a value of the same kind;
///   truth(Value)  what a comparison of two of them gives;
///   isUnsigned()  how integers are compared, widened and divided.
class Term {
public:
  Term() = default;
  Term(mlir::OpBuilder &b, mlir::Location loc, mlir::Value v) : b(&b), loc(loc), v(v) {}

  mlir::Value value() const { return v; }
  operator mlir::Value() const { return v; }
  mlir::OpBuilder &builder() const { return *b; }
  mlir::Location location() const { return mlir::Location(loc); }
  mlir::Type type() const { return v.getType(); }
  /// The type of one lane.
  mlir::Type element() const { return mlir::getElementTypeOrSelf(v.getType()); }
  bool isFloating() const { return mlir::isa<mlir::FloatType>(element()); }
  bool isUnsigned() const { return false; }
  Mask truth(mlir::Value i1) const;

private:
  mlir::OpBuilder *b = nullptr;
  mlir::LocationAttr loc;
  mlir::Value v;
};

/// A Term whose only property is its value.
template <typename Self> class Kind : public Term {
public:
  using Term::Term;
  Self with(mlir::Value value) const { return Self(builder(), location(), value); }
};

/// A place or a number of elements. Division is that of numbers >= 0;
/// comparisons, minimum and maximum are signed.
class Index : public Kind<Index> {
  using Kind::Kind;
};

/// One number: a float or a signed integer of any width.
class Num : public Kind<Num> {
  using Kind::Kind;
};

/// A vector of numbers, one dimension.
class Vec : public Kind<Vec> {
public:
  using Kind::Kind;
  int64_t lanes() const { return mlir::cast<mlir::VectorType>(type()).getDimSize(0); }
};

/// Whether something holds, or holds in each lane.
class Mask : public Kind<Mask> {
  using Kind::Kind;
};

using Indices = llvm::SmallVector<Index>;
using Nums = llvm::SmallVector<Num>;
using Vecs = llvm::SmallVector<Vec>;
using Masks = llvm::SmallVector<Mask>;

inline Mask Term::truth(mlir::Value i1) const { return Mask(builder(), location(), i1); }

template <typename T> inline constexpr bool isTerm = std::is_base_of_v<Term, T>;
template <typename T> using IfTerm = std::enable_if_t<isTerm<T>, int>;
template <typename T> using IfNumber = std::enable_if_t<isTerm<T> && !std::is_same_v<T, Mask>, int>;
/// A number of C++ beside an operator: a constant of the other side's type.
template <typename C> using IfConstant = std::enable_if_t<std::is_arithmetic_v<C> && !std::is_same_v<C, bool>, int>;

} // namespace attn

#endif // BUILDERS_TERM_H
