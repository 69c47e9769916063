#include "test/gpu/interpreter/Machine.h"

#include <algorithm>
#include <type_traits>

// Section 9.7.1 (integer arithmetic), 9.7.2 (extended), 9.7.6 and 9.7.7
// (comparison and selection) for integers, 9.7.8 (logic and shift).

namespace ptx {
namespace {

template <typename T, T (*F)(T)> void unary(Step &s) {
  Source a(s, 1);
  s.each([&](unsigned lane) { return F(a.as<T>(lane)); });
}
template <typename T, T (*F)(T, T)> void binary(Step &s) {
  Source a(s, 1), b(s, 2);
  s.each([&](unsigned lane) { return F(a.as<T>(lane), b.as<T>(lane)); });
}

template <typename T>
using Wide =
    std::conditional_t<sizeof(T) == 2, std::conditional_t<std::is_signed_v<T>, int32_t, uint32_t>,
                       std::conditional_t<sizeof(T) == 4, std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>,
                                          std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>>>;
template <typename T> using Unsigned = std::make_unsigned_t<T>;

// Wraps around: unsigned.
template <typename T> T add(T a, T b) { return T(Unsigned<T>(a) + Unsigned<T>(b)); }
template <typename T> T sub(T a, T b) { return T(Unsigned<T>(a) - Unsigned<T>(b)); }
template <typename T> Wide<T> product(T a, T b) { return Wide<T>(a) * Wide<T>(b); }
template <typename T> T low(T a, T b) { return T(product(a, b)); }
template <typename T> T high(T a, T b) { return T(product(a, b) >> (8 * sizeof(T))); }
// By zero: unspecified in PTX, all bits set on the machine.
template <typename T> T quotient(T a, T b) {
  if (b == 0)
    return T(-1);
  return std::is_signed_v<T> && b == T(-1) ? sub<T>(0, a) : T(a / b);
}
template <typename T> T remainder(T a, T b) {
  if (b == 0)
    return a;
  return std::is_signed_v<T> && b == T(-1) ? T(0) : T(a % b);
}
template <typename T> T least(T a, T b) { return a < b ? a : b; }
template <typename T> T greatest(T a, T b) { return a > b ? a : b; }
template <typename T> T negate(T a) { return sub<T>(0, a); }
template <typename T> T absolute(T a) { return a < 0 ? sub<T>(0, a) : a; }
template <typename T> T bitAnd(T a, T b) { return a & b; }
template <typename T> T bitOr(T a, T b) { return a | b; }
template <typename T> T bitXor(T a, T b) { return a ^ b; }
template <typename T> T bitNot(T a) { return T(~a); }
uint8_t predicateNot(uint8_t a) { return !(a & 1); }
uint32_t reverse(uint32_t a) {
  uint32_t result = 0;
  for (int bit = 0; bit < 32; ++bit)
    result |= ((a >> bit) & 1) << (31 - bit);
  return result;
}

template <typename T> void wideProduct(Step &s) {
  Source a(s, 1), b(s, 2);
  s.each([&](unsigned lane) { return product(a.as<T>(lane), b.as<T>(lane)); });
}
template <typename T, T (*F)(T, T)> void multiplyAdd(Step &s) {
  Source a(s, 1), b(s, 2), c(s, 3);
  s.each([&](unsigned lane) { return add<T>(F(a.as<T>(lane), b.as<T>(lane)), c.as<T>(lane)); });
}
template <typename T> void wideMultiplyAdd(Step &s) {
  Source a(s, 1), b(s, 2), c(s, 3);
  s.each([&](unsigned lane) { return add<Wide<T>>(product(a.as<T>(lane), b.as<T>(lane)), c.as<Wide<T>>(lane)); });
}

// The amount is 32 bits wide; more than the width counts as the width (9.7.8.7).
template <typename T> void shiftLeft(Step &s) {
  Source a(s, 1), b(s, 2);
  s.each([&](unsigned lane) {
    uint32_t amount = b.as<uint32_t>(lane);
    return amount >= 8 * sizeof(T) ? T(0) : T(a.as<T>(lane) << amount);
  });
}
template <typename T> void shiftRight(Step &s) {
  Source a(s, 1), b(s, 2);
  s.each([&](unsigned lane) {
    uint32_t amount = std::min<uint32_t>(b.as<uint32_t>(lane), 8 * sizeof(T));
    T value = a.as<T>(lane);
    T fill = std::is_signed_v<T> && value < 0 ? T(-1) : T(0);
    return amount == 8 * sizeof(T) ? fill : T(value >> amount);
  });
}
// {high, low} shifted, the upper (left) or lower (right) word (9.7.8.6).
template <bool Left, bool Wrap> void funnel(Step &s) {
  s.lanes([&](unsigned lane) {
    uint64_t both = uint64_t(s.as<uint32_t>(s.operand(2), lane)) << 32 | s.as<uint32_t>(s.operand(1), lane);
    uint32_t amount = s.as<uint32_t>(s.operand(3), lane);
    amount = Wrap ? amount & 31 : std::min(amount, 32u);
    s.write(s.operand(0), lane, Left ? uint32_t(both << amount >> 32) : uint32_t(both >> amount));
  });
}
void lookup3(Step &s) { // lop3.b32 (9.7.8.6): bit a*4+b*2+c of the table
  s.lanes([&](unsigned lane) {
    uint32_t a = s.as<uint32_t>(s.operand(1), lane), b = s.as<uint32_t>(s.operand(2), lane),
             c = s.as<uint32_t>(s.operand(3), lane), table = s.as<uint32_t>(s.operand(4), lane), result = 0;
    for (unsigned entry = 0; entry < 8; ++entry)
      if (table >> entry & 1)
        result |= (entry & 4 ? a : ~a) & (entry & 2 ? b : ~b) & (entry & 1 ? c : ~c);
    s.write(s.operand(0), lane, result);
  });
}
void permute(Step &s) { // prmt.b32 (9.7.8.7): a nibble selects one of 8 bytes, its top bit spreads the sign
  s.lanes([&](unsigned lane) {
    uint64_t bytes = uint64_t(s.as<uint32_t>(s.operand(2), lane)) << 32 | s.as<uint32_t>(s.operand(1), lane);
    uint32_t selector = s.as<uint32_t>(s.operand(3), lane), result = 0;
    for (unsigned i = 0; i < 4; ++i) {
      unsigned nibble = selector >> 4 * i & 15;
      uint8_t byte = uint8_t(bytes >> 8 * (nibble & 7));
      if (nibble & 8)
        byte = byte & 0x80 ? 0xff : 0;
      result |= uint32_t(byte) << 8 * i;
    }
    s.write(s.operand(0), lane, result);
  });
}
template <typename T> void extractField(Step &s) { // bfe (9.7.1.19)
  s.lanes([&](unsigned lane) {
    constexpr int kTop = 8 * sizeof(T) - 1;
    T value = s.as<T>(s.operand(1), lane);
    int begin = int(s.as<uint32_t>(s.operand(2), lane) & 0xff), count = int(s.as<uint32_t>(s.operand(3), lane) & 0xff);
    bool sign = std::is_signed_v<T> && count != 0 && (Unsigned<T>(value) >> std::min(begin + count - 1, kTop) & 1);
    Unsigned<T> result = 0;
    for (int bit = 0; bit <= kTop; ++bit)
      result |= Unsigned<T>(bit < count && begin + bit <= kTop ? Unsigned<T>(value) >> (begin + bit) & 1 : sign) << bit;
    s.write(s.operand(0), lane, result);
  });
}
template <typename T> void insertField(Step &s) { // bfi (9.7.1.20)
  s.lanes([&](unsigned lane) {
    constexpr int kTop = 8 * sizeof(T) - 1;
    T value = s.as<T>(s.operand(1), lane), result = s.as<T>(s.operand(2), lane);
    int begin = int(s.as<uint32_t>(s.operand(3), lane) & 0xff), count = int(s.as<uint32_t>(s.operand(4), lane) & 0xff);
    for (int bit = 0; bit < count && begin + bit <= kTop; ++bit)
      result = T((result & ~(T(1) << (begin + bit))) | (T(value >> bit & 1) << (begin + bit)));
    s.write(s.operand(0), lane, result);
  });
}
template <typename T> void countBits(Step &s) {
  s.lanes(
      [&](unsigned lane) { s.write(s.operand(0), lane, uint32_t(__builtin_popcountll(s.as<T>(s.operand(1), lane)))); });
}
template <typename T> void leadingZeros(Step &s) {
  s.lanes([&](unsigned lane) {
    uint64_t value = s.as<T>(s.operand(1), lane);
    uint32_t zeros = value ? uint32_t(__builtin_clzll(value)) - (64 - 8 * sizeof(T)) : 8 * sizeof(T);
    s.write(s.operand(0), lane, zeros);
  });
}

template <typename T> void select(Step &s) {
  Source a(s, 1), b(s, 2), which(s, 3);
  s.each([&](unsigned lane) { return which.as<uint64_t>(lane) & 1 ? a.as<T>(lane) : b.as<T>(lane); });
}

enum Comparison { Eq, Ne, Lt, Le, Gt, Ge };
template <typename T, Comparison C> void compare(Step &s) {
  Source left(s, 1), right(s, 2);
  s.each([&](unsigned lane) {
    T a = left.as<T>(lane), b = right.as<T>(lane);
    uint8_t result = C == Eq   ? a == b
                     : C == Ne ? a != b
                     : C == Lt ? a < b
                     : C == Le ? a <= b
                     : C == Gt ? a > b
                               : a >= b;
    return result;
  });
}

template <typename T> void addComparisons(Table &table, const std::string &type) {
  auto def = [&](const char *name, Execute execute) {
    table["setp." + std::string(name) + "." + type] = {execute, false};
  };
  def("eq", compare<T, Eq>), def("ne", compare<T, Ne>), def("lt", compare<T, Lt>);
  def("le", compare<T, Le>), def("gt", compare<T, Gt>), def("ge", compare<T, Ge>);
  // The unsigned spelling of the same.
  if (type[0] == 'u')
    def("lo", compare<T, Lt>), def("ls", compare<T, Le>), def("hi", compare<T, Gt>), def("hs", compare<T, Ge>);
}

template <typename T> void addArithmetic(Table &table, const std::string &type) {
  auto def = [&](const std::string &name, Execute execute) { table[name + "." + type] = {execute, false}; };
  def("add", binary<T, add<T>>), def("sub", binary<T, sub<T>>);
  def("mul.lo", binary<T, low<T>>), def("mul.hi", binary<T, high<T>>);
  def("div", binary<T, quotient<T>>), def("rem", binary<T, remainder<T>>);
  def("min", binary<T, least<T>>), def("max", binary<T, greatest<T>>);
  def("mad.lo", multiplyAdd<T, low<T>>), def("mad.hi", multiplyAdd<T, high<T>>);
  def("shr", shiftRight<T>);
  if constexpr (sizeof(T) < 8)
    def("mul.wide", wideProduct<T>), def("mad.wide", wideMultiplyAdd<T>);
  if constexpr (std::is_signed_v<T>)
    def("neg", unary<T, negate<T>>), def("abs", unary<T, absolute<T>>);
  if constexpr (sizeof(T) > 2)
    def("bfe", extractField<T>);
  addComparisons<T>(table, type);
  def("selp", select<T>);
}

/// dp4a (9.7.1.23): the products of four bytes, as A and B have signs, and a sum that wraps.
template <typename A, typename B> void multiplyFours(Step &s) {
  Source a(s, 1), b(s, 2), c(s, 3);
  s.each([&](unsigned lane) {
    uint32_t sum = c.as<uint32_t>(lane);
    for (unsigned shift = 0; shift < 32; shift += 8)
      sum += uint32_t(int32_t(A(a.as<uint32_t>(lane) >> shift)) * int32_t(B(b.as<uint32_t>(lane) >> shift)));
    return sum;
  });
}

/// Of sm_90 and newer: what is below 0 becomes 0.
template <int32_t (*Function)(int32_t, int32_t)> int32_t nonNegative(int32_t a, int32_t b) {
  int32_t result = Function(a, b);
  return result < 0 ? 0 : result;
}

template <typename T> void addLogic(Table &table, const std::string &type) {
  auto def = [&](const std::string &name, Execute execute) { table[name + "." + type] = {execute, false}; };
  def("and", binary<T, bitAnd<T>>), def("or", binary<T, bitOr<T>>), def("xor", binary<T, bitXor<T>>);
  def("not", unary<T, bitNot<T>>), def("shl", shiftLeft<T>), def("shr", shiftRight<T>), def("selp", select<T>);
  def("setp.eq", compare<T, Eq>), def("setp.ne", compare<T, Ne>);
  if constexpr (sizeof(T) > 2)
    def("bfi", insertField<T>), def("popc", countBits<T>), def("clz", leadingZeros<T>);
}

} // namespace

void addIntegerInstructions(Table &table) {
  addArithmetic<int16_t>(table, "s16"), addArithmetic<uint16_t>(table, "u16");
  addArithmetic<int32_t>(table, "s32"), addArithmetic<uint32_t>(table, "u32");
  addArithmetic<int64_t>(table, "s64"), addArithmetic<uint64_t>(table, "u64");
  addLogic<uint16_t>(table, "b16"), addLogic<uint32_t>(table, "b32"), addLogic<uint64_t>(table, "b64");
  table["min.relu.s32"] = {binary<int32_t, nonNegative<least<int32_t>>>, false};
  table["max.relu.s32"] = {binary<int32_t, nonNegative<greatest<int32_t>>>, false};
  table["dp4a.u32.u32"] = {multiplyFours<uint8_t, uint8_t>, false};
  table["dp4a.u32.s32"] = {multiplyFours<uint8_t, int8_t>, false};
  table["dp4a.s32.u32"] = {multiplyFours<int8_t, uint8_t>, false};
  table["dp4a.s32.s32"] = {multiplyFours<int8_t, int8_t>, false};
  table["and.pred"] = {binary<uint8_t, bitAnd<uint8_t>>, false};
  table["or.pred"] = {binary<uint8_t, bitOr<uint8_t>>, false};
  table["xor.pred"] = {binary<uint8_t, bitXor<uint8_t>>, false};
  table["not.pred"] = {unary<uint8_t, predicateNot>, false};
  table["brev.b32"] = {unary<uint32_t, reverse>, false};
  table["lop3.b32"] = {lookup3, false};
  table["prmt.b32"] = {permute, false};
  table["shf.l.wrap.b32"] = {funnel<true, true>, false}, table["shf.r.wrap.b32"] = {funnel<false, true>, false};
  table["shf.l.clamp.b32"] = {funnel<true, false>, false}, table["shf.r.clamp.b32"] = {funnel<false, false>, false};
}

} // namespace ptx
