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

Num Num::constant(double c) const { return constantNum(*b, loc, type, c); }
Num Num::constant(int64_t c) const { return constantNum(*b, loc, type, c); }

Num Num::highest() const {
  if (isFloating())
    return constant(std::numeric_limits<double>::infinity());
  APInt max = isSigned(type) ? APInt::getSignedMaxValue(bits()) : APInt::getMaxValue(bits());
  return with(arith::ConstantOp::create(*b, loc, IntegerAttr::get(v.getType(), max)));
}

Num Num::lowest() const {
  if (isFloating())
    return constant(-std::numeric_limits<double>::infinity());
  APInt min = isSigned(type) ? APInt::getSignedMinValue(bits()) : APInt::getMinValue(bits());
  return with(arith::ConstantOp::create(*b, loc, IntegerAttr::get(v.getType(), min)));
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

template <typename FloatOp, typename IntOp> static Num arithmetic(const Num &x, const Num &y) {
  return x.isFloating() ? x.make<FloatOp>(x.value(), y.value()) : x.make<IntOp>(x.value(), y.value());
}

Num operator+(const Num &x, const Num &y) { return arithmetic<arith::AddFOp, arith::AddIOp>(x, y); }
Num operator-(const Num &x, const Num &y) { return arithmetic<arith::SubFOp, arith::SubIOp>(x, y); }
Num operator*(const Num &x, const Num &y) { return arithmetic<arith::MulFOp, arith::MulIOp>(x, y); }

Num operator-(const Num &x) { return x.isFloating() ? x.make<arith::NegFOp>(x.value()) : x.constant(0) - x; }

Num operator/(const Num &x, const Num &y) {
  if (x.isFloating())
    return x.make<arith::DivFOp>(x.value(), y.value());
  // The processor traps on x / 0 and on MIN / -1: neither may reach it.
  Num zero = x.constant(0), byZero = y == zero;
  if (!isSigned(x.dtype())) {
    Num quotient = x.make<arith::DivUIOp>(x.value(), select(byZero, x.constant(1), y).value());
    return select(byZero, zero, quotient);
  }
  Num byMinusOne = y == x.constant(-1);
  Num quotient = x.make<arith::DivSIOp>(x.value(), select(byZero | byMinusOne, x.constant(1), y).value());
  return select(byZero, zero, select(byMinusOne, -x, quotient));
}

Num operator&(const Num &x, const Num &y) { return x.make<arith::AndIOp>(x.value(), y.value()); }
Num operator|(const Num &x, const Num &y) { return x.make<arith::OrIOp>(x.value(), y.value()); }
Num operator^(const Num &x, const Num &y) { return x.make<arith::XOrIOp>(x.value(), y.value()); }
Num operator!(const Num &x) { return x ^ x.constant(-1); }

static Num compare(const Num &x, const Num &y, arith::CmpFPredicate f, arith::CmpIPredicate s, arith::CmpIPredicate u) {
  OpBuilder &b = x.builder();
  if (x.isFloating())
    return x.boolean(b.createOrFold<arith::CmpFOp>(x.location(), f, x.value(), y.value()));
  return x.boolean(b.createOrFold<arith::CmpIOp>(x.location(), isSigned(x.dtype()) ? s : u, x.value(), y.value()));
}

using F = arith::CmpFPredicate;
using I = arith::CmpIPredicate;
Num operator<(const Num &x, const Num &y) { return compare(x, y, F::OLT, I::slt, I::ult); }
Num operator<=(const Num &x, const Num &y) { return compare(x, y, F::OLE, I::sle, I::ule); }
Num operator>(const Num &x, const Num &y) { return compare(x, y, F::OGT, I::sgt, I::ugt); }
Num operator>=(const Num &x, const Num &y) { return compare(x, y, F::OGE, I::sge, I::uge); }
Num operator==(const Num &x, const Num &y) { return compare(x, y, F::OEQ, I::eq, I::eq); }
Num operator!=(const Num &x, const Num &y) { return compare(x, y, F::UNE, I::ne, I::ne); }

Num select(const Num &condition, const Num &a, const Num &b) {
  return a.make<arith::SelectOp>(condition.value(), a.value(), b.value());
}

Num maximum(const Num &x, const Num &y) {
  if (x.isFloating())
    return x.make<arith::MaximumFOp>(x.value(), y.value());
  return isSigned(x.dtype()) ? x.make<arith::MaxSIOp>(x.value(), y.value())
                             : x.make<arith::MaxUIOp>(x.value(), y.value());
}

Num minimum(const Num &x, const Num &y) {
  if (x.isFloating())
    return x.make<arith::MinimumFOp>(x.value(), y.value());
  return isSigned(x.dtype()) ? x.make<arith::MinSIOp>(x.value(), y.value())
                             : x.make<arith::MinUIOp>(x.value(), y.value());
}

Num atLeast(const Num &x, const Num &bound) { return select(x < bound, bound, x); }
Num atMost(const Num &x, const Num &bound) { return select(x > bound, bound, x); }

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

Num abs(const Num &x) {
  if (x.isFloating())
    return x.make<math::AbsFOp>(x.value());
  return isSigned(x.dtype()) ? x.make<math::AbsIOp>(x.value()) : x;
}
Num sqrt(const Num &x) { return x.make<math::SqrtOp>(x.value()); }
Num exp(const Num &x) { return x.make<math::ExpOp>(x.value()); }
Num expm1(const Num &x) { return x.make<math::ExpM1Op>(x.value()); }
Num log(const Num &x) { return x.make<math::LogOp>(x.value()); }
Num log1p(const Num &x) { return x.make<math::Log1pOp>(x.value()); }
Num erf(const Num &x) { return x.make<math::ErfOp>(x.value()); }
Num tanh(const Num &x) { return x.make<math::TanhOp>(x.value()); }
Num sin(const Num &x) { return x.make<math::SinOp>(x.value()); }
Num cos(const Num &x) { return x.make<math::CosOp>(x.value()); }
Num asin(const Num &x) { return x.make<math::AsinOp>(x.value()); }
Num acos(const Num &x) { return x.make<math::AcosOp>(x.value()); }
Num atan(const Num &x) { return x.make<math::AtanOp>(x.value()); }
Num floor(const Num &x) { return x.make<math::FloorOp>(x.value()); }
Num ceil(const Num &x) { return x.make<math::CeilOp>(x.value()); }
Num roundEven(const Num &x) { return x.make<math::RoundEvenOp>(x.value()); }
Num copySign(const Num &magnitude, const Num &sign) {
  return magnitude.make<math::CopySignOp>(magnitude.value(), sign.value());
}
Num isNaN(const Num &x) { return x != x; }
Num sigmoid(const Num &x) { return 1.0 / (1.0 + exp(-x)); }

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
  return x.make<math::PowFOp>(x.value(), n.value());
}

} // namespace attn::onnx
