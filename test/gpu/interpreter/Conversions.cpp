#include "test/gpu/interpreter/Machine.h"

#include <cmath>
#include <limits>
#include <type_traits>

// Section 9.7.9.21: cvt.

namespace ptx {
namespace {

template <typename To, typename From> void integers(Step &s) {
  Source from(s, 1);
  s.each([&](unsigned lane) { return To(from.as<From>(lane)); });
}
template <typename To, typename From> void toFloat(Step &s) {
  Source from(s, 1);
  s.each([&](unsigned lane) { return To(from.as<From>(lane)); });
}

/// The integer nearest to `value` in the direction of the letter: n(earest
/// even), z(ero), m(inus), p(lus).
template <char Direction> double toIntegral(double value) {
  return Direction == 'n'   ? std::nearbyint(value)
         : Direction == 'z' ? std::trunc(value)
         : Direction == 'm' ? std::floor(value)
                            : std::ceil(value);
}
// Out of range: the nearest end; NaN: 0 (for 64-bit results 2^63 on the machine).
template <typename To, typename From, char Direction> void toInteger(Step &s) {
  s.lanes([&](unsigned lane) {
    double value = toIntegral<Direction>(double(s.as<From>(s.operand(1), lane)));
    using Limits = std::numeric_limits<To>;
    To result;
    if (std::isnan(value))
      result = sizeof(To) == 8 ? To(uint64_t(1) << 63) : To(0);
    else if (value <= double(Limits::min()))
      result = Limits::min();
    else if (value >= double(Limits::max()))
      result = Limits::max();
    else
      result = To(value);
    s.write(s.operand(0), lane, result);
  });
}
template <typename T, char Direction> void integral(Step &s) {
  s.lanes([&](unsigned lane) {
    s.write(s.operand(0), lane, T(toIntegral<Direction>(double(s.as<T>(s.operand(1), lane)))));
  });
}
template <typename To, typename From> void floats(Step &s) {
  Source from(s, 1);
  s.each([&](unsigned lane) { return To(from.as<From>(lane)); });
}

template <uint16_t (*Round)(float), bool Relu> void toHalf(Step &s) {
  s.lanes([&](unsigned lane) {
    float value = s.as<float>(s.operand(1), lane);
    s.write(s.operand(0), lane, Round(Relu && value < 0 ? 0 : value));
  });
}
template <float (*Extend)(uint16_t)> void fromHalf(Step &s) {
  s.lanes([&](unsigned lane) { s.write(s.operand(0), lane, Extend(s.as<uint16_t>(s.operand(1), lane))); });
}
/// The nearest f16 or bf16 of a wider number: an f32 whose last bit says that some was cut off is rounded as that would
/// be.
template <typename From, uint16_t (*Round)(float)> void toHalfOnce(Step &s) {
  s.lanes([&](unsigned lane) {
    auto value = static_cast<long double>(s.as<From>(s.operand(1), lane)); // holds 64 bits of an integer
    float near = float(value);
    if (std::isfinite(near) && near != value) {
      if (std::abs(near) > std::abs(value))
        near = std::nextafter(near, 0.0f);
      uint32_t bits;
      memcpy(&bits, &near, 4);
      bits |= 1;
      memcpy(&near, &bits, 4);
    }
    s.write(s.operand(0), lane, Round(near));
  });
}
void f16ToDouble(Step &s) {
  s.lanes([&](unsigned lane) { s.write(s.operand(0), lane, double(fromF16(s.as<uint16_t>(s.operand(1), lane)))); });
}
// cvt.rn.bf16x2.f32 d, a, b: a in the upper half.
template <uint16_t (*Round)(float)> void toPair(Step &s) {
  s.lanes([&](unsigned lane) {
    uint32_t upper = Round(s.as<float>(s.operand(1), lane)), lower = Round(s.as<float>(s.operand(2), lane));
    s.write(s.operand(0), lane, upper << 16 | lower);
  });
}
/// A byte of e4m3 as f16 bits: four bits of exponent with bias 7, three of fraction, no infinities, NaN with all bits
/// set.
uint16_t fromE4M3(uint8_t byte) {
  int exponent = byte >> 3 & 15, fraction = byte & 7;
  if ((byte & 0x7f) == 0x7f)
    return 0x7fff;
  float magnitude = exponent ? std::ldexp(8.0f + float(fraction), exponent - 10) : std::ldexp(float(fraction), -9);
  return toF16(byte & 0x80 ? -magnitude : magnitude);
}
// cvt.rn.f16x2.e4m3x2 d, a: the upper byte of a becomes the upper half of d.
void fromPairE4M3(Step &s) {
  s.lanes([&](unsigned lane) {
    auto pair = s.as<uint16_t>(s.operand(1), lane);
    s.write(s.operand(0), lane, uint32_t(fromE4M3(uint8_t(pair >> 8))) << 16 | fromE4M3(uint8_t(pair)));
  });
}
template <typename To, float (*Extend)(uint16_t), char Direction> void halfToInteger(Step &s) {
  s.lanes([&](unsigned lane) {
    double value = toIntegral<Direction>(Extend(s.as<uint16_t>(s.operand(1), lane)));
    To result = std::isnan(value)                                 ? To(0)
                : value <= double(std::numeric_limits<To>::min()) ? std::numeric_limits<To>::min()
                : value >= double(std::numeric_limits<To>::max()) ? std::numeric_limits<To>::max()
                                                                  : To(value);
    s.write(s.operand(0), lane, result);
  });
}
// To nearest, ties away from zero, at 10 bits of fraction.
void toTf32(Step &s) {
  s.lanes([&](unsigned lane) {
    uint32_t bits = s.as<uint32_t>(s.operand(1), lane);
    if ((bits & 0x7f800000) != 0x7f800000)
      bits += 0x1000;
    s.write(s.operand(0), lane, bits & 0xffffe000);
  });
}

template <typename From> void addFrom(Table &table, const std::string &from) {
  auto def = [&](const std::string &name, Execute execute) { table["cvt." + name + "." + from] = {execute, false}; };
  def("s8", integers<int8_t, From>), def("u8", integers<uint8_t, From>);
  def("s16", integers<int16_t, From>), def("u16", integers<uint16_t, From>);
  def("s32", integers<int32_t, From>), def("u32", integers<uint32_t, From>);
  def("s64", integers<int64_t, From>), def("u64", integers<uint64_t, From>);
  def("rn.f32", toFloat<float, From>), def("rn.f64", toFloat<double, From>), def("rn.f16", toHalfOnce<From, toF16>);
  def("rn.bf16", toHalfOnce<From, toBf16>);
}
template <typename From, char Direction> void addToIntegers(Table &table, const std::string &from) {
  std::string mode = std::string("cvt.r") + Direction + "i";
  auto def = [&](const std::string &to, Execute execute) {
    table[mode + "." + to + "." + from] = {execute, false};
    table[mode + ".ftz." + to + "." + from] = {execute, false};
  };
  def("s16", toInteger<int16_t, From, Direction>), def("u16", toInteger<uint16_t, From, Direction>);
  def("s32", toInteger<int32_t, From, Direction>), def("u32", toInteger<uint32_t, From, Direction>);
  def("s64", toInteger<int64_t, From, Direction>), def("u64", toInteger<uint64_t, From, Direction>);
  def(from, integral<From, Direction>);
}

} // namespace

void addConversions(Table &table) {
  addFrom<int8_t>(table, "s8"), addFrom<uint8_t>(table, "u8");
  addFrom<int16_t>(table, "s16"), addFrom<uint16_t>(table, "u16");
  addFrom<int32_t>(table, "s32"), addFrom<uint32_t>(table, "u32");
  addFrom<int64_t>(table, "s64"), addFrom<uint64_t>(table, "u64");
  addToIntegers<float, 'n'>(table, "f32"), addToIntegers<float, 'z'>(table, "f32");
  addToIntegers<float, 'm'>(table, "f32"), addToIntegers<float, 'p'>(table, "f32");
  addToIntegers<double, 'n'>(table, "f64"), addToIntegers<double, 'z'>(table, "f64");
  addToIntegers<double, 'm'>(table, "f64"), addToIntegers<double, 'p'>(table, "f64");
  auto def = [&](const std::string &name, Execute execute) { table["cvt." + name] = {execute, false}; };
  def("f64.f32", floats<double, float>), def("rn.f32.f64", floats<float, double>);
  def("rn.bf16.f32", toHalf<toBf16, false>), def("rn.f16.f32", toHalf<toF16, false>);
  def("rn.relu.bf16.f32", toHalf<toBf16, true>), def("rn.relu.f16.f32", toHalf<toF16, true>);
  def("f32.bf16", fromHalf<fromBf16>), def("f32.f16", fromHalf<fromF16>);
  def("rn.bf16x2.f32", toPair<toBf16>), def("rn.f16x2.f32", toPair<toF16>);
  def("rn.f16x2.e4m3x2", fromPairE4M3);
  def("rzi.s32.f16", halfToInteger<int32_t, fromF16, 'z'>), def("rzi.s64.f16", halfToInteger<int64_t, fromF16, 'z'>);
  def("rzi.s32.bf16", halfToInteger<int32_t, fromBf16, 'z'>),
      def("rzi.s64.bf16", halfToInteger<int64_t, fromBf16, 'z'>);
  def("rn.f16.f64", toHalfOnce<double, toF16>), def("f64.f16", f16ToDouble);
  def("rna.tf32.f32", toTf32);
}

} // namespace ptx
