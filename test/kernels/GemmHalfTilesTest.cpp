// Products of f32 by weights in f16 on tiles of bf16, under the bound of those in f32.
#include "test/kernels/GemmHarness.h"
#include "test/kernels/TileEmulator.h"

#include "gtest/gtest.h"
#include <limits>

using namespace mlir;
using namespace attn;
using namespace attn::test;

namespace {

constexpr const char *kIsa = "amx";

class GemmHalfTilesTest : public testing::Test {
protected:
  void SetUp() override {
    if (!hostRuns("avx512bf16"))
      GTEST_SKIP() << "this machine has no avx512bf16";
    if (!hostRuns(kIsa))
      emulateTiles();
  }
  static Problem problemOf(int64_t k, int64_t n, int64_t m = ShapedType::kDynamic) {
    Problem problem{k, n, m};
    problem.storage = PanelStorage::F16;
    return problem;
  }
  static void check(const Problem &problem, std::vector<int64_t> rows) {
    auto kernel = compileGemm(kIsa, problem);
    ASSERT_TRUE(kernel);
    EXPECT_TRUE(StringRef(kernel->assembly()).contains("tdpbf16ps"));
    for (int64_t m : rows)
      EXPECT_EQ(checkGemm(*kernel, kIsa, problem, m), "");
  }
};

TEST_F(GemmHalfTilesTest, EveryTail) {
  // Depths around a pair, a register and a tile; columns around a register and a panel.
  for (int64_t k : {1, 2, 15, 16, 17, 31, 32, 33, 64, 100})
    check(problemOf(k, 20), {0, 1, 16, 33});
  for (int64_t n : {1, 16, 48, 49, 100})
    check(problemOf(70, n), {17, 40});
  check(problemOf(70, 100), {0, 1, 8, 9, 15, 16, 17, 31, 32, 33, 127, 128, 129, 300});
  for (int64_t m : {16, 33, 130})
    check(problemOf(33, 50, m), {m});
}

TEST_F(GemmHalfTilesTest, EpilogueAndNextPanels) {
  const Epilogue residual{"%x = arith.addf %sum, %p0 : f32\n %y = arith.addf %p1, %x : f32\n linalg.yield %y : f32",
                          {EpilogueOperand::RowVector, EpilogueOperand::Full},
                          [](double sum, double p0, double p1) { return sum + p0 + p1; },
                          1,
                          0x1p-24};
  Problem problem = problemOf(70, 100);
  problem.epilogue = &residual;
  problem.next = {3, 5, 48};
  check(problem, {1, 8, 9, 16, 50, 129});
}

TEST_F(GemmHalfTilesTest, FewRowsAndOtherWeightsHaveNone) {
  MLIRContext context;
  context.loadDialect<AttnDialect>();
  TargetAttr target = makeTarget(context, kIsa);
  EXPECT_EQ(problemOf(64, 48).spec(target, ShapedType::kDynamic).symbol(), "gemm_f32_mx_k64_n48_fma_8x3x16_f16_amx16");
  EXPECT_EQ(problemOf(64, 48).spec(target, 15).symbol(), "gemm_f32_m15_k64_n48_fma_8x3x16_f16_shared");
  EXPECT_EQ(problemOf(64, 48).spec(makeTarget(context, "avx512bf16"), 16).symbol(),
            "gemm_f32_m16_k64_n48_fma_8x3x16_f16_shared");
  Problem plain{64, 48};
  EXPECT_FALSE(plain.spec(target, 16).hasHalfTiles);
}

// Rows that are no numbers, and the least and greatest weights.
TEST_F(GemmHalfTilesTest, InfinitiesAndSmallNumbers) {
  constexpr int64_t kRows = 16, kDepth = 4, kColumns = 3;
  Problem problem = problemOf(kDepth, kColumns, kRows);
  auto kernel = compileGemm(kIsa, problem);
  ASSERT_TRUE(kernel);
  MLIRContext context;
  context.loadDialect<AttnDialect>();
  GemmSpec spec = problem.spec(makeTarget(context, kIsa), kRows);
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> rows(kRows * kDepth, 1.0f);
  rows[0] = infinity, rows[kDepth] = -infinity, rows[2 * kDepth] = std::nanf(""), rows[3 * kDepth] = 0x1.fffffep+100f;
  Buffer a({kRows, kDepth}, rows), panels({1, kDepth, spec.panelWidth()}, size_t(2)),
      parts({1, spec.rowPartShape()[1]}, size_t(2)), c({kRows, kColumns});
  for (int64_t i = 0; i < panels.size(); ++i)
    panels.data<uint16_t>()[i] = 0;
  // Columns of 1, of the least and of the greatest f16.
  const uint16_t halves[] = {0x3c00, 0x0001, 0x7bff};
  for (int64_t k = 0; k < kDepth; ++k)
    for (int64_t n = 0; n < kColumns; ++n)
      panels.data<uint16_t>()[k * spec.panelWidth() + n] = halves[n];
  ASSERT_TRUE(kernel->call({&a, &panels, &parts, &c}));
  EXPECT_EQ(c[0], infinity);
  EXPECT_EQ(c[1], infinity);
  EXPECT_EQ(c[2], infinity);
  EXPECT_EQ(c[kColumns], -infinity);
  EXPECT_EQ(c[kColumns + 1], -infinity);
  EXPECT_TRUE(std::isnan(c[2 * kColumns]));
  EXPECT_EQ(c[3 * kColumns], 0x1.fffffep+100f);
  EXPECT_EQ(c[4 * kColumns], 4);
  EXPECT_EQ(c[4 * kColumns + 1], 0x1p-22f);
  EXPECT_EQ(c[4 * kColumns + 2], 4 * 65504.0f);
}

} // namespace
