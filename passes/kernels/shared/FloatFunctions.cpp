#include "passes/kernels/shared/FloatFunctions.h"
#include "builders/Code.h"
#include "passes/kernels/shared/Polynomial.h"
#include <cmath>

using namespace mlir;

namespace attn {

static constexpr double kHalfPi = M_PI / 2;
static constexpr int64_t kMantissaBits = 23;

/// The square of exp(x / 2), which no x makes too large or too small for a factor 2^n: x / 2 = n log 2 + r / 2. At
/// kLeast the factor is 0: what masks hide is 0 without an underflow, which takes an Intel core very long.
template <typename T> static T exponential(const T &x) {
  constexpr double kLeast = -176, kMost = 100;
  // Added, it leaves the nearest integer in the low bits, as an exponent. Products by the first part of log 2 are
  // exact.
  constexpr double kRounder = 1.5 * (1 << kMantissaBits) + 127, kLog2 = 0.693359375, kLog2Rest = -2.12194440e-4;
  auto constant = [&](double value) { return constantLike(x, value); };
  T bounded = atMost(atLeast(x, constant(kLeast)), constant(kMost)); // NaN stays
  T shifted = fma(bounded, constant(M_LOG2E / 2), constant(kRounder)), n = shifted - kRounder;
  T r = fma(n, constant(-2 * kLog2Rest), fma(n, constant(-2 * kLog2), bounded));
  // A minimax fit of exp(r / 2): 3.1e-9.
  T p = horner(r, {1.381460228e-03 / 64, 8.368715644e-03 / 32, 4.166838899e-02 / 16, 1.666652113e-01 / 8,
                   4.999999404e-01 / 4, 0.5, 1.0});
  T root = p * bitcast(bitcast(shifted, x.builder().getI32Type()) << kMantissaBits, x.element());
  return root * root;
}

/// x = 2^n (1 + f) with 1 + f in [2/3, 4/3); a denormal x is multiplied by 2^25 first.
template <typename T> static T logarithm(const T &x) {
  constexpr int64_t kTwoThirds = 0x3f2aaaab;
  Type i32 = x.builder().getI32Type();
  auto isTiny = x < 0x1p-126;
  T bits = bitcast(select(isTiny, x * 0x1p25, x), i32);
  T exponent = (bits - kTwoThirds) & -(1 << kMantissaBits);
  T f = bitcast(bits - exponent, x.element()) - 1.0, square = f * f;
  T n = fma(convert(exponent, x.element()), constantLike(x, 0x1p-23),
            select(isTiny, constantLike(x, -25.0), constantLike(x, 0.0)));
  // A minimax fit; even and odd powers side by side where the error is small enough.
  T odd = horner(square, {0x1.208p-3, 0x1.1e574p-3, 0x1.99d8b2p-3});
  T p = fma(odd, f, horner(square, {-0x1.0aep-3, -0x1.f198b2p-4, -0x1.55b36cp-3, -0x1.fffe02p-3}));
  p = fma(fma(fma(p, f, constantLike(x, 0x1.5554fap-2)), f, constantLike(x, -0.5)), square, f);
  T result = fma(n, constantLike(x, M_LN2), p);
  T other = select(x == 0.0, constantLike(x, -Code::kInfinity), constantLike(x, std::nan("")));
  return select(x > 0.0, select(x == Code::kInfinity, x, result), other);
}

/// Beyond 1/2 by asin x = pi / 2 - 2 asin sqrt((1 - x) / 2).
template <typename T> static T arcsine(const T &x) {
  T a = abs(x);
  auto isLarge = a > 0.5;
  T square = select(isLarge, (1.0 - a) * 0.5, a * a), s = select(isLarge, sqrt(square), a);
  // A minimax fit of (asin s / s - 1) / s^2: 4.8e-9.
  T p = horner(square, {4.216630757e-02, 2.417951636e-02, 4.547037557e-02, 7.495297492e-02, 1.666675210e-01});
  T inner = fma(s * square, p, s);
  return copySign(select(isLarge, fma(inner, constantLike(x, -2.0), constantLike(x, kHalfPi)), inner), x);
}

/// Beyond 1 by atan x = pi / 2 - atan(1 / x).
template <typename T> static T arctangent(const T &x) {
  T a = abs(x);
  auto isLarge = a > 1.0;
  T t = select(isLarge, 1.0 / a, a), square = t * t;
  // A minimax fit of (atan t / t - 1) / t^2: 2.6e-9.
  T p = horner(square, {-1.793619129e-03, 1.091459394e-02, -3.117782436e-02, 5.795757100e-02, -8.403448761e-02,
                        1.095218509e-01, -1.426424086e-01, 1.999854892e-01, -3.333329856e-01});
  T inner = fma(t * square, p, t);
  return copySign(select(isLarge, kHalfPi - inner, inner), x);
}

template <typename T> static T functionOf(const T &x, FloatFunction function) {
  switch (function) {
  case FloatFunction::Exponential:
    return exponential(x);
  case FloatFunction::Logarithm:
    return logarithm(x);
  case FloatFunction::Arcsine:
    return arcsine(x);
  case FloatFunction::Arctangent:
    return arctangent(x);
  }
  llvm_unreachable("all functions are above");
}

Value emitFloatFunction(OpBuilder &builder, Location loc, FloatFunction function, Value x) {
  Code k(builder, loc);
  return isa<VectorType>(x.getType()) ? functionOf(k.asVec(x), function).value()
                                      : functionOf(k.asNum(x), function).value();
}

} // namespace attn
