#include "frontends/onnx/ops/Narrow.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include <cmath>
#include <limits>

using namespace mlir;

namespace attn::onnx {

namespace {
/// The shape of a float of 8 or 4 bits.
struct NarrowFloat {
  int mantissa, bias, sign = 0x80;
  bool finite; ///< no infinities; `unsignedZero`: 0x80 is NaN, and no -0
  bool unsignedZero, hasNaN = true;
  int greatest, nan; ///< codes without sign

  explicit NarrowFloat(DType dtype) {
    if (dtype == DType::F4E2M1) {
      mantissa = bias = 1;
      sign = 8;
      greatest = 7;
      nan = 0;
      unsignedZero = hasNaN = false;
      finite = true;
      return;
    }
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

/// 2^(code - 127), which below is no normal number of f32; 255 is NaN.
static Num powerOf(const Num &code) {
  Num value = fromBits(select(code == code.constant(0), code.constant(1 << 22), code << 23));
  return select(code == code.constant(255), value.constant(std::numeric_limits<double>::quiet_NaN()), value);
}

Num widened(const Num &x) {
  if (!isNarrowFloat(x.dtype()))
    return Num(x.builder(), x.location(), isSigned(x.dtype()) ? DType::I8 : DType::U8, x.value());
  Num byte = convert(Num(x.builder(), x.location(), DType::U8, x.value()), DType::I32);
  if (x.dtype() == DType::F8E8M0)
    return powerOf(byte);
  NarrowFloat type(x.dtype());
  Num code = byte & byte.constant(type.sign - 1), exponent = (code >> type.mantissa);
  Num fraction = code & byte.constant((1 << type.mantissa) - 1);
  Num tiny = convert(fraction, DType::F32) * std::ldexp(1.0, 1 - type.bias - type.mantissa);
  Num normal = fromBits(((exponent + (127 - type.bias)) << 23) | (fraction << (23 - type.mantissa)));
  Num value = select(exponent == byte.constant(0), tiny, normal);
  Num nan = value.constant(std::numeric_limits<double>::quiet_NaN());
  if (!type.finite)
    value = select(exponent == byte.constant(31), select(fraction == byte.constant(0), value.highest(), nan), value);
  else if (!type.unsignedZero && type.hasNaN)
    value = select(code == byte.constant(0x7F), nan, value);
  Num negative = byte > byte.constant(type.sign - 1);
  value = select(negative, -value, value);
  return type.unsignedZero ? select(byte == byte.constant(0x80), nan, value) : value;
}

/// The power of two that a magnitude is rounded to; an infinity is NaN.
static Num toPower(const Num &given, bool saturate, PowerRounding rounding) {
  Num bits = bitsOf(abs(convert(given, DType::F32))), exponent = bits >> 23;
  Num fraction = bits & bits.constant((1 << 23) - 1), code = exponent, above = exponent + 1;
  if (rounding == PowerRounding::up) {
    code = select(fraction > bits.constant(0), above, exponent);
  } else if (rounding == PowerRounding::nearest) { // a half goes up, but not from the least
    Num half = bits.constant(1 << 22);
    Num least = select(exponent > bits.constant(0), half, half + 1);
    code = select(fraction < least, exponent, above);
  }
  if (saturate)
    code = select(code > bits.constant(254), bits.constant(254), code);
  code = select(exponent == bits.constant(255), exponent, code);
  return Num(given.builder(), given.location(), DType::F8E8M0, convert(code, DType::U8).value());
}

static Num toNarrowFloat(const Num &given, DType to, bool saturate) {
  NarrowFloat type(to);
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
  Num overflow = code.constant(saturate || !type.hasNaN ? type.greatest : type.finite ? type.nan : 0x7C);
  code = select(beyond, overflow, code);
  Num negative = bitsOf(x) < bits.constant(0), nan = isNaN(x);
  Num sign = select(negative, code.constant(type.sign), code.constant(0));
  if (type.unsignedZero) // there is no -0
    sign = select(code == code.constant(0), code.constant(0), sign);
  code = select(nan, code.constant(type.nan), code | sign);
  return Num(given.builder(), given.location(), to, convert(code, DType::U8).value());
}

Num narrowed(const Num &x, DType to, bool saturate, PowerRounding rounding) {
  if (to == DType::F8E8M0)
    return toPower(x, saturate, rounding);
  if (isNarrowFloat(to))
    return toNarrowFloat(x, to, saturate);
  // By way of 8 bits: the low ones, with their sign.
  int64_t rest = 8 - dtypeBits(to);
  Num byte = convert(x, DType::I8);
  Num low = byte << rest;
  Value value =
      isSigned(to) ? low.make<arith::ShRSIOp>(low.value(), low.constant(rest).value()).value() : (low >> rest).value();
  return Num(x.builder(), x.location(), to, value);
}

} // namespace attn::onnx
