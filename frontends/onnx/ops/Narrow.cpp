#include "frontends/onnx/ops/Narrow.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include <cmath>
#include <limits>

using namespace mlir;

namespace attn::onnx {

namespace {
/// The shape of an 8-bit float.
struct Float8 {
  int mantissa, bias;
  bool finite; ///< no infinities; `unsignedZero`: 0x80 is NaN, and no -0
  bool unsignedZero;
  int greatest, nan; ///< codes without sign

  explicit Float8(DType dtype) {
    bool wide = dtype == DType::F8E5M2 || dtype == DType::F8E5M2FNUZ;
    unsignedZero = dtype == DType::F8E4M3FNUZ || dtype == DType::F8E5M2FNUZ;
    mantissa = wide ? 2 : 3;
    bias = (wide ? 15 : 7) + unsignedZero;
    finite = dtype != DType::F8E5M2;
    greatest = unsignedZero ? 0x7F : wide ? 0x7B : 0x7E;
    nan = unsignedZero ? 0x80 : 0x7F;
  }
  double leastNormal() const { return std::ldexp(1.0, 1 - bias); }
};
} // namespace

static Num bitsOf(const Num &f32) {
  OpBuilder &b = f32.builder();
  return Num(b, f32.location(), DType::I32,
             b.createOrFold<arith::BitcastOp>(f32.location(), b.getI32Type(), f32.value()));
}

static Num fromBits(const Num &i32) {
  OpBuilder &b = i32.builder();
  return Num(b, i32.location(), DType::F32,
             b.createOrFold<arith::BitcastOp>(i32.location(), b.getF32Type(), i32.value()));
}

Num widened(const Num &x) {
  if (!isFloat8(x.dtype()))
    return Num(x.builder(), x.location(), x.dtype() == DType::I4 ? DType::I8 : DType::U8, x.value());
  Float8 type(x.dtype());
  Num byte = convert(Num(x.builder(), x.location(), DType::U8, x.value()), DType::I32);
  Num code = byte & byte.constant(0x7F), exponent = (code >> type.mantissa);
  Num fraction = code & byte.constant((1 << type.mantissa) - 1);
  Num tiny = convert(fraction, DType::F32) * std::ldexp(1.0, 1 - type.bias - type.mantissa);
  Num normal = fromBits(((exponent + (127 - type.bias)) << 23) | (fraction << (23 - type.mantissa)));
  Num value = select(exponent == byte.constant(0), tiny, normal);
  Num nan = value.constant(std::numeric_limits<double>::quiet_NaN());
  if (!type.finite)
    value = select(exponent == byte.constant(31), select(fraction == byte.constant(0), value.highest(), nan), value);
  else if (!type.unsignedZero)
    value = select(code == byte.constant(0x7F), nan, value);
  Num negative = byte > byte.constant(0x7F);
  value = select(negative, -value, value);
  return type.unsignedZero ? select(byte == byte.constant(0x80), nan, value) : value;
}

static Num toFloat8(const Num &given, DType to, bool saturate) {
  Float8 type(to);
  Num x = convert(given, DType::F32), magnitude = abs(x), bits = bitsOf(magnitude);
  int dropped = 23 - type.mantissa;
  // Round to even on the bits; below the normal numbers, on multiples of the least one.
  Num odd = (bits >> dropped) & bits.constant(1);
  Num normal =
      ((bits + ((1 << (dropped - 1)) - 1) + odd) >> dropped) - bits.constant((127 - type.bias) << type.mantissa);
  Num scaled = magnitude * std::ldexp(1.0, type.bias - 1 + type.mantissa);
  Num small = magnitude < type.leastNormal();
  Num tiny = convert(roundEven(select(small, scaled, scaled.constant(0))), DType::I32);
  Num code = select(small, tiny, normal), beyond = code > code.constant(type.greatest);
  Num overflow = code.constant(saturate ? type.greatest : type.finite ? type.nan : 0x7C);
  code = select(beyond, overflow, code);
  Num negative = bitsOf(x) < bits.constant(0), nan = isNaN(x);
  Num sign = select(negative, code.constant(0x80), code.constant(0));
  if (type.unsignedZero) // there is no -0
    sign = select(code == code.constant(0), code.constant(0), sign);
  code = select(nan, code.constant(type.nan), code | sign);
  return Num(given.builder(), given.location(), to, convert(code, DType::U8).value());
}

Num narrowed(const Num &x, DType to, bool saturate) {
  if (isFloat8(to))
    return toFloat8(x, to, saturate);
  // By way of 8 bits: the low half, with its sign.
  bool isSigned = to == DType::I4;
  Num byte = convert(x, DType::I8);
  Num low = byte << 4;
  Value value = isSigned ? low.make<arith::ShRSIOp>(low.value(), low.constant(4).value()).value() : (low >> 4).value();
  return Num(x.builder(), x.location(), to, value);
}

} // namespace attn::onnx
