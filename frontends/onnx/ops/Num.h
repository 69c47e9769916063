#ifndef FRONTENDS_ONNX_OPS_NUM_H
#define FRONTENDS_ONNX_OPS_NUM_H

#include "builders/Operators.h"
#include "frontends/onnx/Importer.h"

namespace attn::onnx {

/// A scalar SSA value of one ONNX element type with the operators of C++
/// (builders/Operators.h), so that a formula reads as in the operator's
/// specification. Signedness comes from the dtype; bool is an i1. A formula run
/// on constants computes its value at import.
class Num : public Term {
public:
  Num(mlir::OpBuilder &b, mlir::Location loc, DType dtype, mlir::Value v) : Term(b, loc, v), dt(dtype) {}

  DType dtype() const { return dt; }
  bool isUnsigned() const { return !isFloating() && !isSigned(dt); }

  /// A constant of this number's dtype.
  Num constant(double c) const { return constantLike(*this, c); }
  Num constant(int64_t c) const { return constantLike(*this, c); }
  Num constant(int c) const { return constantLike(*this, c); }
  /// The largest and the smallest value of the dtype: infinities for floats.
  Num highest() const;
  Num lowest() const;
  /// Bits of the dtype in a register.
  unsigned bits() const { return type().getIntOrFloatBitWidth(); }

  Num with(mlir::Value value) const { return Num(builder(), location(), dt, value); }
  /// A value of the same dtype from `Op`.
  template <typename Op> Num make(mlir::Value x, mlir::Value y) const {
    return with(builder().createOrFold<Op>(location(), x, y));
  }
  Num truth(mlir::Value i1) const { return Num(builder(), location(), DType::Bool, i1); }

private:
  DType dt;
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

/// Integers: truncated towards zero; x / 0 is 0.
Num operator/(const Num &, const Num &);
/// Of unsigned integers: themselves.
Num abs(const Num &);
/// Floats: pow of C. Integers: wraps; a negative exponent gives the truncated
/// reciprocal. Small constant exponents become products and square roots.
Num pow(const Num &base, const Num &exponent);

} // namespace attn::onnx

#endif // FRONTENDS_ONNX_OPS_NUM_H
