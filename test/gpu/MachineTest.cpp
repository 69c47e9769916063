// Scheduling, divergence, and what the interpreter must report.

#include "test/gpu/PtxHarness.h"

using namespace ptx;
using namespace ptx::test;

namespace {

::testing::AssertionResult reports(const std::string &message, const char *part) {
  if (message.find(part) != std::string::npos)
    return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "got '" << message << "', expected '" << part << "'";
}

TEST(PtxMachine, UnknownThings) {
  EXPECT_TRUE(reports(errorOf("frobnicate.b32 %r1, 2;"), "unknown instruction 'frobnicate.b32'"));
  EXPECT_TRUE(reports(errorOf("add.rz.f32 %f1, %f2, %f3;"), "unknown instruction 'add.rz.f32'"));
  EXPECT_TRUE(reports(errorOf("mov.b32 %r1, %nosuch;"), "unknown name '%nosuch'"));
  EXPECT_TRUE(reports(errorOf("bra NOWHERE;"), "no label"));
}

TEST(PtxMachine, BadMemory) {
  EXPECT_TRUE(reports(errorOf("ld.global.b32 %r1, [%in+100];"), "out of bounds in global memory"));
  EXPECT_TRUE(reports(errorOf("ld.global.b32 %r1, [%in+62];"), "misaligned"));
  EXPECT_TRUE(reports(errorOf("st.global.b32 [%out-4], 1;"), "out of bounds in global memory"));
  EXPECT_TRUE(reports(errorOf(".shared .align 4 .b8 s[8]; st.shared.b32 [s+8], 1;"), "out of bounds in shared memory"));
  EXPECT_TRUE(
      reports(errorOf(".shared .align 4 .b8 s[8]; st.shared.b32 [s], 1; ld.shared.b32 %r1, [s+4];"), "never written"));
  EXPECT_TRUE(reports(errorOf(".local .align 4 .b8 l[8]; ld.local.b32 %r1, [l+8];"), "out of bounds in local memory"));
}

TEST(PtxMachine, Limits) {
  EXPECT_TRUE(reports(errorOf(".shared .align 16 .b8 s[49168];"), "declares 49168 bytes of shared memory"));
  EXPECT_EQ(errorOf(".shared .align 16 .b8 s[49152];"), "");
  auto errorFor = [](const char *version, unsigned bytes) -> std::string {
    std::string head = std::string(".version ") + version + "\n.target sm_90a\n.address_size 64\n";
    try {
      parse(head + ".visible .entry k(.param .align 8 .b8 a[" + std::to_string(bytes) + "])\n{\nret;\n}\n",
            [](const std::vector<uint8_t> &, uint32_t) { return uint64_t(0); });
    } catch (const Error &error) {
      return error.what();
    }
    return "";
  };
  EXPECT_TRUE(reports(errorFor("8.0", 4360), "have 4360 bytes, of which there are at most 4352"));
  EXPECT_EQ(errorFor("8.0", 4352) + errorFor("8.1", 4360), "");
  EXPECT_TRUE(reports(errorFor("8.1", 32768), "at most 32764"));
}

TEST(PtxMachine, DivergentBarrier) {
  EXPECT_TRUE(reports(errorOf("setp.lt.u32 %p1, %t, 16; @%p1 bra A; bar.sync 0; bra B;\nA:\nbar.sync 1;\nB:", 32),
                      "not executed by all lanes"));
  EXPECT_TRUE(reports(errorOf("setp.lt.u32 %p1, %t, 32; @%p1 ret; bar.sync 0;", 64), "deadlock"));
}

TEST(PtxMachine, ShuffleOfSomeLanes) {
  EXPECT_TRUE(
      reports(errorOf("setp.lt.u32 %p1, %t, 16; @%p1 shfl.sync.bfly.b32 %r1, %t, 1, 31, -1;", 32), "member mask"));
}

TEST(PtxMachine, Loops) {
  // Each lane sums 0..lane: lanes leave the loop at different times.
  std::string body = "mov.b32 %r1, 0; mov.b32 %r2, 0;\n$L1:\nadd.s32 %r2, %r2, %r1; add.s32 %r1, %r1, 1;\n"
                     "setp.le.u32 %p1, %r1, %t; @%p1 bra $L1;\n"
                     "mul.wide.u32 %rd1, %t, 4; add.s64 %rd2, %out, %rd1; st.global.b32 [%rd2], %r2;";
  std::vector<uint32_t> out = valuesOf<uint32_t>(runBody(body, {0}, 256, 64));
  for (uint32_t t = 0; t < 64; ++t)
    EXPECT_EQ(out[t], t * (t + 1) / 2);
}

TEST(PtxMachine, BarrierOrdersSharedMemory) {
  std::string body =
      ".shared .align 4 .b8 s[1024];\nmul.wide.u32 %rd1, %t, 4; mov.u64 %rd2, s; add.s64 %rd3, %rd2, %rd1;\n"
      "st.shared.b32 [%rd3], %t; bar.sync 0; xor.b32 %r1, %t, 255; mul.wide.u32 %rd4, %r1, 4; add.s64 %rd5, %rd2, "
      "%rd4;\n"
      "ld.shared.b32 %r2, [%rd5]; add.s64 %rd6, %out, %rd1; st.global.b32 [%rd6], %r2;";
  for (uint64_t seed = 1; seed < 6; ++seed) {
    LaunchOptions options;
    options.seed = seed;
    std::vector<uint32_t> out = valuesOf<uint32_t>(runBody(body, {0}, 1024, 256, 1, options));
    for (uint32_t t = 0; t < 256; ++t)
      EXPECT_EQ(out[t], t ^ 255);
  }
  // Without the barrier every seed reads what is not there yet, or was stored by chance.
  size_t barrier = body.find("bar.sync 0;");
  std::string racy = body.substr(0, barrier) + body.substr(barrier + 11);
  for (uint64_t seed = 1; seed < 6; ++seed) {
    LaunchOptions options;
    options.seed = seed;
    EXPECT_THROW(runBody(racy, {0}, 1024, 256, 1, options), Error);
  }
}

// Warp 0 stores, warp 1 loads, whatever came first by chance.
TEST(PtxMachine, SharedMemoryRaces) {
  auto errorFor = [](const std::string &store, const std::string &load, uint64_t seed) {
    LaunchOptions options;
    options.seed = seed;
    return errorOf(
        ".shared .align 8 .b8 m[8]; .shared .align 4 .b8 s[4];\n"
        "setp.eq.u32 %p3, %t, 0; @%p3 st.shared.b32 [s], 0; @%p3 mbarrier.init.shared.b64 [m], 32; bar.sync 0;\n"
        "setp.gt.u32 %p1, %t, 31; @%p1 bra SECOND;\n" +
            store + "\nbra END;\nSECOND:\n" + load + "\nEND:",
        64, options);
  };
  std::string store = "@%p3 st.shared.b32 [s], 1;", load = "ld.shared.b32 %r1, [s];";
  std::string arrive = "mbarrier.arrive.shared.b64 _, [m];",
              wait = "W: mbarrier.try_wait.parity.shared.b64 %p2, [m], 0; @!%p2 bra W;";
  for (uint64_t seed = 1; seed < 6; ++seed) {
    EXPECT_TRUE(reports(errorFor(store, load, seed), "races with warp"));
    EXPECT_TRUE(reports(errorFor(store, "st.shared.b32 [s], 2;", seed), "races with warp"));
    EXPECT_EQ(errorFor("@%p3 st.shared.b32 [s], 0;", "st.shared.b32 [s], 0;", seed), ""); // what is there already
    EXPECT_EQ(errorFor(store + "bar.sync 1, 64;", "bar.sync 1, 64;" + load, seed), "");
    EXPECT_EQ(errorFor(store + "bar.arrive 1, 64;", "bar.sync 1, 64;" + load, seed), "");
    EXPECT_EQ(errorFor(store + arrive, wait + load, seed), "");
    // The barrier comes too early, or too late.
    EXPECT_TRUE(reports(errorFor(arrive + store, wait + load, seed), "races with warp"));
    EXPECT_TRUE(reports(errorFor("bar.sync 1, 64;" + store, "bar.sync 1, 64;" + load, seed), "races with warp"));
    EXPECT_TRUE(reports(errorFor(store + "bar.sync 1, 64;", load + "bar.sync 1, 64;", seed), "races with warp"));
  }
}

TEST(PtxMachine, GridWideBarrier) {
  // 64 blocks count themselves and wait for the others.
  std::string body =
      "ld.global.b32 %r9, [%in]; atom.global.add.u32 %r1, [%in], 1;\n$W:\nld.volatile.global.b32 %r2, [%in];\n"
      "setp.lt.u32 %p1, %r2, 64; @%p1 bra $W;\nmov.u32 %r3, %ctaid.x; mul.wide.u32 %rd1, %r3, 4;\n"
      "add.s64 %rd2, %out, %rd1; st.global.b32 [%rd2], %r2;";
  LaunchOptions options;
  options.cooperative = true;
  std::vector<uint32_t> out = valuesOf<uint32_t>(runBody(body, bytesOf<uint32_t>({0}), 256, 1, 64, options));
  EXPECT_EQ(out, std::vector<uint32_t>(64, 64));
}

TEST(PtxMachine, GridWideBarrierOrdersGlobalMemory) {
  // Each of 8 blocks of 64 threads writes, counts itself, waits for the others and reads what another one wrote.
  auto body = [](const char *first, const char *count, const char *look, const char *last) {
    return std::string(
               "mov.u32 %r3, %ctaid.x; mul.lo.s32 %r4, %r3, 64; add.s32 %r4, %r4, %t; mul.wide.u32 %rd1, %r4, 4;\n"
               "add.s64 %rd2, %out, %rd1; st.global.b32 [%rd2], %r4;\n") +
           first + "\nsetp.ne.u32 %p2, %t, 0; @%p2 bra $D;\n" + count + "\n$W:\n" + look +
           "\nsetp.lt.u32 %p1, %r2, 8; @%p1 bra $W;\n$D:\n" + last +
           "\nxor.b32 %r5, %r4, 511; mul.wide.u32 %rd3, %r5, 4; add.s64 %rd4, %out, %rd3;\n"
           "ld.global.b32 %r6, [%rd4]; st.global.b32 [%rd2+2048], %r6;";
  };
  const char *barrier = "bar.sync 0;", *release = "red.release.gpu.global.add.u32 [%in], 1;",
             *relaxed = "red.relaxed.gpu.global.add.u32 [%in], 1;", *acquire = "ld.acquire.gpu.global.b32 %r2, [%in];",
             *look = "ld.relaxed.gpu.global.b32 %r2, [%in];";
  auto outcome = [](const std::string &text) -> std::string {
    LaunchOptions options;
    options.cooperative = true;
    try {
      std::vector<uint32_t> out = valuesOf<uint32_t>(runBody(text, bytesOf<uint32_t>({0}), 4096, 64, 8, options));
      for (uint32_t n = 0; n < 512; ++n)
        EXPECT_EQ(out[512 + n], n ^ 511);
    } catch (const Error &error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(outcome(body(barrier, release, acquire, barrier)), "");
  std::string fenced = std::string("fence.acq_rel.gpu; ") + relaxed;
  EXPECT_EQ(outcome(body(barrier, fenced.c_str(), acquire, barrier)), "");
  std::string after = std::string("fence.acq_rel.gpu; ") + barrier;
  EXPECT_EQ(outcome(body(barrier, release, look, after.c_str())), "");
  // Each part is needed, whether the values happen to be right or not.
  for (const std::string &racy :
       {body("", release, acquire, barrier), body(barrier, relaxed, acquire, barrier),
        body(barrier, release, look, barrier), body(barrier, release, acquire, ""),
        body(barrier, "fence.acq_rel.cta; red.relaxed.gpu.global.add.u32 [%in], 1;", acquire, barrier)})
    EXPECT_TRUE(reports(outcome(racy), "races with warp"));
}

TEST(PtxMachine, LazyCopiesShowRaces) {
  std::string start =
      ".shared .align 16 .b8 s[16];\ncp.async.ca.shared.global [s], [%in], 16; cp.async.commit_group;\n";
  std::string end = "ld.shared.b32 %r1, [s]; st.global.b32 [%out], %r1;";
  std::vector<uint8_t> in = bytesOf<uint32_t>({42, 0, 0, 0});
  EXPECT_EQ(valuesOf<uint32_t>(runBody(start + "cp.async.wait_group 0;" + end, in, 4))[0], 42u);
  EXPECT_THROW(runBody(start + end, in, 4), Error);
  EXPECT_THROW(runBody(start + "cp.async.wait_group 1;" + end, in, 4), Error);
  LaunchOptions eager;
  eager.lazy = false;
  EXPECT_EQ(valuesOf<uint32_t>(runBody(start + end, in, 4, 1, 1, eager))[0], 42u);
  // The rest of a short copy is zero.
  EXPECT_EQ(
      valuesOf<uint32_t>(runBody(start.substr(0, start.find("16; cp")) + "16, 0; cp.async.wait_all;" + end, in, 4))[0],
      0u);
}

// cudaGraphSetConditional, which the driver provides: a launch that belongs to a graph sets the graph's conditions.
TEST(PtxMachine, ConditionOfAGraph) {
  const std::string call = "{ .param .b64 a0; st.param.b64 [a0], 7; .param .b32 a1; st.param.b32 [a1], %t;\n"
                           "call.uni cudaGraphSetConditional, (a0, a1); }\nst.global.u32 [%out], %t;";
  const std::string declared = ".extern .func cudaGraphSetConditional(.param .b64 h, .param .b32 v);\n";
  auto runIt = [&](const std::string &front, const LaunchOptions &options) -> std::string {
    GlobalMemory memory;
    try {
      std::string text = kernelText(call);
      text.insert(text.find(".visible"), front);
      Module module = parse(text, [](const std::vector<uint8_t> &, uint32_t) { return uint64_t(0); });
      std::vector<uint8_t> parameters(16);
      uint64_t out = memory.allocate(8);
      memcpy(&parameters[8], &out, 8);
      Launch launch{module.kernels.at("k"), memory, {1, 1, 1}, {2, 1, 1}, parameters, 0, options, 0};
      run(launch);
    } catch (const Error &error) {
      return error.what();
    }
    return "";
  };
  std::vector<uint32_t> values;
  LaunchOptions options;
  options.setConditional = [&](uint64_t handle, uint32_t value) {
    values.push_back(value);
    return handle == 7;
  };
  EXPECT_EQ(runIt(declared, options), "");
  EXPECT_EQ(values, (std::vector<uint32_t>{0, 1}));
  EXPECT_TRUE(reports(runIt(declared, LaunchOptions()), "out of bounds of the graph that is running"));
  options.setConditional = [](uint64_t, uint32_t) { return false; };
  EXPECT_TRUE(reports(runIt(declared, options), "out of bounds of the graph that is running"));
  EXPECT_TRUE(reports(runIt("", options), "which is not declared"));
  EXPECT_TRUE(reports(runIt(".extern .func other(.param .b64 h);\n", options), "unknown function 'other'"));
}

TEST(PtxMachine, EndlessLoop) {
  LaunchOptions options;
  options.maxInstructions = 10000;
  EXPECT_TRUE(reports(errorOf("$L:\nbra $L;", 32, options), "too many instructions"));
}

} // namespace
