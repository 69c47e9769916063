// Each instruction by itself, against numbers worked out by hand from the PTX ISA.

#include "test/gpu/PtxHarness.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <sstream>

using namespace ptx;
using namespace ptx::test;

namespace {

/// ptxas takes halves, one or two, from registers alone: `operands` is then these, and the result moves them there.
std::string moveHalves(const std::string &opcode, std::string &operands) {
  std::string type = opcode.substr(opcode.rfind('.') + 1), moves, names;
  bool isFloat8 = type == "e4m3x2"; // two of them are a half
  if (type.find("f16") == std::string::npos && !isFloat8)
    return "";
  bool isPair = type.back() == '2' && !isFloat8;
  std::istringstream literals(operands);
  for (std::string literal; std::getline(literals, literal, ',');) {
    std::string name = (isPair ? "%r" : "%h") + std::to_string(20 + std::count(names.begin(), names.end(), '%'));
    moves += (isPair ? "mov.b32 " : "mov.b16 ") + name + ", " + literal + ";\n";
    names += (names.empty() ? "" : ", ") + name;
  }
  operands = names;
  return moves;
}

/// One instruction "op d, operands" whose operands are literals: its result bits.
uint64_t evaluate(const std::string &opcode, std::string operands, const char *destination) {
  std::string body = moveHalves(opcode, operands);
  body += opcode + " " + destination + "1, " + operands + ";\n";
  if (destination[1] == 'p')
    body += "selp.b32 %r2, 1, 0, %p1; st.global.b32 [%out], %r2;";
  else if (std::string(destination) == "%rd" || std::string(destination) == "%fd")
    body += "st.global.b64 [%out], " + std::string(destination) + "1;";
  else if (destination[1] == 'h')
    body += "cvt.u32.u16 %r2, %h1; st.global.b32 [%out], %r2;";
  else
    body += "st.global.b32 [%out], " + std::string(destination) + "1;";
  std::vector<uint8_t> out = runBody(body, {0}, 8);
  uint64_t value;
  memcpy(&value, out.data(), 8);
  return std::string(destination) == "%rd" || std::string(destination) == "%fd" ? value : uint32_t(value);
}

struct Case {
  const char *opcode, *operands, *destination;
  uint64_t want;
};

/// Equal bits; those of an approximation are 4 units off at most (a relative error of 2^-22: PTX ISA, "Floating Point
/// Instructions"). On a card a NaN is any NaN.
bool matches(const Case &c, uint64_t got) {
  if (got == c.want || c.destination[1] != 'f' || c.destination[2])
    return got == c.want;
  if (onCard() && (c.want & 0x7fffffff) > 0x7f800000)
    return (got & 0x7fffffff) > 0x7f800000;
  return strstr(c.opcode, ".approx") && std::llabs(int64_t(got) - int64_t(c.want)) <= 4;
}

void expect(const Case &c) {
  uint64_t got = evaluate(c.opcode, c.operands, c.destination);
  EXPECT_TRUE(matches(c, got)) << c.opcode << " " << c.operands << ": " << std::hex << got << ", not " << c.want;
}

TEST(PtxInstruction, Integers) {
  for (const Case &c : std::initializer_list<Case>{
           {"add.s32", "2147483647, 1", "%r", 0x80000000},
           {"add.s64", "4294967295, 1", "%rd", 0x100000000},
           {"sub.s32", "0, 1", "%r", 0xffffffff},
           {"mul.lo.s32", "65536, 65537", "%r", 0x10000},
           {"mul.hi.u32", "0x80000000, 6", "%r", 3},
           {"mul.hi.s32", "-1, 1", "%r", 0xffffffff},
           {"mul.hi.u64", "0x8000000000000000, 6", "%rd", 3},
           {"mul.wide.s32", "-2, 3", "%rd", uint64_t(-6)},
           {"mul.wide.u32", "0xffffffff, 2", "%rd", 0x1fffffffe},
           {"mul.wide.u16", "65535, 2", "%r", 131070},
           {"mad.lo.s32", "3, 4, 5", "%r", 17},
           {"mad.wide.s32", "-3, 4, 5", "%rd", uint64_t(-7)},
           {"div.s32", "-7, 2", "%r", uint32_t(-3)},
           {"div.u32", "0xfffffff9, 2", "%r", 0x7ffffffc},
           {"rem.s32", "-7, 2", "%r", uint32_t(-1)},
           {"rem.u64", "7, 4", "%rd", 3},
           {"div.s64", "-9, 2", "%rd", uint64_t(-4)},
           {"min.s32", "-1, 1", "%r", 0xffffffff},
           {"min.u32", "-1, 1", "%r", 1},
           {"max.s64", "-1, 1", "%rd", 1},
           {"max.relu.s32", "-7, -2", "%r", 0},
           {"max.relu.s32", "-7, 5", "%r", 5},
           {"min.relu.s32", "-7, 5", "%r", 0},
           {"min.relu.s32", "7, 5", "%r", 5},
           {"neg.s32", "5", "%r", uint32_t(-5)},
           {"abs.s32", "-5", "%r", 5},
           {"popc.b32", "0xf0f0", "%r", 8},
           {"clz.b32", "1", "%r", 31},
           {"clz.b32", "0", "%r", 32},
           {"brev.b32", "1", "%r", 0x80000000},
           {"bfe.u32", "0x12345678, 8, 8", "%r", 0x56},
           {"bfe.s32", "0x0000f000, 12, 4", "%r", 0xffffffff},
           {"bfe.s32", "0x80000000, 28, 8", "%r", 0xfffffff8},
           {"bfi.b32", "0xab, 0x11111111, 8, 8", "%r", 0x1111ab11},
       })
    expect(c);
}

TEST(PtxInstruction, Logic) {
  for (const Case &c : std::initializer_list<Case>{
           {"and.b32", "12, 10", "%r", 8},
           {"or.b32", "12, 10", "%r", 14},
           {"xor.b64", "12, 10", "%rd", 6},
           {"not.b32", "0", "%r", 0xffffffff},
           {"shl.b32", "1, 31", "%r", 0x80000000},
           {"shl.b32", "1, 32", "%r", 0},
           {"shr.u32", "0x80000000, 31", "%r", 1},
           {"shr.s32", "0x80000000, 31", "%r", 0xffffffff},
           {"shr.s32", "0x80000000, 99", "%r", 0xffffffff},
           {"shr.u64", "0x8000000000000000, 63", "%rd", 1},
           // 0xf0 0xcc 0xaa are what the operands a, b, c look like: a & b | c.
           {"lop3.b32", "0xc, 0xa, 0x1, 0xea", "%r", 9},
           {"prmt.b32", "0x33221100, 0x77665544, 0x7410", "%r", 0x77441100},
           {"prmt.b32", "0x80, 0, 0x888a", "%r", 0xffffff00},
           {"shf.l.wrap.b32", "0x80000000, 1, 1", "%r", 3},
           {"shf.r.wrap.b32", "0, 1, 1", "%r", 0x80000000},
       })
    expect(c);
}

TEST(PtxInstruction, Comparisons) {
  for (const Case &c : std::initializer_list<Case>{
           {"setp.lt.s32", "-1, 1", "%p", 1},
           {"setp.lt.u32", "-1, 1", "%p", 0},
           {"setp.hi.u32", "-1, 1", "%p", 1},
           {"setp.ge.s64", "-1, -1", "%p", 1},
           {"setp.eq.b32", "5, 5", "%p", 1},
           {"setp.lt.f32", "0f7FC00000, 0f3F800000", "%p", 0},
           {"setp.ltu.f32", "0f7FC00000, 0f3F800000", "%p", 1},
           {"setp.neu.f32", "0f7FC00000, 0f7FC00000", "%p", 1},
           {"setp.nan.f32", "0f7FC00000, 0f3F800000", "%p", 1},
           {"setp.num.f32", "0f00000000, 0f3F800000", "%p", 1},
           {"setp.eq.f32", "0f80000000, 0f00000000", "%p", 1},
           {"setp.gt.f64", "0d4000000000000000, 0d3FF0000000000000", "%p", 1},
       })
    expect(c);
}

TEST(PtxInstruction, Floats) {
  // 1.0 = 3f800000, 2.0 = 40000000, 3.0 = 40400000, 0.5 = 3f000000
  for (const Case &c : std::initializer_list<Case>{
           {"add.rn.f32", "0f3F800000, 0f40000000", "%f", 0x40400000},
           {"sub.rn.f32", "0f3F800000, 0f3F800000", "%f", 0},
           {"mul.rn.f32", "0f40000000, 0f3F000000", "%f", 0x3f800000},
           {"mul.rn.ftz.f32", "0f00800000, 0f3F000000", "%f", 0},
           {"mul.rn.f32", "0f00800000, 0f3F000000", "%f", 0x00400000},
           // (1 + 2^-22)^2 - 1 = 2^-21 + 2^-44, rounded once
           {"fma.rn.f32", "0f3F800002, 0f3F800002, 0fBF800000", "%f", 0x35000001},
           {"div.rn.f32", "0f3F800000, 0f40400000", "%f", 0x3eaaaaab},
           {"rcp.rn.f32", "0f40400000", "%f", 0x3eaaaaab},
           {"sqrt.rn.f32", "0f40000000", "%f", 0x3fb504f3},
           {"ex2.approx.ftz.f32", "0f40400000", "%f", 0x41000000},
           {"ex2.approx.ftz.f32", "0fFF800000", "%f", 0},
           {"lg2.approx.f32", "0f41000000", "%f", 0x40400000},
           {"rsqrt.approx.f32", "0f40800000", "%f", 0x3f000000},
           {"neg.f32", "0f7FC00001", "%f", 0xffc00001},
           {"abs.f32", "0fC0000000", "%f", 0x40000000},
           {"min.f32", "0f7FC00000, 0f3F800000", "%f", 0x3f800000},
           {"min.NaN.f32", "0f7FC00000, 0f3F800000", "%f", 0x7fffffff},
           {"max.f32", "0f80000000, 0f00000000", "%f", 0},
           {"min.f32", "0f80000000, 0f00000000", "%f", 0x80000000},
           {"max.NaN.f32", "0f3F800000, 0f40000000", "%f", 0x40000000},
           {"copysign.f32", "0f80000000, 0f40000000", "%f", 0xc0000000},
           {"add.rn.f64", "0d3FF0000000000000, 0d3FF0000000000000", "%fd", 0x4000000000000000},
           // bf16: 1.0 = 3f80, 1 + 2^-7 = 3f81; f16: 1.0 = 3c00
           {"fma.rn.bf16", "16256, 16256, 16256", "%h", 0x4000},
           {"add.rn.f16", "15360, 15360", "%h", 0x4000},
           {"mul.rn.bf16x2", "0x40003f80, 0x40003f80", "%r", 0x40803f80},
           {"fma.rn.f16x2", "0x3c003c00, 0x3c004000, 0x3c003c00", "%r", 0x40004200},
       })
    expect(c);
}

TEST(PtxInstruction, Conversions) {
  for (const Case &c : std::initializer_list<Case>{
           {"cvt.s64.s32", "-1", "%rd", uint64_t(-1)},
           {"cvt.u64.u32", "-1", "%rd", 0xffffffff},
           {"cvt.u32.u64", "0x100000002", "%r", 2},
           {"cvt.s32.s8", "0x80", "%r", 0xffffff80},
           {"cvt.u32.u8", "0x180", "%r", 0x80},
           {"cvt.s8.s32", "-5", "%r", 0xfffffffb},
           {"cvt.u8.u32", "0x1fb", "%r", 0xfb},
           {"cvt.rn.f32.s32", "-3", "%f", 0xc0400000},
           {"cvt.rn.f32.u32", "16777217", "%f", 0x4b800000}, // a tie, to even
           {"cvt.rn.f32.s64", "16777219", "%f", 0x4b800002},
           {"cvt.rzi.s32.f32", "0fC0200000", "%r", uint32_t(-2)}, // -2.5
           {"cvt.rni.s32.f32", "0f40200000", "%r", 2},
           {"cvt.rzi.s32.f32", "0f4F000000", "%r", 0x7fffffff}, // 2^31
           {"cvt.rzi.s32.f32", "0f7FC00000", "%r", 0},
           {"cvt.rzi.u32.f32", "0fBF800000", "%r", 0},
           {"cvt.rmi.f32.f32", "0fC0200000", "%f", 0xc0400000},
           {"cvt.rpi.f32.f32", "0fC0200000", "%f", 0xc0000000},
           {"cvt.rni.f32.f32", "0f3F000000", "%f", 0},
           {"cvt.rn.bf16.f32", "0f3F808000", "%h", 0x3f80}, // a tie, to even
           {"cvt.rn.bf16.f32", "0f3F818000", "%h", 0x3f82},
           {"cvt.rn.f16.f32", "0f477FF000", "%h", 0x7c00},         // 65520 is beyond the largest
           {"cvt.rn.f16.f32", "0f33800000", "%h", 1},              // 2^-24
           {"cvt.rn.f16.f64", "0d3FF0020000000000", "%h", 0x3c00}, // a tie
           {"cvt.rn.f16.f64", "0d3FF0020000000001", "%h", 0x3c01}, // no tie, though one in f32
           {"cvt.f64.f16", "0x3c01", "%fd", 0x3ff0040000000000},
           {"cvt.rn.f16.s8", "0x80", "%h", 0xd800},
           {"cvt.rn.f16.u32", "2049", "%h", 0x6800},
           {"cvt.rn.f16.u32", "70000", "%h", 0x7c00},
           {"cvt.rn.bf16.s64", "-3", "%h", 0xc040},
           {"cvt.rn.bf16.s64", "0x10100000000", "%h", 0x5380}, // 2^40 + 2^32: a tie, to even
           {"cvt.rn.bf16.s64", "0x10100000001", "%h", 0x5381}, // no tie, though one in f32
           {"cvt.f32.bf16", "0x3f81", "%f", 0x3f810000},
           {"cvt.f32.f16", "0x0001", "%f", 0x33800000},
           {"cvt.rn.bf16x2.f32", "0f40000000, 0f3F800000", "%r", 0x40003f80},
           {"cvt.rn.f16x2.f32", "0f477FF000, 0f3F800000", "%r", 0x7c003c00},
           {"cvt.rn.bf16x2.f32", "0f3F818000, 0f7FC00000", "%r", 0x3f827fff},
           {"cvt.rn.f16x2.e4m3x2", "0x3801", "%r", 0x3c001800}, // 1 and the least number, 2^-9
           {"cvt.rn.f16x2.e4m3x2", "0x7e07", "%r", 0x5f002300}, // 448 and 7/512, of those below the normal ones
           {"cvt.rn.f16x2.e4m3x2", "0x8008", "%r", 0x80002400}, // -0 and 2^-6
           {"cvt.rn.f16x2.e4m3x2", "0xb87f", "%r", 0xbc007fff}, // -1 and NaN
           {"cvt.rn.f16x2.e4m3x2", "0xff38", "%r", 0x7fff3c00},
           {"cvt.f64.f32", "0f3F800000", "%fd", 0x3ff0000000000000},
           {"cvt.rn.f32.f64", "0d3FF0000000000000", "%f", 0x3f800000},
           {"cvt.rna.tf32.f32", "0f3F801000", "%f", 0x3f802000},
       })
    expect(c);
}

TEST(PtxInstruction, Moves) {
  EXPECT_EQ(valuesOf<uint32_t>(
                runBody("mov.b64 %rd1, {1, 2}; mov.b64 {%r1, %r2}, %rd1; mov.b32 {%h1, %h2}, 0x00070005;\n"
                        "cvt.u32.u16 %r3, %h2; st.global.v2.b32 [%out], {%r2, %r1}; st.global.b32 [%out+8], %r3;",
                        {0}, 12)),
            (std::vector<uint32_t>{2, 1, 7}));
  EXPECT_EQ(valuesOf<uint32_t>(runBody("setp.eq.s32 %p1, 1, 2; selp.b32 %r1, 5, 6, %p1; @%p1 mov.b32 %r1, 7;\n"
                                       "@!%p1 add.s32 %r1, %r1, 10; st.global.b32 [%out], %r1;",
                                       {0}, 4))[0],
            16u);
}

TEST(PtxInstruction, LoadsAndStores) {
  std::vector<uint8_t> in = bytesOf<uint32_t>({0x80ff0102, 5, 6, 7});
  EXPECT_EQ(valuesOf<uint32_t>(
                runBody("ld.global.s8 %r1, [%in+2]; ld.global.u8 %r2, [%in+2]; ld.global.nc.b32 %r3, [%in+4];\n"
                        "ld.s16 %r4, [%in+2]; st.global.v4.b32 [%out], {%r1, %r2, %r3, %r4};",
                        in, 16)),
            (std::vector<uint32_t>{0xffffffff, 0xff, 5, 0xffff80ff}));
  // Shared and local memory, also by generic addresses.
  EXPECT_EQ(valuesOf<uint32_t>(runBody(
                ".shared .align 4 .b8 s[64]; .local .align 4 .b8 l[8];\n"
                "mov.u64 %rd1, s; st.shared.b32 [%rd1+4], 11; cvta.shared.u64 %rd2, %rd1; ld.b32 %r1, [%rd2+4];\n"
                "mov.u64 %rd3, l; st.local.b32 [%rd3], 12; cvta.local.u64 %rd4, %rd3; ld.b32 %r2, [%rd4];\n"
                "cvta.to.shared.u64 %rd5, %rd2; ld.shared.b32 %r3, [%rd5+4];\n"
                "st.global.b32 [%out], %r1; st.global.b32 [%out+4], %r2; st.global.b32 [%out+8], %r3;",
                {0}, 12)),
            (std::vector<uint32_t>{11, 12, 11}));
}

TEST(PtxInstruction, Shuffles) {
  // Lane l holds l.
  auto shuffle = [](const char *form, const char *b, const char *c) {
    return valuesOf<uint32_t>(runBody(std::string("shfl.sync.") + form + ".b32 %r1|%p1, %t, " + b + ", " + c +
                                          ", -1; selp.b32 %r2, 1, 0, %p1; mul.wide.u32 %rd1, %t, 8;\n"
                                          "add.s64 %rd2, %out, %rd1; st.global.v2.b32 [%rd2], {%r1, %r2};",
                                      {0}, 256, 32));
  };
  std::vector<uint32_t> butterfly = shuffle("bfly", "5", "31"), down = shuffle("down", "16", "31"),
                        up = shuffle("up", "1", "0"), index = shuffle("idx", "3", "31"),
                        halves = shuffle("down", "1", "0x100f");
  for (unsigned lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(butterfly[2 * lane], lane ^ 5);
    EXPECT_EQ(down[2 * lane], lane < 16 ? lane + 16 : lane);
    EXPECT_EQ(down[2 * lane + 1], lane < 16);
    EXPECT_EQ(up[2 * lane], lane ? lane - 1 : 0);
    EXPECT_EQ(index[2 * lane], 3u);
    // Segments of 16 lanes.
    EXPECT_EQ(halves[2 * lane], lane % 16 == 15 ? lane : lane + 1);
  }
  EXPECT_EQ(
      valuesOf<uint32_t>(runBody(
          "setp.lt.u32 %p1, %t, 3; vote.sync.ballot.b32 %r1, %p1, -1; st.global.b32 [%out], %r1;", {0}, 4, 32))[0],
      7u);
  EXPECT_EQ(valuesOf<uint32_t>(runBody("redux.sync.add.s32 %r1, %t, -1; st.global.b32 [%out], %r1;", {0}, 4, 32))[0],
            496u);
}

TEST(PtxInstruction, Atomics) {
  std::string body = "setp.ne.u32 %p1, %t, 0; @%p1 bra DONE; st.global.b32 [%out], 0;\nDONE:\nbar.sync 0;\n"
                     "atom.global.add.u32 %r1, [%out], %t; red.global.add.u32 [%out], 1;";
  EXPECT_EQ(valuesOf<uint32_t>(runBody(body, {0}, 4, 64))[0], 64u * 63 / 2 + 64);

  // Words of 64 bits: -1 - t is the greatest of thread 0, unsigned.
  std::string words = "setp.ne.u32 %p1, %t, 0; @%p1 bra DONE; st.global.b64 [%out], 0; st.global.b64 [%out+8], 0;\n"
                      "DONE:\nbar.sync 0;\ncvt.u64.u32 %rd1, %t; not.b64 %rd2, %rd1; shl.b64 %rd3, %rd1, 32;\n"
                      "atom.global.max.u64 %rd4, [%out], %rd2; atom.global.or.b64 %rd4, [%out+8], %rd3;";
  std::vector<uint64_t> made = valuesOf<uint64_t>(runBody(words, {0}, 16, 5));
  EXPECT_EQ(made[0], ~uint64_t(0));
  EXPECT_EQ(made[1], uint64_t(7) << 32);
  std::string swap = "mov.b64 %rd1, 0x700000005; st.global.b64 [%out], %rd1; atom.global.exch.b64 %rd2, [%out], -1; "
                     "st.global.b64 [%out+8], %rd2;";
  made = valuesOf<uint64_t>(runBody(swap, {0}, 16));
  EXPECT_EQ(made[0], ~uint64_t(0));
  EXPECT_EQ(made[1], 0x700000005u);
}

/// What lane l stores of D: c0, c1 are row l/4, columns 2(l%4) and the next; c2, c3 of row + 8.
void expectSumsOfPlaces(const std::vector<float> &d, const char *type) {
  for (unsigned lane = 0; lane < 32; ++lane)
    for (unsigned i = 0; i < 4; ++i) {
      unsigned row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
      EXPECT_EQ(d[4 * lane + i], float(row + column + 1)) << type << " " << lane << " " << i;
    }
}
const char *const kStoreD = "mul.wide.u32 %rd1, %t, 16; add.s64 %rd2, %out, %rd1;\n"
                            "st.global.v4.b32 [%rd2], {%f2, %f3, %f4, %f5};";

// A[i][k] = i + k, B[k][n] = (k == n), C = 1: D[i][n] = i + n + 1, for n < 8.
TEST(PtxInstruction, MatrixProducts) {
  for (std::string type : {"bf16", "f16"}) {
    std::string body = "shr.u32 %r1, %t, 2; and.b32 %r2, %t, 3; shl.b32 %r2, %r2, 1;\n"; // group, pair
    auto element = [&](int dr, int dc, const char *to) {
      return "add.s32 %r10, %r1, " + std::to_string(dr) + "; add.s32 %r11, %r2, " + std::to_string(dc) +
             "; add.s32 %r12, %r10, %r11; cvt.rn.f32.s32 %f10, %r12; cvt.rn." + type + ".f32 " + to + ", %f10;\n";
    };
    auto unit = [&](int dr, const char *to) {
      return "add.s32 %r10, %r2, " + std::to_string(dr) +
             "; setp.eq.s32 %p1, %r10, %r1; selp.b32 %f10, 0f3F800000, 0f00000000, %p1; cvt.rn." + type + ".f32 " + to +
             ", %f10;\n";
    };
    for (int r = 0; r < 4; ++r)
      body += element(r % 2 * 8, r / 2 * 8, "%h1") + element(r % 2 * 8, r / 2 * 8 + 1, "%h2") + "mov.b32 %r2" +
              std::to_string(r) + ", {%h1, %h2};\n";
    for (int r = 0; r < 2; ++r)
      body +=
          unit(8 * r, "%h1") + unit(8 * r + 1, "%h2") + "mov.b32 %r" + std::to_string(r ? 31 : 30) + ", {%h1, %h2};\n";
    body += "mov.b32 %f1, 0f3F800000; mma.sync.aligned.m16n8k16.row.col.f32." + type + "." + type +
            ".f32 {%f2, %f3, %f4, %f5}, {%r20, %r21, %r22, %r23}, {%r30, %r31}, {%f1, %f1, %f1, %f1};\n" + kStoreD;
    expectSumsOfPlaces(valuesOf<float>(runBody(body, {0}, 512, 32)), type.c_str());
  }
}

// 8 deep: a0, a1 are rows l/4 and + 8 of column l%4, a2, a3 of column + 4; b0, b1 rows l%4 and + 4 of column l/4.
TEST(PtxInstruction, MatrixProductsTf32) {
  std::string body = "shr.u32 %r1, %t, 2; and.b32 %r2, %t, 3;\n";
  for (int r = 0; r < 4; ++r)
    body += "add.s32 %r10, %r1, " + std::to_string(r % 2 * 8) + "; add.s32 %r11, %r2, " + std::to_string(r / 2 * 4) +
            "; add.s32 %r12, %r10, %r11; cvt.rn.f32.s32 %f10, %r12; cvt.rna.tf32.f32 %r2" + std::to_string(r) +
            ", %f10;\n";
  for (int r = 0; r < 2; ++r)
    // Beyond the 10 bits of a fraction nothing is read: 1 + 2^-11 counts as 1.
    body += "add.s32 %r10, %r2, " + std::to_string(4 * r) + "; setp.eq.s32 %p1, %r10, %r1; selp.b32 %r" +
            std::to_string(30 + r) + ", 0x3F801000, 0, %p1;\n";
  body += "mov.b32 %f1, 0f3F800000; mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f2, %f3, %f4, %f5}, "
          "{%r20, %r21, %r22, %r23}, {%r30, %r31}, {%f1, %f1, %f1, %f1};\n" +
          std::string(kStoreD);
  expectSumsOfPlaces(valuesOf<float>(runBody(body, {0}, 512, 32)), "tf32");
}

TEST(PtxInstruction, MatrixProductsNeedTheWholeWarp) {
  std::string body = "setp.lt.u32 %p1, %t, 8; @%p1 bra DONE;\n"
                     "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f2, %f3, %f4, %f5}, "
                     "{%r20, %r21, %r22, %r23}, {%r30, %r31}, {%f1, %f1, %f1, %f1};\nDONE:\n";
  SKIP_ON_CARD();
  EXPECT_NE(errorOf(body, 32).find("is not executed by all lanes of the warp"), std::string::npos);
}

TEST(PtxInstruction, LoadMatrix) {
  // Shared halves hold their position; lane l reads row l of one 8 x 8 matrix.
  std::string body =
      ".shared .align 16 .b8 s[128];\nmul.wide.u32 %rd1, %t, 4; mov.u64 %rd2, s; add.s64 %rd3, %rd2, %rd1;\n"
      "shl.b32 %r1, %t, 1; add.s32 %r2, %r1, 1; shl.b32 %r3, %r2, 16; or.b32 %r4, %r3, %r1; st.shared.b32 [%rd3], "
      "%r4;\n"
      "bar.sync 0; and.b32 %r5, %t, 7; mul.wide.u32 %rd4, %r5, 16; add.s64 %rd5, %rd2, %rd4;\n"
      "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r6}, [%rd5];\n"
      "ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%r7}, [%rd5];\n"
      "mul.wide.u32 %rd6, %t, 8; add.s64 %rd7, %out, %rd6; st.global.v2.b32 [%rd7], {%r6, %r7};";
  std::vector<uint16_t> out = valuesOf<uint16_t>(runBody(body, {0}, 256, 32));
  for (unsigned lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(out[4 * lane], lane / 4 * 8 + lane % 4 * 2);
    EXPECT_EQ(out[4 * lane + 3], (lane % 4 * 2 + 1) * 8 + lane / 4);
  }
}

} // namespace
