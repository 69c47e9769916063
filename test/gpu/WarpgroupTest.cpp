// Matrix products of a warpgroup, mbarriers and bulk copies: numbers, and what must be reported.

#include "test/gpu/PtxHarness.h"

#include <cmath>

using namespace ptx;
using namespace ptx::test;

namespace {

std::string number(uint64_t value) { return std::to_string(value); }

/// Thread t stores row t, of 128 bytes swizzled: element e is `value(e)` by `%f1`, from t in %f2.
std::string storeRow(const std::string &at, unsigned elements, const std::function<std::string(unsigned)> &value) {
  std::string body = "mul.lo.u32 %r1, %t, 128; and.b32 %r2, %t, 7; shl.b32 %r2, %r2, 4; cvt.rn.f32.u32 %f2, %t;\n";
  for (unsigned e = 0; e < elements; ++e)
    body += value(e) + " cvt.rn.bf16.f32 %h1, %f1; xor.b32 %r3, %r2, " + number(2 * e) +
            "; add.s32 %r3, %r3, %r1; cvt.u64.u32 %rd1, %r3; mov.u64 %rd2, " + at +
            "; add.s64 %rd1, %rd1, %rd2; st.shared.b16 [%rd1], %h1;\n";
  return body;
}

constexpr const char *kMemory = ".shared .align 1024 .b8 sa[8192]; .shared .align 1024 .b8 sb[8192];\n";
constexpr uint64_t kLayout = uint64_t(1) << 62;
uint64_t strides(uint64_t leading, uint64_t stride) { return kLayout | leading / 16 << 16 | stride / 16 << 32; }
std::string descriptor(const std::string &to, const std::string &at, uint64_t leading, uint64_t stride) {
  return "mov.u64 " + to + ", " + at + "; shr.u64 " + to + ", " + to + ", 4; or.b64 " + to + ", " + to + ", " +
         number(strides(leading, stride)) + ";\n";
}

/// A[i][k] = i + k to sa, for 64 rows.
std::string storeA() {
  return "setp.gt.u32 %p1, %t, 63; @%p1 bra NOA;\n" +
         storeRow("sa", 16,
                  [](unsigned k) {
                    return "mov.b32 %r4, " + number(k) + "; cvt.rn.f32.u32 %f3, %r4; add.rn.f32 %f1, %f2, %f3;";
                  }) +
         "NOA:\n";
}
/// B[k][n] = (k == n), 16 rows of k or, not transposed, 8 of n, to sb.
std::string storeB(bool transposed) {
  return "setp.ge.u32 %p1, %t, " + number(transposed ? 16 : 8) + "; @%p1 bra NOB;\n" +
         storeRow("sb", transposed ? 8 : 16,
                  [](unsigned e) {
                    return "setp.eq.u32 %p2, %t, " + number(e) + "; selp.b32 %f1, 0f3F800000, 0f00000000, %p2;";
                  }) +
         "NOB:\n";
}
const char *const kSums = "{%f10, %f11, %f12, %f13}";
std::string product(const std::string &left, bool transposed, const char *scale = "0", bool leftInMemory = true,
                    bool leftTransposed = false) {
  return "setp.ne.b32 %p3, " + std::string(scale) + ", 0;\n" + "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 " +
         kSums + ", " + left + ", %rd11, %p3, 1, 1, " + (leftInMemory ? leftTransposed ? "1, " : "0, " : "") +
         (transposed ? "1" : "0") + ";\n";
}
const char *const kPublish = "fence.proxy.async; bar.sync 0; wgmma.fence.sync.aligned;\n";
const char *const kFinish = "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;\n";
const char *const kStore = "mul.wide.u32 %rd20, %t, 16; add.s64 %rd20, %out, %rd20;\n"
                           "st.global.v4.b32 [%rd20], {%f10, %f11, %f12, %f13};\n";
/// Sum j of thread t: row and column.
unsigned rowOf(unsigned t, unsigned j) { return t / 32 * 16 + t % 32 / 4 + j / 2 * 8; }
unsigned columnOf(unsigned t, unsigned j) { return t % 4 * 2 + j % 2; }

std::vector<float> runProduct(const std::string &body, LaunchOptions options = {}) {
  return valuesOf<float>(runBody(kMemory + body + kStore, std::vector<uint8_t>(64, 0), 128 * 16, 128, 1, options));
}
std::string errorOfProduct(const std::string &body) { return errorOf(kMemory + body, 128); }

std::string setUp(bool transposed) {
  return storeA() + storeB(transposed) + descriptor("%rd10", "sa", 16, 1024) + descriptor("%rd11", "sb", 8192, 1024);
}

TEST(PtxWarpgroup, ProductsOfMemory) {
  for (bool transposed : {false, true})
    for (bool lazy : {false, true}) {
      LaunchOptions options;
      options.lazy = lazy;
      std::vector<float> out =
          runProduct(setUp(transposed) + kPublish + product("%rd10", transposed) + kFinish, options);
      for (unsigned t = 0; t < 128; ++t)
        for (unsigned j = 0; j < 4; ++j)
          ASSERT_EQ(out[4 * t + j], rowOf(t, j) + columnOf(t, j)) << t << " " << j << " " << transposed;
    }
}

TEST(PtxWarpgroup, ProductsOfATransposedLeftSide) {
  std::string turned =
      "setp.gt.u32 %p1, %t, 15; @%p1 bra NOA;\n" +
      storeRow("sa", 64,
               [](unsigned row) {
                 return "mov.b32 %r4, " + number(row) + "; cvt.rn.f32.u32 %f3, %r4; add.rn.f32 %f1, %f2, %f3;";
               }) +
      "NOA:\n";
  std::vector<float> out =
      runProduct(turned + storeB(true) + descriptor("%rd10", "sa", 8192, 1024) + descriptor("%rd11", "sb", 8192, 1024) +
                 kPublish + product("%rd10", true, "0", true, true) + kFinish);
  for (unsigned t = 0; t < 128; ++t)
    for (unsigned j = 0; j < 4; ++j)
      ASSERT_EQ(out[4 * t + j], rowOf(t, j) + columnOf(t, j)) << t << " " << j;
}

TEST(PtxWarpgroup, ProductsAddUp) {
  std::string sums = "mov.b32 %f10, 0f3F800000; mov.b32 %f11, %f10; mov.b32 %f12, %f10; mov.b32 %f13, %f10;\n";
  std::vector<float> out =
      runProduct(setUp(true) + sums + kPublish + product("%rd10", true, "1") + product("%rd10", true, "1") + kFinish);
  for (unsigned t = 0; t < 128; ++t)
    for (unsigned j = 0; j < 4; ++j)
      ASSERT_EQ(out[4 * t + j], 1 + 2 * (rowOf(t, j) + columnOf(t, j)));
}

// A in registers: a0, a1 rows l/4 and + 8, columns 2 (l%4) and the next; a2, a3 the same 8 columns further.
std::string registersOfA() {
  std::string body = "and.b32 %r5, %t, 31; shr.u32 %r6, %r5, 2; shr.u32 %r7, %t, 5; mad.lo.s32 %r6, %r7, 16, %r6;\n"
                     "and.b32 %r7, %t, 3; shl.b32 %r7, %r7, 1;\n";
  for (unsigned r = 0; r < 4; ++r) {
    for (unsigned e = 0; e < 2; ++e)
      body += "add.s32 %r8, %r6, %r7; add.s32 %r8, %r8, " + number(r % 2 * 8 + r / 2 * 8 + e) +
              "; cvt.rn.f32.u32 %f1, %r8; cvt.rn.bf16.f32 %h" + number(1 + e) + ", %f1;\n";
    body += "mov.b32 %r" + number(20 + r) + ", {%h1, %h2};\n";
  }
  return body;
}
const char *const kLeft = "{%r20, %r21, %r22, %r23}";

TEST(PtxWarpgroup, ProductsOfRegisters) {
  std::string body = setUp(true) + registersOfA() + kPublish + product(kLeft, true, "0", false);
  std::vector<float> out = runProduct(body + kFinish);
  for (unsigned t = 0; t < 128; ++t)
    for (unsigned j = 0; j < 4; ++j)
      ASSERT_EQ(out[4 * t + j], rowOf(t, j) + columnOf(t, j));
}

TEST(PtxWarpgroup, MissingOrder) {
  SKIP_ON_CARD();
  std::string ready = setUp(false);
  auto reports = [](const std::string &body, const char *part) {
    std::string text = errorOfProduct(body);
    EXPECT_NE(text.find(part), std::string::npos) << text << " instead of " << part;
  };
  reports(ready + "bar.sync 0; wgmma.fence.sync.aligned;" + product("%rd10", false) + kFinish, "fence.proxy.async");
  reports(ready + "bar.sync 0; fence.proxy.async; wgmma.fence.sync.aligned;" + product("%rd10", false) + kFinish,
          "fence.proxy.async");
  reports(ready + "fence.proxy.async; bar.sync 0;" + product("%rd10", false) + kFinish, "has no wgmma.fence");
  reports(ready + kPublish + product("%rd10", false) + "wgmma.commit_group.sync.aligned;", "products are under way");
  reports(ready + "mov.u64 %rd10, 0;" + kPublish + product("%rd10", false) + kFinish, "another layout");
}

// Registers and memory belong to a product until it is waited for (9.7.15.7.1); a card may or may not show it.
TEST(PtxWarpgroup, UnderWay) {
  SKIP_ON_CARD();
  const std::string commit = "wgmma.commit_group.sync.aligned;\n", isUsed = "uses a register of a product";
  std::string ready = setUp(true) + registersOfA() + kPublish, started = ready + product(kLeft, true, "0", false);
  auto reports = [](const std::string &body, const std::string &part) {
    std::string text = errorOfProduct(body);
    if (part.empty())
      EXPECT_EQ(text, "");
    else
      EXPECT_NE(text.find(part), std::string::npos) << text << " instead of " << part;
  };
  reports(started + commit + "mov.b32 %f20, %f10;\n" + kFinish, isUsed);       // a sum is read
  reports(started + "mov.b32 %f13, 0f00000000;\n" + kFinish, isUsed);          // or written
  reports(started + commit + "mov.b32 %r23, 0;\n" + kFinish, isUsed);          // part of A is
  reports(started + commit + "mov.b32 {%h1, %h2}, %r20;\n" + kFinish, isUsed); // or is read
  reports(started + kFinish + "mov.b32 %f20, %f10; mov.b32 %r23, 0;\n", "");
  // A product may have what another one has, of the same kind.
  reports(started + product(kLeft, true, "1", false) + kFinish, "");
  reports(started + product("{%f10, %f11, %f12, %f13}", true, "1", false) + kFinish, isUsed);
  // Of two groups the older one is done.
  std::string second =
                  "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f14, %f15, %f16, %f17}, %rd10, %rd11, %p3, "
                  "1, 1, 0, 1;\n",
              both = started + commit + second + commit + "wgmma.wait_group.sync.aligned 1;\n";
  reports(both + "mov.b32 %f20, %f10; mov.b32 %r20, 0;\n" + kFinish, "");
  reports(both + "mov.b32 %f20, %f14;\n" + kFinish, isUsed);

  std::string barrier = ".shared .align 8 .b8 full[8]; mbarrier.init.shared.b64 [full], 128;\n";
  auto copy = [](const char *to, unsigned thread) {
    return "setp.eq.u32 %p4, %t, " + number(thread) +
           "; @%p4 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [" + to +
           "], [%in], 16, [full];\n";
  };
  const std::string isRead = "overwrites shared memory that a product of warp ";
  // B's first row is read by all, A's row 64 by none.
  reports(barrier + started + commit + copy("sb", 0) + kFinish, isRead);
  reports(barrier + started + "st.shared.b16 [sb], %h1;\n" + kFinish, isRead);
  reports(barrier + ready + product("%rd10", true) + commit + copy("sa", 0) + kFinish, isRead + "0");
  reports(started + "cp.async.cg.shared.global [sb], [%in], 16;\n" + kFinish, isRead);
  std::string text = errorOfProduct(barrier + ready + product("%rd10", true) + copy("sb+2048", 0) + kFinish);
  EXPECT_EQ(text.find(isRead), std::string::npos) << text;
}

TEST(PtxWarpgroup, WarpsAgree) {
  SKIP_ON_CARD();
  // The second warp's B begins elsewhere.
  std::string other = "shr.u32 %r30, %t, 5; setp.eq.u32 %p5, %r30, 1; @%p5 add.s64 %rd11, %rd11, 2;\n";
  std::string text = errorOfProduct(setUp(false) + other + kPublish + product("%rd10", false) + kFinish);
  EXPECT_NE(text.find("differs from what another warp of the warpgroup multiplies"), std::string::npos) << text;
}

// 384 threads begin with 168 registers each; two warpgroups of three then have 240, or 232 beside one of 40.
TEST(PtxWarpgroup, RegistersOfABlock) {
  SKIP_ON_CARD();
  auto errorFor = [](unsigned few, unsigned many, const char *bounds) {
    std::string body = "setp.lt.u32 %p1, %t, 128; @%p1 bra FEW; setmaxnreg.inc.sync.aligned.u32 " + number(many) +
                       "; bra DONE;\nFEW: setmaxnreg.dec.sync.aligned.u32 " + number(few) + ";\nDONE:";
    return errorOf(body, 384, {}, bounds);
  };
  const char *const bounds = ".maxntid 384, 1, 1 .minnctapersm 1";
  EXPECT_EQ(errorFor(40, 232, bounds), "");
  EXPECT_EQ(errorFor(24, 240, bounds), "");
  EXPECT_EQ(errorFor(40, 232, ".reqntid 384 .maxnreg 168"), "");
  EXPECT_NE(errorFor(40, 240, bounds).find("waits for 2304 registers"), std::string::npos) << errorFor(40, 240, bounds);
  EXPECT_NE(errorFor(176, 232, bounds).find("asks for 176 registers of 168"), std::string::npos);
  EXPECT_NE(errorFor(40, 160, bounds).find("asks for 160 registers of 168"), std::string::npos);
  EXPECT_NE(errorFor(20, 232, bounds).find("asks for 20 registers"), std::string::npos);
  EXPECT_NE(errorFor(40, 232, ".maxntid 384, 1, 1").find("is ignored by ptxas"), std::string::npos);
  EXPECT_NE(errorFor(40, 232, "").find("is ignored by ptxas"), std::string::npos);
}

TEST(PtxWarpgroup, OtherTargets) {
  SKIP_ON_CARD();
  auto errorFor = [](std::string text, const char *target) -> std::string {
    text.replace(text.find("sm_90a"), 6, target);
    try {
      parse(text, [](const std::vector<uint8_t> &, uint32_t) { return uint64_t(0); });
    } catch (const Error &error) {
      return error.what();
    }
    return "";
  };
  std::string fence = kernelText("wgmma.fence.sync.aligned;"),
              fewer = kernelText("setmaxnreg.dec.sync.aligned.u32 24;");
  std::string copy =
      kernelText("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%out], [%in], 16, [%out];");
  EXPECT_EQ(errorFor(fence, "sm_90a") + errorFor(fewer, "sm_90a") + errorFor(copy, "sm_90"), "");
  for (const char *target : {"sm_80", "sm_90", "sm_100a"}) {
    EXPECT_NE(errorFor(fence, target).find("is no instruction of"), std::string::npos);
    EXPECT_NE(errorFor(fewer, target).find("is no instruction of"), std::string::npos);
  }
  EXPECT_NE(errorFor(copy, "sm_80").find("is no instruction of"), std::string::npos);
}

//===----------------------------------------------------------------------===//
// mbarriers and bulk copies
//===----------------------------------------------------------------------===//

/// Warp 0 copies 16 bytes four times, from %in on, into one place; warp 1 adds what comes.
std::string ring(const std::string &waitFull, const std::string &release) {
  return ".shared .align 16 .b8 s[16]; .shared .align 8 .b8 full[8]; .shared .align 8 .b8 empty[8];\n"
         "setp.ne.u32 %p1, %t, 0; @%p1 bra INITED;\n"
         "mbarrier.init.shared.b64 [full], 1; mbarrier.init.shared.b64 [empty], 32; "
         "fence.mbarrier_init.release.cluster;\n"
         "INITED:\nbar.sync 0;\nmov.b32 %r1, 0; mov.b32 %r9, 0; mov.b64 %rd1, %in;\n"
         "setp.gt.u32 %p2, %t, 31; @%p2 bra CONSUMER;\nPRODUCE:\n"
         "and.b32 %r2, %r1, 1; xor.b32 %r3, %r2, 1;\nWAITE:\n"
         "mbarrier.try_wait.parity.shared.b64 %p3, [empty], %r3; @!%p3 bra WAITE;\n"
         "@%p1 bra ISSUED;\nmbarrier.arrive.expect_tx.shared.b64 _, [full], 16;\n"
         "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [s], [%rd1], 16, [full];\nISSUED:\n"
         "add.s64 %rd1, %rd1, 16; add.s32 %r1, %r1, 1; setp.lt.u32 %p4, %r1, 4; @%p4 bra PRODUCE; bra END;\n"
         "CONSUMER:\nand.b32 %r2, %r1, 1;\nWAITF:\n" +
         waitFull + "\nld.shared.b32 %r4, [s]; add.s32 %r9, %r9, %r4;\n" + release +
         "\nadd.s32 %r1, %r1, 1; setp.lt.u32 %p4, %r1, 4; @%p4 bra CONSUMER;\nst.global.b32 [%out], %r9;\nEND:\n";
}
const char *const kWaitFull = "mbarrier.try_wait.parity.shared.b64 %p3, [full], %r2; @!%p3 bra WAITF;";
const char *const kRelease = "mbarrier.arrive.shared.b64 _, [empty];";

TEST(PtxPhases, RingOfCopies) {
  std::vector<uint8_t> in = bytesOf<uint32_t>({1, 0, 0, 0, 20, 0, 0, 0, 300, 0, 0, 0, 4000, 0, 0, 0});
  for (uint64_t seed = 1; seed < 8; ++seed)
    for (bool lazy : {false, true}) {
      LaunchOptions options;
      options.seed = seed, options.lazy = lazy;
      EXPECT_EQ(valuesOf<uint32_t>(runBody(ring(kWaitFull, kRelease), in, 4, 64, 1, options))[0], 4321u);
    }
  if (onCard())
    return;                                                     // what follows reads too early, or hangs
  EXPECT_THROW(runBody(ring("", kRelease), in, 4, 64), Error);  // reads what is not there yet
  EXPECT_THROW(runBody(ring(kWaitFull, ""), in, 4, 64), Error); // the producer waits for ever
  std::string twice = std::string(kRelease) + kRelease;
  EXPECT_THROW(runBody(ring(kWaitFull, twice), in, 4, 64), Error); // more arrivals than expected
}

TEST(PtxPhases, Refusals) {
  SKIP_ON_CARD();
  auto reports = [](const std::string &body, const char *part) {
    std::string text = errorOf(".shared .align 16 .b8 s[64];\nmbarrier.init.shared.b64 [s+32], 1;\n" + body, 1);
    EXPECT_NE(text.find(part), std::string::npos) << text << " instead of " << part;
  };
  std::string copy = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes ";
  reports("mbarrier.arrive.shared.b64 _, [s+8];", "holds no mbarrier");
  reports("mbarrier.init.shared.b64 [s], 0;", "expects 0 arrivals");
  reports(copy + "[s], [%in], 8, [s+32];", "multiples of 16");
  reports(copy + "[s], [%in], 16, [s+32];", "a bulk copy is under way");
  reports(copy + "[s+56], [%in], 16, [s+32];", "multiples of 16");
  reports(copy + "[s+64], [%in], 16, [s+32];", "out of bounds in shared memory");
  reports("st.shared.b32 [s], 1;" + copy + "[s], [%in], 16, [s+32];", "overwrites shared memory of which warp 0");
  reports("st.shared.b32 [s], 1; fence.proxy.async;" + copy + "[s], [%in], 16, [s+32];", "a bulk copy is under way");
  reports("W: mbarrier.try_wait.parity.shared.b64 %p1, [s+32], 0; @!%p1 bra W;", "waits at the mbarrier");
}

} // namespace
