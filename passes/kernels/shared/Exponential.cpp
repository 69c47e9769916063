#include "passes/kernels/shared/Exponential.h"
#include "passes/kernels/shared/Polynomial.h"

using namespace mlir;

namespace attn {

/// Adding it rounds a number below 2^22 to an integer, which stands in the low bits of the sum.
static constexpr double kRounder = 1.5 * (1 << 23);
static constexpr int64_t kMantissaBits = 23;

/// p * 2^n, where `shifted` is n + kRounder: its low bits are added to the exponent of p in [0.7, 1.42).
static Vec scaled(const Vec &p, const Vec &shifted) {
  Type i32 = p.builder().getI32Type();
  Vec exponent = bitcast(shifted, i32) << kMantissaBits;
  return bitcast(bitcast(p, i32) + exponent, p.element());
}

// The coefficients are minimax fits of 2^f, on [0, 1) with vscalefps and on [-0.5, 0.5] without.
Vec exp2(Code &k, const Vec &x) {
  if (x.lanes() == 16) {
    // f = x - floor(x) in one instruction, and 2^floor(x) * p in another:
    // right for -inf, overflow and denormal results without a test.
    Num all = k.number(k.b.getI16Type(), int64_t(-1)), floor = k.i32(1), rounding = k.i32(4);
    Vec zero = constantLike(x, 0.0);
    Vec f = k.asVec(k.intrinsic("llvm.x86.avx512.mask.reduce.ps.512", x.type(), {x, floor, zero, all, rounding}));
    Vec p = horner(f, {1.877576667e-03f, 8.989340110e-03f, 5.582631804e-02f, 2.401536170e-01f, 6.931530732e-01f,
                       9.999999251e-01f});
    return k.asVec(k.intrinsic("llvm.x86.avx512.mask.scalef.ps.512", x.type(), {p, x, zero, all, rounding}));
  }
  Vec least = constantLike(x, -126.0), clamped = select(least > x, least, x); // NaN stays NaN
  Vec shifted = clamped + kRounder, f = clamped - (shifted - kRounder);
  Vec p = horner(
      f, {1.327647194e-03f, 9.675541334e-03f, 5.550713274e-02f, 2.402211972e-01f, 6.931469671e-01f, 1.000000072e+00f});
  Vec result = scaled(p, shifted);
  return select(x < least, constantLike(x, 0.0), result);
}

Vec expTwice(const Vec &x) {
  Vec rounder = constantLike(x, kRounder), c = constantLike(x, 2.885390082f);
  Vec shifted = fma(x, c, rounder), n = shifted - rounder;
  Vec f = fma(x, constantLike(x, 3.85192607e-08f), fma(x, c, 0.0 - n));
  return scaled(horner(f, {1.534581178e-04f, 1.339993122e-03f, 9.618488958e-03f, 5.550328777e-02f, 2.402264689e-01f,
                           6.931472057e-01f, 1.0f}),
                shifted);
}

} // namespace attn
