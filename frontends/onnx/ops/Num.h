#ifndef FRONTENDS_ONNX_OPS_NUM_H
#define FRONTENDS_ONNX_OPS_NUM_H

#include "frontends/onnx/Importer.h"
#include "mlir/IR/Builders.h"

namespace attn::onnx {

/// A scalar SSA value of one ONNX element type with the operators of C++, so
/// that a formula reads as in the operator's specification. Signedness comes
/// from the dtype; bool is an i1. Every operation folds when its operands are
/// constants, so a formula run on constants computes its value at import.
class Num {
public:
  Num(mlir::OpBuilder &b, mlir::Location loc, DType dtype, mlir::Value v) : b(&b), loc(loc), type(dtype), v(v) {}

  mlir::Value value() const { return v; }
  DType dtype() const { return type; }
  bool isFloating() const { return isFloat(type); }
  mlir::OpBuilder &builder() const { return *b; }
  mlir::Location location() const { return loc; }

  /// A constant of this number's dtype.
  Num constant(double c) const;
  Num constant(int64_t c) const;
  Num constant(int c) const { return constant(int64_t(c)); }
  /// The largest and the smallest value of the dtype: infinities for floats.
  Num highest() const;
  Num lowest() const;
  /// Bits of the dtype in a register.
  unsigned bits() const { return v.getType().getIntOrFloatBitWidth(); }

  /// A value of the same dtype from `op`.
  template <typename Op, typename... Args> Num make(Args &&...args) const {
    return Num(*b, loc, type, b->createOrFold<Op>(loc, std::forward<Args>(args)...));
  }
  Num with(mlir::Value value) const { return Num(*b, loc, type, value); }
  Num boolean(mlir::Value i1) const { return Num(*b, loc, DType::Bool, i1); }

private:
  mlir::OpBuilder *b;
  mlir::Location loc;
  DType type;
  mlir::Value v;
};

/// f32 for f16 and bf16, else the dtype itself: where formulae are computed.
DType computeDType(DType);
/// Element type of a register: i1 for bool.
mlir::Type scalarType(mlir::MLIRContext *, DType);
/// A constant in a register.
Num constantNum(mlir::OpBuilder &b, mlir::Location loc, DType dtype, double c);
Num constantNum(mlir::OpBuilder &b, mlir::Location loc, DType dtype, int64_t c);
/// ONNX Cast of one scalar.
Num convert(const Num &x, DType to);
/// An index as a number of `dtype`.
Num fromIndex(mlir::OpBuilder &b, mlir::Location loc, DType dtype, mlir::Value index);

// Integers wrap. Division truncates towards zero; x / 0 is 0.
Num operator+(const Num &, const Num &);
Num operator-(const Num &, const Num &);
Num operator*(const Num &, const Num &);
Num operator/(const Num &, const Num &);
Num operator-(const Num &);
// On integers and bools.
Num operator&(const Num &, const Num &);
Num operator|(const Num &, const Num &);
Num operator^(const Num &, const Num &);
Num operator!(const Num &); // bool, or all bits of an integer
// Comparisons with NaN are false, != is true.
Num operator<(const Num &, const Num &);
Num operator<=(const Num &, const Num &);
Num operator>(const Num &, const Num &);
Num operator>=(const Num &, const Num &);
Num operator==(const Num &, const Num &);
Num operator!=(const Num &, const Num &);

#define ATTN_NUM_MIXED(op)                                                                                             \
  inline Num operator op(const Num &a, double c) { return a op a.constant(c); }                                        \
  inline Num operator op(double c, const Num &a) { return a.constant(c) op a; }
ATTN_NUM_MIXED(+)
ATTN_NUM_MIXED(-)
ATTN_NUM_MIXED(*)
ATTN_NUM_MIXED(/)
ATTN_NUM_MIXED(<)
ATTN_NUM_MIXED(<=)
ATTN_NUM_MIXED(>)
ATTN_NUM_MIXED(>=)
ATTN_NUM_MIXED(==)
ATTN_NUM_MIXED(!=)
#undef ATTN_NUM_MIXED

Num select(const Num &condition, const Num &a, const Num &b);
Num maximum(const Num &, const Num &); // NaN wins, as in NumPy
Num minimum(const Num &, const Num &);
/// x where it is at least / at most the bound, and NaN where x is NaN: one
/// instruction of x86, where maximum needs four.
Num atLeast(const Num &x, const Num &bound);
Num atMost(const Num &x, const Num &bound);

Num abs(const Num &);
Num sqrt(const Num &);
Num exp(const Num &);
Num expm1(const Num &);
Num log(const Num &);
Num log1p(const Num &);
Num erf(const Num &);
Num tanh(const Num &);
Num sin(const Num &);
Num cos(const Num &);
Num asin(const Num &);
Num acos(const Num &);
Num atan(const Num &);
Num floor(const Num &);
Num ceil(const Num &);
Num roundEven(const Num &);
Num copySign(const Num &magnitude, const Num &sign);
Num isNaN(const Num &);
Num sigmoid(const Num &);
/// Floats: pow of C. Integers: wraps; a negative exponent gives the truncated
/// reciprocal. Small constant exponents become products and square roots.
Num pow(const Num &base, const Num &exponent);

} // namespace attn::onnx

#endif // FRONTENDS_ONNX_OPS_NUM_H
