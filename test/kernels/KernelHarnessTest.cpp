// The harness must notice what it is there to notice.
#include "test/kernels/KernelHarness.h"

#include "gtest/gtest.h"
#include <cmath>

using namespace attn::test;

namespace {

// Adds 1 to %a into %o, `count` elements from `first`.
std::string addOne(const char *first, const char *count) {
  return std::string(R"(func.func @k(%a: memref<?xf32>, %o: memref<?xf32>) attributes {attn.kernel} {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %one = arith.constant 1.0 : f32
    %n = memref.dim %a, %c0 : memref<?xf32>
    %f = arith.constant )") +
         first + R"( : index
    %s = arith.constant )" +
         count + R"( : index
    %m = arith.addi %n, %s : index
    scf.parallel (%i) = (%f) to (%m) step (%c1) {
      %x = memref.load %a[%i] : memref<?xf32>
      %y = arith.addf %x, %one : f32
      memref.store %y, %o[%i] : memref<?xf32>
    }
    return
  })";
}

class KernelHarnessTest : public testing::TestWithParam<const char *> {};

TEST_P(KernelHarnessTest, CallsInPieces) {
  if (!hostRuns(GetParam()))
    GTEST_SKIP() << "no " << GetParam();
  auto kernel = Kernel::compileText(GetParam(), addOne("0", "0"));
  ASSERT_TRUE(kernel);
  EXPECT_NE(kernel->assembly().find("addss"), std::string::npos) << kernel->assembly();
  for (int64_t n : {0, 1, 7, 1024})
    for (int64_t pieces : {1, 3, 16}) {
      Buffer in({n}), out({n});
      for (int64_t i = 0; i < n; ++i)
        in[i] = i;
      ASSERT_TRUE(kernel->call({&in, &out}, pieces));
      for (int64_t i = 0; i < n; ++i)
        EXPECT_EQ(out[i], i + 1);
      EXPECT_TRUE(out.guardIntact());
    }
}

TEST(KernelGuardTest, SeesWhatIsNotWritten) {
  auto kernel = Kernel::compileText("portable", addOne("1", "0"));
  ASSERT_TRUE(kernel);
  Buffer in({3}, std::vector<float>{1, 2, 3}), out({3});
  ASSERT_TRUE(kernel->call({&in, &out}));
  EXPECT_TRUE(std::isnan(out[0]));
  EXPECT_EQ(out[2], 4);
}

TEST(KernelGuardTest, SeesAWriteBeforeTheStart) {
  auto kernel = Kernel::compileText("portable", addOne("-1", "0"));
  ASSERT_TRUE(kernel);
  Buffer in({3}, std::vector<float>{1, 2, 3}), out({3});
  in.data()[-1] = 5;
  ASSERT_TRUE(kernel->call({&in, &out}));
  EXPECT_FALSE(out.guardIntact());
}

TEST(KernelGuardTest, FaultsBeyondTheEnd) {
  auto kernel = Kernel::compileText("portable", addOne("0", "1"));
  ASSERT_TRUE(kernel);
  Buffer in({3}), out({3});
  EXPECT_DEATH(kernel->call({&in, &out}), "");
}

TEST(KernelGuardTest, RefusesOtherArguments) {
  auto kernel = Kernel::compileText("portable", addOne("0", "0"));
  ASSERT_TRUE(kernel);
  Buffer in({3}), square({3, 3});
  EXPECT_FALSE(kernel->call({&in}));
  EXPECT_FALSE(kernel->call({&in, &square}));
}

INSTANTIATE_TEST_SUITE_P(Isas, KernelHarnessTest, testing::ValuesIn(kIsas));

} // namespace
