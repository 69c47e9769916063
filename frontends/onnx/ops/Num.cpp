#include "frontends/onnx/ops/Num.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Matchers.h"
#include <cmath>
#include <limits>

using namespace mlir;

namespace attn::onnx {

DType computeDType(DType dtype) { return dtype == DType::F16 || dtype == DType::BF16 ? DType::F32 : dtype; }

Type scalarType(MLIRContext *context, DType dtype) {
  return dtype == DType::Bool ? IntegerType::get(context, 1) : elementType(context, dtype);
}

Num constantNum(OpBuilder &b, Location loc, DType dtype, int64_t c) {
  if (isFloat(dtype))
    return constantNum(b, loc, dtype, double(c));
  Type type = scalarType(b.getContext(), dtype);
  APInt bits = APInt(64, uint64_t(c), true).sextOrTrunc(type.getIntOrFloatBitWidth());
  return Num(b, loc, dtype, arith::ConstantOp::create(b, loc, IntegerAttr::get(type, bits)));
}

Num constantNum(OpBuilder &b, Location loc, DType dtype, double c) {
  if (!isFloat(dtype))
    return constantNum(b, loc, dtype, int64_t(c));
  return Num(b, loc, dtype, arith::ConstantOp::create(b, loc, FloatAttr::get(scalarType(b.getContext(), dtype), c)));
}

Num Num::highest() const {
  if (isFloating())
    return constant(std::numeric_limits<double>::infinity());
  APInt max = isSigned(dt) ? APInt::getSignedMaxValue(bits()) : APInt::getMaxValue(bits());
  return with(arith::ConstantOp::create(builder(), location(), IntegerAttr::get(type(), max)));
}

Num Num::lowest() const {
  if (isFloating())
    return constant(-std::numeric_limits<double>::infinity());
  APInt min = isSigned(dt) ? APInt::getSignedMinValue(bits()) : APInt::getMinValue(bits());
  return with(arith::ConstantOp::create(builder(), location(), IntegerAttr::get(type(), min)));
}

//===----------------------------------------------------------------------===//
// Conversion
//===----------------------------------------------------------------------===//

Num convert(const Num &x, DType to) {
  return Num(x.builder(), x.location(), to, Node::castScalar(x.builder(), x.location(), x.value(), x.dtype(), to));
}

Num fromIndex(OpBuilder &b, Location loc, DType dtype, Value index) {
  Value i = b.createOrFold<arith::IndexCastOp>(loc, b.getI64Type(), index);
  return convert(Num(b, loc, DType::I64, i), dtype);
}

//===----------------------------------------------------------------------===//
// Operators
//===----------------------------------------------------------------------===//

Num operator/(const Num &x, const Num &y) {
  if (x.isFloating())
    return x.with(emit::divide(x, y));
  // The processor traps on x / 0 and on MIN / -1: neither may reach it.
  Num zero = x.constant(0), byZero = y == zero;
  if (!isSigned(x.dtype())) {
    Num quotient = x.make<arith::DivUIOp>(x, select(byZero, x.constant(1), y));
    return select(byZero, zero, quotient);
  }
  Num byMinusOne = y == x.constant(-1);
  Num quotient = x.make<arith::DivSIOp>(x, select(byZero | byMinusOne, x.constant(1), y));
  return select(byZero, zero, select(byMinusOne, -x, quotient));
}

Num abs(const Num &x) { return x.isUnsigned() ? x : x.with(emit::abs(x)); }

/// x^n by squaring, n >= 1.
static Num power(const Num &x, unsigned n) {
  if (n == 1)
    return x;
  Num half = power(x, n / 2), square = half * half;
  return n % 2 ? square * x : square;
}

static Num integerPow(const Num &x, const Num &n) {
  Num zero = n.constant(0), one = x.constant(1);
  Num negative = n < zero, odd = (n & n.constant(1)) != zero;
  // Beyond 63 only the parity matters: even powers of |x| > 1 have wrapped,
  // and 0, 1 and -1 repeat. Six squarings then reach every exponent.
  Num m = n;
  if (n.bits() >= 8)
    m = select(n > n.constant(63), n.constant(62) + (n & n.constant(1)), n);
  Num result = one, square = x;
  for (int bit = 0; bit < 6; ++bit) {
    Num set = (m & n.constant(1 << bit)) != zero;
    result = select(set, result * square, result);
    square = square * square;
  }
  if (!isSigned(n.dtype()))
    return result;
  Num inverse = select(x == one, one, x.constant(0));
  if (isSigned(x.dtype()))
    inverse = select(x == x.constant(-1), select(odd, x, one), inverse);
  return select(negative, inverse, result);
}

Num pow(const Num &x, const Num &n) {
  if (!x.isFloating())
    return integerPow(x, n);
  FloatAttr attr;
  if (matchPattern(n.value(), m_Constant(&attr))) {
    double c = attr.getValueAsDouble();
    if (c == 0.5)
      return select(x == x.lowest(), x.highest(), sqrt(x)); // pow(-inf, 0.5) is inf
    if (c == -0.5)
      return select(x == x.lowest(), x.constant(0.0), 1.0 / sqrt(x));
    if (c == std::trunc(c) && std::fabs(c) >= 1 && std::fabs(c) <= 8)
      return c > 0 ? power(x, unsigned(c)) : 1.0 / power(x, unsigned(-c));
  }
  return x.make<math::PowFOp>(x, n);
}

} // namespace attn::onnx
