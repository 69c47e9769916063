#include "passes/kernels/gpu/DoubleFunctions.h"
#include "passes/kernels/shared/Polynomial.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include <limits>

// Textbook reductions (Cody and Waite; Payne and Hanek; Dekker for what wants more bits than 53), with polynomials that
// Remez' algorithm fitted to relative error. No branch but for sines of large numbers: lanes go together.

namespace attn {

namespace doubles {

static constexpr double kInfinity = std::numeric_limits<double>::infinity();
static constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
/// Each number is the sum of these, what comes first has 53 bits; of kLog2Short 42 bits, so that products with
/// exponents are exact.
static constexpr double kLog2[] = {0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56};
static constexpr double kLog2Short[] = {0x1.62e42fefa3800p-1, 0x1.ef35793c76730p-45};
static constexpr double kHalfPi[] = {0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54, -0x1.f1976b7ed8fbcp-110};
static constexpr double kPerLog2 = 0x1.71547652b82fep+0, kPerHalfPi = 0x1.45f306dc9c883p-1;
/// Added to a number below 2^51 it leaves the nearest integer, in the lowest bits.
static constexpr double kRounder = 0x1.8p52;

// Coefficients, the lowest first.
/// (exp r - 1 - r) / r^2, |r| <= log(2) / 2: 2.8e-18.
static constexpr double kExp[] = {0x1.0000000000000p-1,  0x1.5555555555557p-3,  0x1.555555555554ep-5,
                                  0x1.11111111100ebp-7,  0x1.6c16c16c1a083p-10, 0x1.a01a01abe0e28p-13,
                                  0x1.a01a01905e888p-16, 0x1.71de0245521a5p-19, 0x1.27e510df11e37p-22,
                                  0x1.af4dc4f64d040p-26, 0x1.1f19f3651fadbp-29};
/// (2 atanh s - 2 s) / s^3 in s^2, |s| <= 0.1716: 4.6e-16.
static constexpr double kLog[] = {0x1.5555555555558p-1, 0x1.9999999995238p-2, 0x1.2492492e034b9p-2,
                                  0x1.c71c62cf5d605p-3, 0x1.7462bac73a3c1p-3, 0x1.39fd9a802701cp-3,
                                  0x1.2b61a336e9010p-3};
/// (2 atanh s - 2 s - 2/3 s^3) / s^5 in s^2: 4.6e-18.
static constexpr double kLogRest[] = {0x1.999999999999ap-2, 0x1.2492492492523p-2, 0x1.c71c71c6ea441p-3,
                                      0x1.745d177ae6407p-3, 0x1.3b1395b150a04p-3, 0x1.1118cebbaf0d2p-3,
                                      0x1.df7b6041dad76p-4, 0x1.e03cf81c5022fp-4};
/// (sin r / r - 1) / r^2 and (cos r - 1 + r^2 / 2) / r^4 in r^2, |r| <= pi / 4: 1.3e-16, 3.1e-17.
static constexpr double kSin[] = {-0x1.5555555555555p-3, 0x1.1111111110ba4p-7,   -0x1.a01a019e80bcap-13,
                                  0x1.71de3793308a9p-19, -0x1.ae6007e28db4dp-26, 0x1.5e0a14a30b65cp-33};
static constexpr double kCos[] = {0x1.5555555555555p-5,   -0x1.6c16c16c16962p-10, 0x1.a01a019f4db58p-16,
                                  -0x1.27e4fa16ba854p-22, 0x1.1eeb67dbe25d0p-29,  -0x1.907cf2c90dc2ep-37};
/// (asin x / x - 1) / x^2 in x^2, |x| <= 1/2: 7.5e-17.
static constexpr double kAsin[] = {
    0x1.5555555555556p-3, 0x1.3333333332e7ep-4,  0x1.6db6db6e392a0p-5, 0x1.f1c71c196b00ap-6, 0x1.6e8bb26ef8650p-6,
    0x1.1c4d26cddfaa7p-6, 0x1.c9d0bd253efbdp-7,  0x1.7815e9f37dc29p-7, 0x1.52aafb8091b52p-7, 0x1.62337bd448121p-8,
    0x1.1f69b0769b03bp-6, -0x1.edca1a59bda10p-7, 0x1.d9902287a272ap-6};
/// (atan x / x - 1) / x^2 in x^2, |x| <= 1: 8.3e-17.
static constexpr double kAtan[] = {
    -0x1.5555555555555p-2, 0x1.999999999966ep-3,  -0x1.249249247775bp-3, 0x1.c71c71bbcf516p-4,   -0x1.745d1602256cap-4,
    0x1.3b139afeac204p-4,  -0x1.11100b23f905dp-4, 0x1.e1d0c9d2e7d1cp-5,  -0x1.aebf073d41b26p-5,  0x1.842a9d8745cffp-5,
    -0x1.5d2782a0deb3fp-5, 0x1.337c0de07daf9p-5,  -0x1.00c92a117a163p-5, 0x1.85bd221484557p-6,   -0x1.000819807483cp-6,
    0x1.147f96a082f59p-7,  -0x1.cf260b7a819e6p-9, 0x1.16d1c6a120818p-10, -0x1.aa069bc1afcc3p-13, 0x1.349e95ea53b53p-16};
/// erf x / x - 1 in x^2, |x| <= 1: 6.2e-18.
static constexpr double kErf[] = {0x1.06eba8214db69p-3,   -0x1.812746b0379e3p-2,  0x1.ce2f21a042950p-4,
                                  -0x1.b82ce3127d00cp-6,  0x1.565bcd0ca1d82p-8,   -0x1.c02db3ab8806cp-11,
                                  0x1.f9a31cb39e3bbp-14,  -0x1.f4d183a5ee733p-17, 0x1.b9da743d01767p-20,
                                  -0x1.5ef7a3ecfd316p-23, 0x1.f6126f16d9fcap-27,  -0x1.3393414ded862p-30,
                                  0x1.f0b4be5c78610p-35};
/// exp(x^2) (1 - erf x) (1 + 2 x) in (x - 3) / (x + 3), 1 <= x <= 6: 1.8e-17.
static constexpr double kTail[] = {
    0x1.40c522d7e4987p+0,  -0x1.15c084bb9e8f9p-3,  -0x1.85a15c58aaf59p-5,  0x1.098366a5b4b9dp-3,
    -0x1.e88b803a23a3ap-4, 0x1.17ca2877db0f8p-4,   -0x1.8574c42818ba9p-6,  0x1.4b884dfddc44fp-9,
    0x1.ef1c0687dc684p-10, -0x1.98daff2f816a0p-11, -0x1.b9318a9ff6eb2p-14, 0x1.0641b2d96eb2cp-13,
    0x1.5790ffc21db80p-18, -0x1.4af4c6db9a29ep-16, -0x1.1fcf63cb3495fp-20, 0x1.30160c11b0452p-19};
/// 2 / pi, 64 bits before the point, which are 0, and 1216 behind it.
static constexpr uint64_t kPerHalfPiBits[] = {0,
                                              0xa2f9836e4e441529,
                                              0xfc2757d1f534ddc0,
                                              0xdb6295993c439041,
                                              0xfe5163abdebbc561,
                                              0xb7246e3a424dd2e0,
                                              0x06492eea09d1921c,
                                              0xfe1deb1cb129a73e,
                                              0xe88235f52ebb4484,
                                              0xe99c7026b45f7e41,
                                              0x3991d639835339f4,
                                              0x9c845f8bbdf9283b,
                                              0x1ff897ffde05980f,
                                              0xef2f118b5a0a6d1f,
                                              0x6d367ecf27cb09b7,
                                              0x4f463f669e5fea2d,
                                              0x7527bac7ebe5f17b,
                                              0x3d0739f78a5292ea,
                                              0x6bfb5fb11f8d5d08,
                                              0x56033046fc7b6bab};

/// Of coefficients whose lowest is the first.
static Num polynomial(const Num &x, llvm::ArrayRef<double> coefficients) {
  return attn::horner(x, llvm::to_vector(llvm::reverse(coefficients)));
}

static Num fma(const Num &x, double y, const Num &z) { return attn::fma(x, constantLike(x, y), z); }
static Num bits(Code &k, const Num &x) { return bitcast(x, k.b.getI64Type()); }
static Num number(Code &k, const Num &bits) { return bitcast(bits, k.b.getF64Type()); }

/// A sum that is not rounded.
struct Pair {
  Num high, low;
};
/// Of |x| >= |y|, or x = 0.
static Pair add(const Num &x, const Num &y) {
  Num sum = x + y;
  return {sum, y - (sum - x)};
}
static Pair multiply(const Num &x, const Num &y) {
  Num high = x * y;
  return {high, fma(x, y, -high)};
}

//===----------------------------------------------------------------------===//
// Exponentials
//===----------------------------------------------------------------------===//

/// x * 2^n for |n| < 1100 and x near 1, rounded once.
static Num scale(Code &k, const Num &x, const Num &n) {
  Num half = ((n + 2048) >> 1) - 1024;
  return x * number(k, (half + 1023) << 52) * number(k, (n - half + 1023) << 52);
}

/// x as n log 2 + r: n, and exp(r + rest) - 1.
static std::pair<Num, Num> reduceExponent(Code &k, const Num &x, const Num *rest = nullptr) {
  Num shifted = fma(x, kPerLog2, k.f64(kRounder));
  Num n = shifted - kRounder;
  Num r = fma(n, -kLog2[1], fma(n, -kLog2[0], x));
  if (rest)
    r = r + *rest;
  return {bits(k, shifted) - bits(k, k.f64(kRounder)), fma(r * r, polynomial(r, kExp), r)};
}

static Num exp(Code &k, const Num &x) {
  auto [n, p] = reduceExponent(k, atMost(atLeast(x, k.f64(-750)), k.f64(710)));
  return scale(k, 1.0 + p, n);
}

static Num expm1(Code &k, const Num &x) {
  auto [n, p] = reduceExponent(k, atMost(atLeast(x, k.f64(-40)), k.f64(710)));
  Num half = number(k, (n + 1022) << 52); // of 2^n, which may be too large
  return copySign(fma(half, p, half - 0.5) * 2.0, x);
}

static Num tanh(Code &k, const Num &x) {
  Num magnitude = attn::abs(x);
  Mask isLarge = magnitude >= 1.0;
  Num twice = atMost(magnitude, k.f64(22)) * 2.0, e = expm1(k, select(isLarge, twice, -twice)),
      quotient = 1.0 / (e + 2.0);
  return copySign(select(isLarge, fma(quotient, -2.0, k.f64(1)), -e / (e + 2.0)), x);
}

static Num erf(Code &k, const Num &x) {
  Num magnitude = atMost(attn::abs(x), k.f64(6)), square = magnitude * magnitude;
  Num inner = attn::fma(magnitude, polynomial(square, kErf), magnitude);
  Num tail = polynomial((magnitude - 3.0) / (magnitude + 3.0), kTail);
  Num outer = 1.0 - exp(k, -square) * tail / fma(magnitude, 2.0, k.f64(1));
  return copySign(select(magnitude > 1.0, outer, inner), x);
}

//===----------------------------------------------------------------------===//
// Logarithms
//===----------------------------------------------------------------------===//

/// A number > 0 as 2^k (1 + f), with sqrt(1/2) <= 1 + f < sqrt(2).
static std::pair<Num, Num> splitExponent(Code &k, const Num &x) {
  constexpr int64_t kRootOfHalf = 0x3fe6a09e667f3bcd;
  Mask isTiny = x < std::numeric_limits<double>::min();
  Num all = bits(k, select(isTiny, x * 0x1p54, x));
  Num above = all - kRootOfHalf + std::numeric_limits<int64_t>::min();
  Num exponent = (above >> 52) - 2048;
  Num f = number(k, all - (exponent << 52)) - 1.0;
  return {convert(exponent, k.b.getF64Type()) - select(isTiny, k.f64(54), k.f64(0)), f};
}

/// log(x + rest) for a rest below half the last bit of x.
static Num logOfSum(Code &k, const Num &x, const Num *rest = nullptr) {
  auto [exponent, f] = splitExponent(k, x);
  Num s = f / (f + 2.0), square = s * s, half = f * f * 0.5;
  Num low = exponent * kLog2Short[1];
  if (rest)
    low = low + *rest / x;
  Num inner = attn::fma(s, attn::fma(square, polynomial(square, kLog), half), low);
  Num result = exponent * kLog2Short[0] - ((half - inner) - f);
  result = select(x < kInfinity, result, x);
  result = select(x == 0.0, k.f64(-kInfinity), result);
  return select(x < 0.0, k.f64(kNaN), result);
}

static Num log(Code &k, const Num &x) { return logOfSum(k, x); }

static Num log1p(Code &k, const Num &x) {
  Num sum = x + 1.0, part = sum - 1.0;
  Num rest = (1.0 - (sum - part)) + (x - part);
  return copySign(logOfSum(k, sum, &rest), x);
}

/// log x of a number > 0, with some 65 bits.
static Pair logInTwo(Code &k, const Num &x) {
  constexpr double kTwoThirds[] = {0x1.5555555555555p-1, 0x1.5555555555555p-55};
  auto [exponent, f] = splitExponent(k, x);
  // f / (2 + f)
  Num divisor = f + 2.0, divisorLow = f - (divisor - 2.0);
  Num s = f / divisor, sLow = (fma(-s, divisor, f) - s * divisorLow) / divisor;
  Pair square = multiply(s, s);
  square.low = attn::fma(s * 2.0, sLow, square.low);
  Pair cube = multiply(s, square.high);
  cube.low = cube.low + attn::fma(s, square.low, sLow * square.high);
  Pair third = multiply(cube.high, k.f64(kTwoThirds[0]));
  third.low = third.low + fma(cube.low, kTwoThirds[0], cube.high * kTwoThirds[1]);
  Num rest = cube.high * square.high * polynomial(square.high, kLogRest);
  Pair first = add(exponent * kLog2Short[0], s * 2.0), second = add(first.high, third.high);
  Num low = first.low + second.low + (fma(sLow, 2.0, third.low) + fma(exponent, kLog2Short[1], rest));
  return add(second.high, low);
}

static Num pow(Code &k, const Num &x, const Num &y) {
  Num magnitude = attn::abs(x);
  Pair log = logInTwo(k, magnitude);
  Num bounded = atMost(atLeast(y, k.f64(-0x1p64)), k.f64(0x1p64)); // infinite results are by then
  Pair power = multiply(bounded, log.high);
  power.low = attn::fma(bounded, log.low, power.low);
  Num exponent = atMost(atLeast(power.high, k.f64(-750)), k.f64(710));
  Num rest = select(exponent == power.high, power.low, k.f64(0));
  auto [n, p] = reduceExponent(k, exponent, &rest);
  Num result = scale(k, 1.0 + p, n);

  Num zero = k.f64(0), infinity = k.f64(kInfinity), half = y * 0.5;
  Mask isNegative = bits(k, x) < 0, isWhole = roundEven(y) == y, isOdd = isWhole & (roundEven(half) != half);
  result = select(magnitude == 0.0, select(y < 0.0, infinity, zero), result);
  result = select(magnitude == kInfinity, select(y < 0.0, zero, infinity), result);
  result = select(isNegative & isOdd, -result, result);
  result = select((x < 0.0) & (magnitude < kInfinity) & !isWhole, k.f64(kNaN), result);
  result = select((x == x) & (y == y), result, x + y);
  return select((y == 0.0) | (x == 1.0), k.f64(1), result);
}

//===----------------------------------------------------------------------===//
// Angles
//===----------------------------------------------------------------------===//

/// x as a multiple of pi / 2 and a rest, with |rest| <= pi / 4 about.
using Angle = std::tuple<Num, Num, Num>; ///< high and low part of the rest, the multiple

/// For |x| < 2^17: each product with a part of pi is exact, or its error is in the next one.
static Angle reduceSmall(Code &k, const Num &x) {
  Num shifted = fma(x, kPerHalfPi, k.f64(kRounder)), n = shifted - kRounder;
  Num exact = fma(n, -kHalfPi[0], x);
  Pair second = multiply(n, k.f64(kHalfPi[1]));
  Num high = exact - second.high;
  Num low = ((exact - high) - second.high) - fma(n, kHalfPi[2], second.low);
  return {high, low, bits(k, shifted) - bits(k, k.f64(kRounder))};
}

/// The lower and the upper half of a product of natural numbers.
static std::pair<Num, Num> multiplyWide(const Num &x, const Num &y) {
  auto product = mlir::arith::MulUIExtendedOp::create(x.builder(), x.location(), x.value(), y.value());
  return {x.with(product.getLow()), x.with(product.getHigh())};
}

/// For 2^17 <= |x| < infinity: x is a whole number times a power of two, so that of 2 / pi only some bits count, those
/// that give no multiple of 4 and are not too small.
static Angle reduceLarge(Code &k, const Num &x) {
  Num all = bits(k, attn::abs(x)), mantissa = (all & 0xfffffffffffff) + (int64_t(1) << 52);
  Num skipped = (all >> 52) - 1013, word = skipped >> 6, shift = skipped & 63;
  Num words[4];
  for (auto [n, each] : llvm::enumerate(words)) {
    each = k.i64(0);
    for (size_t at = n; at < std::size(kPerHalfPiBits); ++at)
      each = select(word == int64_t(at - n), k.i64(static_cast<int64_t>(kPerHalfPiBits[at])), each);
  }
  Num factors[3];
  for (auto [n, each] : llvm::enumerate(factors))
    each = (words[n] << shift) | ((words[n + 1] >> 1) >> (63 - shift));
  auto [ignored, carried] = multiplyWide(mantissa, factors[2]);
  auto [middle, above] = multiplyWide(mantissa, factors[1]);
  Num low = middle + carried;
  constexpr int64_t kSign = std::numeric_limits<int64_t>::min();
  Num carry = toNum(low + kSign < middle + kSign, k.b.getI64Type()); // of natural numbers
  Num high = mantissa * factors[0] + above + carry;
  // Two bits are the multiple, the others its fraction: by a half or more, that of the next one, negative.
  Num multiple = high >> 62;
  high = (high << 2) | (low >> 62);
  low = low << 2;
  Mask isNext = high < 0;
  multiple = multiple + toNum(isNext, k.b.getI64Type());
  high = select(isNext, !high + toNum(low == 0, k.b.getI64Type()), high);
  low = select(isNext, -low, low);
  auto part = [&](const Num &bits, double unit) { return convert(bits, k.b.getF64Type()) * unit; };
  Pair fraction = add(part(high >> 32, 0x1p-32), part(high & 0xffffffff, 0x1p-64));
  fraction.low = fraction.low + part(low >> 11, 0x1p-117);
  Pair rest = multiply(fraction.high, k.f64(kHalfPi[0]));
  rest.low = rest.low + fma(fraction.high, kHalfPi[1], fraction.low * kHalfPi[0]);
  rest = add(rest.high, rest.low);
  Mask isPositive = x > 0.0;
  Num sign = select(isPositive ^ isNext, k.f64(1), k.f64(-1));
  return {rest.high * sign, rest.low * sign, select(isPositive, multiple, -multiple)};
}

/// sin(x + turns pi / 2)
static Num sinOfTurned(Code &k, const Num &x, int64_t turns) {
  auto [r, low, multiple] =
      k.choose(attn::abs(x) < 0x1p17, [&] { return reduceSmall(k, x); }, [&] { return reduceLarge(k, x); });
  Num square = r * r, half = square * 0.5, quadrant = multiple + turns;
  Num sine = r + attn::fma(square * r, polynomial(square, kSin), attn::fma(-half, low, low));
  Num about = 1.0 - half;
  Num cosine = about + (((1.0 - about) - half) + attn::fma(square * square, polynomial(square, kCos), -(r * low)));
  Num result = select((quadrant & 1) == 0, sine, cosine);
  result = select((quadrant & 2) == 0, result, -result);
  return select(attn::abs(x) < kInfinity, result, k.f64(kNaN));
}

static Num sin(Code &k, const Num &x) { return select(x == 0.0, x, sinOfTurned(k, x, 0)); }
static Num cos(Code &k, const Num &x) { return sinOfTurned(k, x, 1); }

/// Of asin and acos: |x| or, beyond 1/2, the square root s of (1 - |x|) / 2; asin(s) - s; and what s lacks of the root.
static std::tuple<Num, Num, Num, Mask> reduceArc(Code &k, const Num &x) {
  Num magnitude = attn::abs(x);
  Mask isLarge = magnitude > 0.5;
  Num square = select(isLarge, (1.0 - magnitude) * 0.5, magnitude * magnitude);
  Num root = sqrt(square), s = select(isLarge, root, magnitude);
  Num lacks = select(root == 0.0, k.f64(0), fma(-root, root, square) / (root + root));
  return {s, s * (square * polynomial(square, kAsin)), lacks, isLarge};
}

static Num asin(Code &k, const Num &x) {
  auto [s, rest, lacks, isLarge] = reduceArc(k, x);
  Num outer = (kHalfPi[0] - s * 2.0) - fma(rest + lacks, 2.0, k.f64(-kHalfPi[1]));
  return copySign(select(isLarge, outer, s + rest), x);
}

static Num acos(Code &k, const Num &x) {
  auto [s, rest, lacks, isLarge] = reduceArc(k, x);
  Num signedRest = copySign(rest, x);
  Num inner = kHalfPi[0] - (x - (kHalfPi[1] - signedRest));
  Num near = rest + lacks;
  Num outer = select(x > 0.0, (s + near) * 2.0, (kHalfPi[0] - (s + (near - kHalfPi[1]))) * 2.0);
  return select(isLarge, outer, inner);
}

static Num atan(Code &k, const Num &x) {
  Num magnitude = attn::abs(x);
  Mask isLarge = magnitude > 1.0;
  Num t = select(isLarge, 1.0 / magnitude, magnitude), square = t * t;
  Num rest = t * (square * polynomial(square, kAtan));
  Num outer = kHalfPi[0] - (t + (rest - kHalfPi[1]));
  return copySign(select(isLarge, outer, t + rest), x);
}

} // namespace doubles

DoubleFunction findDoubleFunction(llvm::StringRef op) {
  using Numbers = llvm::ArrayRef<Num>;
  return llvm::StringSwitch<DoubleFunction>(op)
      .Case("math.exp", [](Code &k, Numbers x) { return doubles::exp(k, x[0]); })
      .Case("math.expm1", [](Code &k, Numbers x) { return doubles::expm1(k, x[0]); })
      .Case("math.log", [](Code &k, Numbers x) { return doubles::log(k, x[0]); })
      .Case("math.log1p", [](Code &k, Numbers x) { return doubles::log1p(k, x[0]); })
      .Case("math.sin", [](Code &k, Numbers x) { return doubles::sin(k, x[0]); })
      .Case("math.cos", [](Code &k, Numbers x) { return doubles::cos(k, x[0]); })
      .Case("math.tanh", [](Code &k, Numbers x) { return doubles::tanh(k, x[0]); })
      .Case("math.erf", [](Code &k, Numbers x) { return doubles::erf(k, x[0]); })
      .Case("math.asin", [](Code &k, Numbers x) { return doubles::asin(k, x[0]); })
      .Case("math.acos", [](Code &k, Numbers x) { return doubles::acos(k, x[0]); })
      .Case("math.atan", [](Code &k, Numbers x) { return doubles::atan(k, x[0]); })
      .Case("math.powf", [](Code &k, Numbers x) { return doubles::pow(k, x[0], x[1]); })
      .Default(nullptr);
}

} // namespace attn
