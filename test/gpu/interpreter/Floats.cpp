#include "test/gpu/interpreter/Machine.h"

#include <cmath>
#include <limits>
#include <type_traits>

// Section 9.7.3 (floating point), 9.7.4 (half precision), 9.7.6 (setp, selp).
//
// `.approx` instructions are off by as much as the machine's may be (the error that section 9.7.3 documents), to one
// side or the other by their operand's bits: bounds of tests must leave room for it.

namespace ptx {
namespace {

// A stored form and the type in which it computes. A result is rounded once:
// f16 and bf16 compute in double, which holds their products and sums.
struct F32 {
  using Store = uint32_t;
  using Value = float;
  static Value load(Store bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
  }
  static Store store(Value value) {
    Store bits;
    if (std::isnan(value))
      return 0x7fffffff; // the canonical NaN (9.7.3)
    memcpy(&bits, &value, 4);
    return bits;
  }
  static Value fma(Value a, Value b, Value c) { return std::fma(a, b, c); }
};
struct F64 {
  using Store = uint64_t;
  using Value = double;
  static Value load(Store bits) {
    double value;
    memcpy(&value, &bits, 8);
    return value;
  }
  static Store store(Value value) {
    Store bits;
    memcpy(&bits, &value, 8);
    return bits;
  }
  static Value fma(Value a, Value b, Value c) { return std::fma(a, b, c); }
};
struct F16 {
  using Store = uint16_t;
  using Value = float;
  static Value load(Store bits) { return fromF16(bits); }
  static Store store(Value value) { return toF16(value); }
  static Value fma(Value a, Value b, Value c) { return float(double(a) * double(b) + double(c)); }
};
struct BF16 {
  using Store = uint16_t;
  using Value = float;
  static Value load(Store bits) { return fromBf16(bits); }
  static Store store(Value value) { return toBf16(value); }
  static Value fma(Value a, Value b, Value c) { return float(double(a) * double(b) + double(c)); }
};

/// Subnormals to a zero of their sign, for `.ftz`.
template <bool Ftz, typename V> V flush(V value) {
  if (Ftz && std::fabs(value) < V(std::numeric_limits<float>::min()))
    return std::copysign(V(0), value);
  return value;
}

template <typename F, bool Ftz, typename G> void apply1(Step &s, G g) {
  Source from(s, 1);
  s.each([&](unsigned lane) {
    auto a = flush<Ftz>(F::load(from.as<typename F::Store>(lane)));
    return F::store(flush<Ftz>(typename F::Value(g(a))));
  });
}
template <typename F, bool Ftz, typename G> void apply2(Step &s, G g) {
  Source left(s, 1), right(s, 2);
  s.each([&](unsigned lane) {
    auto a = flush<Ftz>(F::load(left.as<typename F::Store>(lane)));
    auto b = flush<Ftz>(F::load(right.as<typename F::Store>(lane)));
    return F::store(flush<Ftz>(typename F::Value(g(a, b))));
  });
}
/// By the processor's instruction where it has one: the C library's function costs a call a lane.
__attribute__((target_clones("avx512f", "fma", "default"))) void fusedMultiplyAdds(float *sums, const float *a,
                                                                                   const float *b) {
  for (unsigned lane = 0; lane < kLanes; ++lane)
    sums[lane] = __builtin_fmaf(a[lane], b[lane], sums[lane]);
}
template <typename F, bool Ftz> void fusedMultiplyAdd(Step &s) {
  Source a(s, 1), b(s, 2), c(s, 3);
  auto read = [&](const Source &from, unsigned lane) { return flush<Ftz>(F::load(from.as<typename F::Store>(lane))); };
  if constexpr (std::is_same_v<F, F32>) {
    float left[kLanes] = {}, right[kLanes] = {}, sums[kLanes] = {};
    s.lanes(
        [&](unsigned lane) { left[lane] = read(a, lane), right[lane] = read(b, lane), sums[lane] = read(c, lane); });
    fusedMultiplyAdds(sums, left, right);
    s.each([&](unsigned lane) { return F::store(flush<Ftz>(sums[lane])); });
  } else {
    s.each([&](unsigned lane) { return F::store(flush<Ftz>(F::fma(read(a, lane), read(b, lane), read(c, lane)))); });
  }
}

// NaN loses against a number, unless `.NaN`; -0 < +0 (9.7.3.11).
template <bool Nan, typename V> V least(V a, V b) {
  if (std::isnan(a) || std::isnan(b))
    return Nan ? V(NAN) : std::isnan(a) ? b : a;
  return a == b ? (std::signbit(a) ? a : b) : a < b ? a : b;
}
template <bool Nan, typename V> V greatest(V a, V b) {
  if (std::isnan(a) || std::isnan(b))
    return Nan ? V(NAN) : std::isnan(a) ? b : a;
  return a == b ? (std::signbit(a) ? b : a) : a > b ? a : b;
}

/// About `exact`, off by the relative error or, where it is greater, the absolute one. Zeros and what is not finite
/// stay, and what ex2 makes of a zero.
float roughly(float operand, double exact, double relative, double absolute = 0) {
  if (!std::isfinite(exact) || exact == 0 || (operand == 0 && exact == 1))
    return float(exact);
  uint32_t bits = F32::store(operand) * 0x9e3779b9u;
  constexpr double kRounding = 0x1p-25; // what follows rounds, too
  double off = std::max(std::fabs(exact) * (relative - kRounding), absolute);
  return float(bits >> 31 ? exact + off : exact - off);
}

#define ATTN_UNARY(NAME, EXPRESSION)                                                                                   \
  template <typename F, bool Ftz> void NAME(Step &s) {                                                                 \
    apply1<F, Ftz>(s, [](auto a) { return EXPRESSION; });                                                              \
  }
#define ATTN_BINARY(NAME, EXPRESSION)                                                                                  \
  template <typename F, bool Ftz> void NAME(Step &s) {                                                                 \
    apply2<F, Ftz>(s, [](auto a, auto b) { return EXPRESSION; });                                                      \
  }
ATTN_BINARY(sum, a + b)
ATTN_BINARY(difference, a - b)
ATTN_BINARY(product, a *b)
ATTN_BINARY(quotient, a / b)
ATTN_BINARY(minimum, (least<false>(a, b)))
ATTN_BINARY(maximum, (greatest<false>(a, b)))
ATTN_BINARY(minimumNan, (least<true>(a, b)))
ATTN_BINARY(maximumNan, (greatest<true>(a, b)))
// copysign d, a, b: the sign of a, the magnitude of b (9.7.3.2).
ATTN_BINARY(copySign, std::copysign(b, a))
ATTN_UNARY(reciprocal, 1 / a)
ATTN_UNARY(root, std::sqrt(a))
ATTN_UNARY(roughReciprocal, roughly(a, 1 / double(a), 0x1p-23))
ATTN_UNARY(roughRoot, roughly(a, std::sqrt(double(a)), 0x1p-23))
ATTN_UNARY(reciprocalRoot, roughly(a, 1 / std::sqrt(double(a)), 0x1.12p-23)) // 2^-22.9
ATTN_UNARY(exponential2, roughly(a, std::exp2(double(a)), 0x1p-22))
// Absolute from 0.5 to 2, else relative.
ATTN_UNARY(logarithm2, roughly(a, std::log2(double(a)), 0x1p-22, a >= 0.5f && a <= 2 ? 0x1p-22 : 0))
ATTN_UNARY(sine, roughly(a, std::sin(double(a)), 0, std::fabs(a) < 7 ? 0x1.6ap-21 : 0x1.3cp-15)) // 2^-20.5, 2^-14.7
ATTN_UNARY(cosine, roughly(a, std::cos(double(a)), 0, std::fabs(a) < 7 ? 0x1.6ap-21 : 0x1.3cp-15))
ATTN_UNARY(hyperbolicTangent, roughly(a, std::tanh(double(a)), 0x1p-11))
ATTN_BINARY(roughQuotient, roughly(b, double(a) / double(b), 0x1p-22)) // 2 units

// Bits only: neg and abs keep a NaN's (9.7.3.9).
template <typename S> void negate(Step &s) {
  s.lanes([&](unsigned lane) {
    s.write(s.operand(0), lane, S(s.as<S>(s.operand(1), lane) ^ S(S(1) << (8 * sizeof(S) - 1))));
  });
}
template <typename S> void absolute(Step &s) {
  s.lanes([&](unsigned lane) {
    s.write(s.operand(0), lane, S(s.as<S>(s.operand(1), lane) & S(~S(S(1) << (8 * sizeof(S) - 1)))));
  });
}
template <typename S> void select(Step &s) {
  s.lanes([&](unsigned lane) {
    bool which = s.read(s.operand(3), lane) & 1;
    s.write(s.operand(0), lane, s.as<S>(s.operand(which ? 1 : 2), lane));
  });
}

/// Pairs in one register, element by element.
template <typename F, typename G> void packed(Step &s, unsigned count, G g) {
  s.lanes([&](unsigned lane) {
    uint32_t result = 0;
    for (unsigned half = 0; half < 2; ++half) {
      float value[3] = {};
      for (unsigned i = 0; i < count; ++i)
        value[i] = F::load(uint16_t(s.as<uint32_t>(s.operand(1 + i), lane) >> 16 * half));
      result |= uint32_t(F::store(g(value[0], value[1], value[2]))) << 16 * half;
    }
    s.write(s.operand(0), lane, result);
  });
}
template <typename F> void packedSum(Step &s) {
  packed<F>(s, 2, [](float a, float b, float) { return a + b; });
}
template <typename F> void packedDifference(Step &s) {
  packed<F>(s, 2, [](float a, float b, float) { return a - b; });
}
template <typename F> void packedProduct(Step &s) {
  packed<F>(s, 2, [](float a, float b, float) { return a * b; });
}
template <typename F> void packedFma(Step &s) {
  packed<F>(s, 3, [](float a, float b, float c) { return F::fma(a, b, c); });
}

// The letter u: true where one is a NaN; num: neither is, nan: one is (9.7.6.2).
enum Comparison { Eq, Ne, Lt, Le, Gt, Ge, Equ, Neu, Ltu, Leu, Gtu, Geu, Num, Nan };
constexpr const char *kComparisons[] = {"eq",  "ne",  "lt",  "le",  "gt",  "ge",  "equ",
                                        "neu", "ltu", "leu", "gtu", "geu", "num", "nan"};
template <typename F, bool Ftz, int C> void compare(Step &s) {
  s.lanes([&](unsigned lane) {
    auto a = flush<Ftz>(F::load(s.as<typename F::Store>(s.operand(1), lane)));
    auto b = flush<Ftz>(F::load(s.as<typename F::Store>(s.operand(2), lane)));
    bool unordered = std::isnan(a) || std::isnan(b);
    constexpr int kPlain = C >= Equ && C <= Geu ? C - Equ : C;
    uint8_t result;
    if (C == Num || C == Nan)
      result = unordered == (C == Nan);
    else if (unordered)
      result = C >= Equ;
    else
      result = kPlain == Eq   ? a == b
               : kPlain == Ne ? a != b
               : kPlain == Lt ? a < b
               : kPlain == Le ? a <= b
               : kPlain == Gt ? a > b
                              : a >= b;
    s.write(s.operand(0), lane, result);
  });
}
template <typename F, bool Ftz, int... C>
void addComparisons(Table &table, const std::string &suffix, std::integer_sequence<int, C...>) {
  ((table["setp." + std::string(kComparisons[C]) + suffix] = {compare<F, Ftz, C>, false}), ...);
}

template <typename F, bool Ftz> void addFloats(Table &table, const std::string &type) {
  std::string ftz = Ftz ? ".ftz" : "", suffix = ftz + "." + type;
  auto def = [&](const std::string &name, Execute execute) { table[name + suffix] = {execute, false}; };
  for (const char *rounding : {"", ".rn"}) {
    def(std::string("add") + rounding, sum<F, Ftz>), def(std::string("sub") + rounding, difference<F, Ftz>);
    def(std::string("mul") + rounding, product<F, Ftz>);
  }
  def("fma.rn", fusedMultiplyAdd<F, Ftz>);
  def("min", minimum<F, Ftz>), def("max", maximum<F, Ftz>);
  table["min" + ftz + ".NaN." + type] = {minimumNan<F, Ftz>, false};
  table["max" + ftz + ".NaN." + type] = {maximumNan<F, Ftz>, false};
  def("neg", negate<typename F::Store>), def("abs", absolute<typename F::Store>);
  def("selp", select<typename F::Store>);
  addComparisons<F, Ftz>(table, suffix, std::make_integer_sequence<int, 14>());
}
template <typename F, bool Ftz> void addWideFloats(Table &table, const std::string &type) {
  std::string suffix = (Ftz ? ".ftz." : ".") + type;
  auto def = [&](const std::string &name, Execute execute) { table[name + suffix] = {execute, false}; };
  addFloats<F, Ftz>(table, type);
  def("div.rn", quotient<F, Ftz>), def("rcp.rn", reciprocal<F, Ftz>), def("sqrt.rn", root<F, Ftz>);
  def("copysign", copySign<F, Ftz>);
}
template <bool Ftz> void addApproximations(Table &table) {
  std::string suffix = Ftz ? ".ftz.f32" : ".f32";
  auto def = [&](const std::string &name, Execute execute) { table[name + suffix] = {execute, false}; };
  def("div.full", roughQuotient<F32, Ftz>), def("div.approx", roughQuotient<F32, Ftz>);
  def("rcp.approx", roughReciprocal<F32, Ftz>), def("sqrt.approx", roughRoot<F32, Ftz>);
  def("rsqrt.approx", reciprocalRoot<F32, Ftz>);
  def("ex2.approx", exponential2<F32, Ftz>), def("lg2.approx", logarithm2<F32, Ftz>);
  def("sin.approx", sine<F32, Ftz>), def("cos.approx", cosine<F32, Ftz>);
}
template <typename F> void addPairs(Table &table, const std::string &type) {
  auto def = [&](const std::string &name, Execute execute) { table[name + "." + type] = {execute, false}; };
  def("add.rn", packedSum<F>), def("sub.rn", packedDifference<F>), def("mul.rn", packedProduct<F>);
  def("add", packedSum<F>), def("sub", packedDifference<F>), def("mul", packedProduct<F>);
  def("fma.rn", packedFma<F>);
}

} // namespace

void addFloatInstructions(Table &table) {
  addWideFloats<F32, false>(table, "f32"), addWideFloats<F32, true>(table, "f32");
  addWideFloats<F64, false>(table, "f64");
  addFloats<F16, false>(table, "f16"), addFloats<BF16, false>(table, "bf16");
  addApproximations<false>(table), addApproximations<true>(table);
  table["tanh.approx.f32"] = {hyperbolicTangent<F32, false>, false};
  addPairs<F16>(table, "f16x2"), addPairs<BF16>(table, "bf16x2");
}

} // namespace ptx
