// Copies of tiles by tensor maps: where each element goes, and what must be reported.

#include "test/gpu/PtxHarness.h"

using namespace ptx;
using namespace ptx::test;

namespace {

std::string copyOf(unsigned rank) {
  return "cp.async.bulk.tensor." + std::to_string(rank) + "d.shared::cluster.global.mbarrier::complete_tx::bytes ";
}
const char *const kShared = ".shared .align 1024 .b8 s[2048]; .shared .align 8 .b8 full[8];\n";

std::string number(int64_t value) { return std::to_string(value); }

/// Thread 0 copies the tile that begins there, of `bytes`; all 128 then store it as it lies.
std::string copyAndStore(const std::vector<int64_t> &at, unsigned bytes) {
  std::string moves, coordinates;
  for (size_t n = 0; n < at.size(); ++n) {
    moves += "mov.b32 %r" + number(int64_t(20 + n)) + ", " + number(at[n]) + ";\n";
    coordinates += (n ? ", %r" : "%r") + number(int64_t(20 + n));
  }
  return kShared +
         ("setp.ne.u32 %p1, %t, 0; @%p1 bra WAIT;\n"
          "mbarrier.init.shared.b64 [full], 1; fence.mbarrier_init.release.cluster;\n"
          "mbarrier.arrive.expect_tx.shared.b64 _, [full], " +
          number(bytes) + ";\n" + moves + copyOf(unsigned(at.size())) + "[s], [%map, {" + coordinates +
          "}], [full];\nWAIT:\nbar.sync 0;\n"
          "L: mbarrier.try_wait.parity.shared.b64 %p2, [full], 0; @!%p2 bra L;\n"
          "mul.lo.u32 %r3, %t, 16; setp.ge.u32 %p3, %r3, " +
          number(bytes) +
          "; @%p3 bra END;\n"
          "cvt.u64.u32 %rd1, %r3; mov.u64 %rd2, s; add.s64 %rd2, %rd2, %rd1; add.s64 %rd3, %out, %rd1;\n"
          "ld.shared.v4.b32 {%r4, %r5, %r6, %r7}, [%rd2]; st.global.v4.b32 [%rd3], {%r4, %r5, %r6, %r7};\nEND:");
}

// CUDA driver API, CU_TENSOR_MAP_SWIZZLE_128B: of row r of 128 bytes piece p of 16 stands where p ^ r % 8 would.
// Element n of the tensor is 1 + n.
TEST(PtxTiles, EachElement) {
  struct {
    std::vector<uint64_t> sizes;
    std::vector<uint32_t> tile;
    std::vector<int64_t> at; // all of the innermost dimension first
  } cases[] = {{{64, 16}, {64, 16}, {0, 0}},
               {{136, 40}, {64, 9}, {64, 7}},
               {{72, 12}, {64, 16}, {64, 8}},
               {{8, 3}, {64, 16}, {0, 0}},
               {{64, 16}, {64, 8}, {0, 16}},
               {{64, 16}, {64, 8}, {64, 0}},
               {{80, 20}, {64, 16}, {8, -3}},
               {{80, 20}, {64, 16}, {-16, 4}},
               {{8, 1}, {64, 1}, {0, 0}},
               {{72, 3, 5}, {64, 2, 4}, {8, 1, 2}},
               {{64, 2, 20, 3}, {64, 1, 16, 1}, {0, 1, 8, 2}},
               {{64, 20, 2, 3}, {64, 16, 1, 1}, {0, 8, 1, 1}},
               {{64, 2, 3, 2, 2}, {64, 2, 2, 2, 2}, {0, 0, 1, 0, 0}}};
  for (auto &[sizes, tile, at] : cases)
    for (bool lazy : {false, true}) {
      LaunchOptions options;
      options.lazy = lazy;
      unsigned rows = 1;
      uint64_t elements = 1;
      for (size_t n = 0; n < sizes.size(); ++n)
        rows *= n ? tile[n] : 1, elements *= sizes[n];
      std::vector<uint8_t> in(2 * elements);
      for (uint64_t n = 0; n < elements; ++n)
        in[2 * n] = uint8_t((n + 1) & 0xff), in[2 * n + 1] = uint8_t((n + 1) >> 8);
      Tiles tiles(sizes, tile);
      auto out = valuesOf<uint16_t>(runBody(copyAndStore(at, 128 * rows), in, 128 * rows, 128, 1, options, "", &tiles));
      for (unsigned r = 0; r < rows; ++r)
        for (unsigned c = 0; c < 64; ++c) {
          int64_t place = 0, pitch = 1;
          bool isInside = true;
          unsigned rest = r;
          for (size_t n = 0; n < sizes.size(); ++n) {
            int64_t x = at[n] + (n ? rest % tile[n] : c);
            rest /= n ? tile[n] : 1;
            isInside &= x >= 0 && x < int64_t(sizes[n]);
            place += x * pitch, pitch *= int64_t(sizes[n]);
          }
          ASSERT_EQ(out[r * 64 + (c / 8 ^ r % 8) * 8 + c % 8], isInside ? uint16_t(1 + place) : 0)
              << sizes.size() << " " << sizes[0] << " " << sizes[1] << " " << r << " " << c;
        }
    }
}

TEST(PtxTiles, Refusals) {
  SKIP_ON_CARD();
  Tiles tiles({8, 4}, {64, 8});
  auto reports = [&](const std::string &body, const char *part) {
    std::string text =
        errorOf(kShared + ("mbarrier.init.shared.b64 [full], 1; mov.b32 %r1, 0;\n" + body), 1, {}, "", &tiles);
    EXPECT_NE(text.find(part), std::string::npos) << text << " instead of " << part;
  };
  std::string copy = copyOf(2);
  reports(copy + "[s+128], [%map, {%r1, %r1}], [full];", "no multiple of 1024");
  reports(copy + "[s], [%in, {%r1, %r1}], [full];", "no parameter of the kernel");
  reports("add.s64 %map, %map, 16;" + copy + "[s], [%map, {%r1, %r1}], [full];", "no parameter of the kernel");
  reports("sub.s64 %map, %map, 16;" + copy + "[s], [%map, {%r1, %r1}], [full];", "not aligned to 64 bytes");
  reports("sub.s64 %map, %map, 64;" + copy + "[s], [%map, {%r1, %r1}], [full];", "no tensor map");
  reports(copy + "[s], [%map, {%r1}], [full];", "2 coordinates");
  reports(copyOf(3) + "[s], [%map, {%r1, %r1, %r1}], [full];", "a map of 2 dimensions");
  reports(copy + "[s], [%map, {%r1, %r1}], [full];", "a bulk copy is under way");
  reports(copy + "[s], [%map, {%r1, %r1}], [s];", "holds no mbarrier");
  reports("st.shared.b32 [s+512], 1;" + copy + "[s], [%map, {%r1, %r1}], [full];", "overwrites shared memory of which");
  reports("ld.b64 %rd1, [%map];", "reads a parameter by a generic address");
}

// What cuTensorMapEncodeTiled refuses.
TEST(PtxTiles, Maps) {
  SKIP_ON_CARD();
  auto reports = [](Tiles tiles, const char *part) {
    std::string text = errorOf("", 1, {}, "", &tiles);
    EXPECT_NE(text.find(part), std::string::npos) << text << " instead of " << part;
  };
  reports(Tiles({12, 4}, {64, 8}), "a pitch");
  reports(Tiles({8, 0}, {64, 8}), "sizes");
  reports(Tiles({8, 4}, {64, 257}), "256 elements");
  reports(Tiles({8, 4}, {64, 0}), "256 elements");
  reports(Tiles({8, 4}, {128, 8}), "rows of 128 bytes");
  reports(Tiles({8}, {64}), "2 to 5 dimensions");
  Tiles floats({8, 4}, {64, 8}), plain = floats, turned({8, 4, 4}, {64, 8, 1});
  floats.type = 7, plain.swizzle = 0, std::swap(turned.pitches[0], turned.pitches[1]);
  reports(floats, "16 bits");
  reports(plain, "another layout");
  reports(turned, "a pitch");
}

} // namespace
