#include "test/gpu/PtxHarness.h"

// Products of bytes: dp4a, and mma.sync of s32 by the tables of fragments in the PTX ISA, written down here a second
// time.

using namespace ptx::test;

namespace {

/// A number of a byte, as `type` (s8 or u8) has it.
int32_t number(uint8_t byte, const std::string &type) { return type == "s8" ? int8_t(byte) : byte; }

TEST(PtxByteProduct, Fours) {
  // The lowest bytes are ff and 80, then 02 and 03, 00 and 05, 81 and ff; the sum begins with 7.
  for (std::string a : {"u32", "s32"})
    for (std::string b : {"u32", "s32"}) {
      std::string body = "mov.b32 %r1, 0x810002ff; mov.b32 %r2, 0xff050380; dp4a." + a + "." + b +
                         " %r3, %r1, %r2, 7; st.global.b32 [%out], %r3;";
      int32_t first = (a == "s32" ? -1 : 255) * (b == "s32" ? -128 : 128),
              last = (a == "s32" ? -127 : 129) * (b == "s32" ? -1 : 255);
      EXPECT_EQ(valuesOf<int32_t>(runBody(body, {0}, 4))[0], 7 + first + 6 + last) << a << " " << b;
    }
  std::string wraps = "mov.b32 %r1, 0xffffffff; mov.b32 %r3, 0x7fffffff; dp4a.u32.u32 %r3, %r1, %r1, %r3; "
                      "st.global.b32 [%out], %r3;";
  EXPECT_EQ(valuesOf<uint32_t>(runBody(wraps, {0}, 4))[0], 0x7fffffffu + 4 * 255 * 255);
}

/// Matrices in order, A of 16 x 32 by rows and B of 32 x 8 by columns; what a lane gets is put together here.
struct Matrices {
  uint8_t a[16][32], b[32][8];

  /// The registers of all lanes: four of A and two of B for each.
  std::vector<uint8_t> registers() const {
    std::vector<uint8_t> bytes;
    for (int lane = 0; lane < 32; ++lane) {
      int groupID = lane >> 2, threadInGroup = lane % 4;
      for (int i = 0; i < 16; ++i) { // a_i: row groupID for 0 <= i < 4 and 8 <= i < 12, else + 8; + 16 from a_8 on
        int row = (i < 4) || (i >= 8 && i < 12) ? groupID : groupID + 8;
        bytes.push_back(a[row][threadInGroup * 4 + (i & 3) + (i < 8 ? 0 : 16)]);
      }
      for (int i = 0; i < 8; ++i) // b_i: row + 16 from b_4 on
        bytes.push_back(b[threadInGroup * 4 + (i & 3) + (i < 4 ? 0 : 16)][groupID]);
    }
    return bytes;
  }
};

TEST(PtxByteProduct, Matrices) {
  Matrices given;
  for (int row = 0; row < 16; ++row)
    for (int k = 0; k < 32; ++k)
      given.a[row][k] = uint8_t(row * 37 + k * 11 + row * k);
  for (int k = 0; k < 32; ++k)
    for (int column = 0; column < 8; ++column)
      given.b[k][column] = uint8_t(k * 29 + column * 53 + k * column + 101);
  const std::string load = "mul.wide.u32 %rd1, %t, 24; add.s64 %rd2, %in, %rd1;\n"
                           "ld.global.v2.b32 {%r1, %r2}, [%rd2]; ld.global.v2.b32 {%r3, %r4}, [%rd2+8];\n"
                           "ld.global.v2.b32 {%r5, %r6}, [%rd2+16]; mov.b32 %r7, 0x7ffffff0;\n";
  const std::string store = "mul.wide.u32 %rd3, %t, 16; add.s64 %rd4, %out, %rd3;\n"
                            "st.global.v4.b32 [%rd4], {%r8, %r9, %r10, %r11};";
  for (std::string left : {"u8", "s8"})
    for (std::string right : {"u8", "s8"}) {
      std::string body = load + "mma.sync.aligned.m16n8k32.row.col.s32." + left + "." + right +
                         ".s32 {%r8, %r9, %r10, %r11}, {%r1, %r2, %r3, %r4}, {%r5, %r6}, {%r7, %r7, %r7, %r7};\n" +
                         store;
      std::vector<uint32_t> d = valuesOf<uint32_t>(runBody(body, given.registers(), 512, 32));
      for (int lane = 0; lane < 32; ++lane)
        for (int i = 0; i < 4; ++i) { // c_i: row groupID for i < 2, else + 8; column 2 * threadInGroup + (i & 1)
          int row = (lane >> 2) + (i < 2 ? 0 : 8), column = lane % 4 * 2 + (i & 1);
          uint32_t sum = 0x7ffffff0; // it wraps
          for (int k = 0; k < 32; ++k)
            sum += uint32_t(number(given.a[row][k], left) * number(given.b[k][column], right));
          EXPECT_EQ(d[4 * lane + i], sum) << left << " by " << right << ", lane " << lane << ", " << i;
        }
    }
}

TEST(PtxByteProduct, MatricesNeedTheWholeWarp) {
  SKIP_ON_CARD();
  std::string body = "setp.lt.u32 %p1, %t, 8; @%p1 bra DONE;\n"
                     "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%r8, %r9, %r10, %r11}, {%r1, %r2, %r3, %r4}, "
                     "{%r5, %r6}, {%r7, %r7, %r7, %r7};\nDONE:\n";
  EXPECT_NE(errorOf(body, 32).find("is not executed by all lanes of the warp"), std::string::npos);
}

} // namespace
