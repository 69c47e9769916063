// The GEMM kernel of blocks at every edge of its tiles, words and blocks, with rows of f32 and of bytes.
#include "test/kernels/BlockGemmHarness.h"

#include <cmath>

using namespace mlir;
using namespace attn;
using namespace attn::test;

namespace {

TEST_P(BlockGemm, EveryEdge) {
  // Columns around a register and a panel; depths around a word, a block and what is unpacked at once.
  for (int64_t n : {1, 15, 64, 97})
    check({2, 40, n});
  for (int64_t k : {1, 7, 8, 31, 33, 256, 300, 555})
    check({1, k, 20});
  for (int64_t k : {5, 32, 128, 129, 300})
    check({9, k, 20});
}

TEST_P(BlockGemm, AnyNumberOfRows) {
  BlockProblem open{0, 70, 50};
  open.isOpen = true;
  std::unique_ptr<Kernel> kernel = compileBlockGemm(GetParam(), open);
  ASSERT_TRUE(kernel);
  for (int64_t m : {0, 1, 2, 3, 4, 5, 6, 7, 13, 95, 96, 97, 200}) {
    BlockProblem p = open;
    p.m = m;
    check(*kernel, p);
  }
}

TEST_P(BlockGemm, EveryWidthAndZeroPoint) {
  for (int64_t bits : {2, 4, 8})
    for (bool isUnsigned : {false, true})
      for (BlockZeros zeros : {BlockZeros::Constant, BlockZeros::Signed, BlockZeros::Float}) {
        BlockProblem p{3, 80, 18, 16, bits, false, isUnsigned, zeros, isUnsigned ? 1 : -1};
        if (zeros == BlockZeros::Signed && isUnsigned)
          p.zeros = BlockZeros::Unsigned;
        check(p);
        p.m = 6;
        check(p);
      }
  for (int64_t block : {64, 128, 256}) // the last is more than f32 writes out at a time else
    for (int64_t m : {2, 9})
      check({m, 300, 18, block});
}

TEST_P(BlockGemm, Epilogue) {
  for (int64_t m : {1, 7})
    for (EpilogueOperand kind :
         {EpilogueOperand::Scalar, EpilogueOperand::RowVector, EpilogueOperand::Column, EpilogueOperand::Full}) {
      BlockProblem p{m, 40, 70};
      p.hasBias = true;
      p.bias = kind;
      check(p);
    }
}

using BlockGemmOfBytes = BlockGemm;

TEST_P(BlockGemmOfBytes, EveryEdge) {
  for (int64_t bits : {2, 4, 8})
    for (BlockZeros zeros : {BlockZeros::Constant, BlockZeros::Signed}) {
      BlockProblem p{2, 75, 70, 16, bits, false, zeros == BlockZeros::Constant, zeros, 1};
      p.hasByteRows = true;
      check(p);
    }
  for (int64_t k : {1, 31, 256, 300}) {
    BlockProblem p{1, k, 20, 32, 4};
    p.hasByteRows = true;
    check(p);
    p.m = 8;
    check(p);
  }
  BlockProblem open{0, 300, 97, 32, 4, true, true, BlockZeros::Unsigned};
  open.hasByteRows = true;
  std::unique_ptr<Kernel> kernel = compileBlockGemm(GetParam(), open);
  ASSERT_TRUE(kernel);
  bool hasPairs = StringRef(GetParam()) == "avx2" || StringRef(GetParam()) == "avx512";
  EXPECT_TRUE(StringRef(kernel->assembly()).contains(hasPairs ? "vpmaddubsw" : "vpdpbusd"));
  for (int64_t m : {0, 1, 4, 5, 13, 97}) {
    BlockProblem p = open;
    p.m = m;
    check(*kernel, p);
  }
}

/// Two products of the greatest code of 8 bits are more than a word holds, of fewer bits they are not.
TEST_P(BlockGemmOfBytes, GreatestCodes) {
  for (int64_t bits : {2, 4, 8})
    for (int64_t m : {1, 9}) {
      BlockProblem p{m, 75, 20, 32, bits, false, true, BlockZeros::Constant, 1};
      p.hasByteRows = p.isExtreme = true;
      check(p);
    }
}

/// A row with an infinity or a NaN gives NaN, and no other row knows of it.
TEST_P(BlockGemmOfBytes, NotFinite) {
  for (int64_t m : {4, 18}) { // the latter on tiles
    BlockProblem p{m, 75, 20};
    p.hasByteRows = true;
    std::unique_ptr<Kernel> kernel = compileBlockGemm(GetParam(), p);
    ASSERT_TRUE(kernel);
    BlockCase data(p, spec(p));
    std::vector<float> want = run(*kernel, p, data);
    data.a[0 * p.k + 40] = INFINITY, data.a[2 * p.k + 1] = -INFINITY, data.a[2 * p.k + 2] = NAN;
    std::vector<float> got = run(*kernel, p, data);
    for (int64_t i = 0; i < p.m * p.n; ++i)
      if (i / p.n == 0 || i / p.n == 2)
        EXPECT_TRUE(std::isnan(got[i])) << got[i] << " in row " << i / p.n;
      else
        EXPECT_EQ(got[i], want[i]) << i;
  }
}

TEST_P(BlockGemmOfBytes, Tiles) {
  if (GetParam() != StringRef("amxint8"))
    GTEST_SKIP() << "it has no tiles";
  auto checkTiles = [&](BlockProblem p) {
    p.hasByteRows = true;
    EXPECT_TRUE(spec(p).hasTiles);
    check(p);
  };
  for (int64_t n : {1, 16, 97})
    checkTiles({18, 40, n});
  // One block, two on their way, an odd one behind pairs, and around what is unpacked at once.
  for (int64_t k : {31, 64, 96, 256, 257, 600})
    checkTiles({17, k, 20});
  checkTiles({16, 530, 18, 16, 4, false, true, BlockZeros::Unsigned});
  checkTiles({16, 530, 18, 64, 4, false, false, BlockZeros::Signed});
  checkTiles({16, 530, 18, 128, 4, false, false, BlockZeros::Constant, -1});
  checkTiles({16, 530, 18, 256, 4, false, true, BlockZeros::Constant, 1});
  checkTiles({16, 80, 18, 32, 2, false, true, BlockZeros::Unsigned});
  checkTiles({16, 300, 18, 256, 8, false, false, BlockZeros::Constant, 0});
  checkTiles({16, 80, 18, 32, 8, false, true, BlockZeros::Constant, 128});
  BlockProblem wide{16, 300, 18, 32, 8, false, true, BlockZeros::Constant, 127}; // 255 - 127 is none of s8
  wide.hasByteRows = true;
  EXPECT_FALSE(spec(wide).hasTiles);
}

/// Whether a run has tiles does not show: all sums of a block are exact, and scaled in the same order.
TEST_P(BlockGemmOfBytes, SameBitsWithoutTiles) {
  if (GetParam() != StringRef("amxint8"))
    GTEST_SKIP() << "it has no tiles";
  BlockProblem p{0, 300, 70, 32, 4, true, true, BlockZeros::Unsigned};
  p.hasByteRows = p.hasBias = true;
  std::unique_ptr<Kernel> tiles = compileBlockGemm(GetParam(), p), plain = compileBlockGemm("avx512vnni", p);
  ASSERT_TRUE(tiles && plain);
  for (StringRef name : {"ldtilecfg", "tilezero", "tileloadd", "tdpbssd", "tilestored", "tilerelease", "vpdpbusd"})
    EXPECT_TRUE(StringRef(tiles->assembly()).contains(name)) << name.str();
  // Around a tile and a chunk of rows.
  for (int64_t m : {4, 5, 15, 16, 17, 31, 32, 33, 128, 129, 270}) {
    p.m = m;
    check(*tiles, p);
    EXPECT_EQ(run(*tiles, p), run(*plain, p)) << m;
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, BlockGemmOfBytes, testing::Values("avx2", "avxvnni", "avx512", "avx512vnni", "amxint8"),
                         [](const testing::TestParamInfo<const char *> &info) { return std::string(info.param); });
INSTANTIATE_TEST_SUITE_P(Isas, BlockGemm, testing::ValuesIn(kIsas),
                         [](const testing::TestParamInfo<const char *> &info) { return std::string(info.param); });

TEST(BlockGemmSpec, SaysWhatItCannotBuild) {
  MLIRContext context;
  context.loadDialect<AttnDialect>();
  BlockGemmSpec spec = BlockGemmSpec::forTarget(makeTarget(context, "avx512"), 4, 64, 16);
  std::string reason;
  EXPECT_TRUE(canBuildBlockGemm(spec, &reason));
  BlockGemmSpec odd = spec;
  odd.block = 20;
  EXPECT_FALSE(canBuildBlockGemm(odd, &reason));
  EXPECT_EQ(reason, "blocks of 20 are not whole words of 8 codes, or do not divide 256");
  for (int64_t block : {0, 4}) {
    odd.block = block;
    EXPECT_FALSE(canBuildBlockGemm(odd, &reason)) << block;
  }
  BlockGemmSpec wide = spec;
  wide.bits = 3;
  EXPECT_FALSE(canBuildBlockGemm(wide, &reason));
  EXPECT_EQ(reason, "codes have 3 bits, not 2, 4 or 8");
  BlockGemmSpec far = spec;
  far.zeroPoint = 16;
  EXPECT_FALSE(canBuildBlockGemm(far, &reason));
  EXPECT_EQ(reason, "the zero point 16 is outside the codes' range");
  BlockGemmSpec empty = spec;
  empty.k = 0;
  EXPECT_FALSE(canBuildBlockGemm(empty, &reason));
}

} // namespace
