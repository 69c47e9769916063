// Rows of f32 as digits of bytes, and as parts of bf16.
#include "test/kernels/BlockGemmHarness.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace mlir;
using namespace attn;
using namespace attn::test;

namespace {

using BlockGemmOfDigits = BlockGemm;

TEST_P(BlockGemmOfDigits, EveryEdge) {
  auto checkDigits = [&](const BlockProblem &p) {
    EXPECT_TRUE(spec(p).hasDigits);
    check(p);
  };
  for (int64_t bits : {2, 4, 8})
    for (BlockZeros zeros : {BlockZeros::Constant, BlockZeros::Signed, BlockZeros::Unsigned})
      for (int64_t block : {16, 32, 256})
        checkDigits({1, 280, 70, block, bits, false, zeros != BlockZeros::Signed, zeros, 1});
  for (int64_t k : {1, 31, 33})
    checkDigits({1, k, 20});
  BlockProblem many{2, 40, 20}, floats{1, 40, 20, 32, 4, false, true, BlockZeros::Float}, small{1, 40, 20, 8};
  EXPECT_FALSE(spec(many).hasDigits || spec(floats).hasDigits);
  EXPECT_EQ(spec(small).hasDigits, spec(small).lanes == 8); // a block is a register
  check(small);
  std::unique_ptr<Kernel> kernel = compileBlockGemm(GetParam(), {1, 40, 20});
  ASSERT_TRUE(kernel);
  EXPECT_TRUE(StringRef(kernel->assembly()).contains("vpdpbusd"));
}

// A kernel for any number of rows takes one of them in digits, with an epilogue, too.
TEST_P(BlockGemmOfDigits, AnyNumberOfRows) {
  BlockProblem p{0, 300, 70, 32, 4, true, true, BlockZeros::Unsigned};
  p.hasBias = true;
  std::unique_ptr<Kernel> kernel = compileBlockGemm(GetParam(), p);
  ASSERT_TRUE(kernel);
  for (int64_t m : {1, 2, 5, 17}) {
    p.m = m;
    check(*kernel, p);
  }
}

// Sums of the greatest and least digits: of all four, and of the lower two beside a number that is 2^14 times as great.
TEST_P(BlockGemmOfDigits, GreatestSums) {
  for (int64_t bits : {2, 4, 8})
    for (int64_t zeroPoint : {0, 3})
      for (float rest : {1.0f, -1.0f, 32639 * 0x1p-29f, -32896 * 0x1p-29f}) {
        BlockProblem p{1, 256, 20, 256, bits, false, true, BlockZeros::Constant, zeroPoint};
        p.isExtreme = true;
        p.rest = rest;
        check(p);
      }
}

// Numbers below the greatest of their block keep what an f32 has down to 2^-6 of it, and 2^-30 of it beyond.
TEST_P(BlockGemmOfDigits, NumbersBesideGreaterOnes) {
  for (float least : {0x1p-6f, 0x1p-12f, 0x1p-40f}) {
    BlockProblem p{1, 96, 20};
    std::unique_ptr<Kernel> kernel = compileBlockGemm(GetParam(), p);
    ASSERT_TRUE(kernel);
    BlockCase data(p, spec(p));
    for (int64_t i = 0; i < p.m * p.k; ++i)
      data.a[i] = i % p.block == 5 ? 1.0f : (1 + 0.9f * std::fabs(std::sin(i))) * least;
    data.expect(p);
    std::vector<float> c = run(*kernel, p, data);
    for (int64_t i = 0; i < p.m * p.n; ++i) {
      double lost = least < 0x1p-6f ? 0x1p-30 * data.size(p, i % p.n) : 0;
      ASSERT_LE(std::fabs(c[i] - data.expected[i]), std::ldexp(p.k + 8.0, -24) * data.magnitude[i] + lost) << i;
    }
    if (least > 0x1p-40f)
      continue;
    // Beyond that nothing is left of them: it was digits that were multiplied.
    for (int64_t i = 0; i < p.m * p.k; ++i)
      data.a[i] = i % p.block == 5 ? 1.0f : 0;
    EXPECT_EQ(c, run(*kernel, p, data));
  }
}

// Powers of two change no digit; rows too small for them are multiplied in f32.
TEST_P(BlockGemmOfDigits, NumbersOfAnySize) {
  BlockProblem p{1, 64, 20};
  std::unique_ptr<Kernel> kernel = compileBlockGemm(GetParam(), p);
  ASSERT_TRUE(kernel);
  std::vector<float> plain = run(*kernel, p);
  for (float factor : {0x1p-40f, 0x1p-90f, 0x1p100f, 0x1p122f}) {
    BlockCase other(p, spec(p));
    for (float &x : other.a)
      x *= factor;
    std::vector<float> c = run(*kernel, p, other);
    for (size_t i = 0; i < c.size(); ++i)
      EXPECT_EQ(c[i], plain[i] * factor) << i;
  }
  for (float factor : {0.0f, 0x1p-96f, 0x1p-110f, 0x1p-124f}) {
    BlockCase other(p, spec(p));
    for (float &x : other.a)
      x *= factor;
    other.expect(p);
    std::vector<float> c = run(*kernel, p, other);
    for (size_t i = 0; i < c.size(); ++i)
      EXPECT_LE(std::fabs(c[i] - other.expected[i]), std::ldexp(p.k + 8.0, -24) * other.magnitude[i] + p.k * 0x1p-149)
          << i;
  }
}

// A row that is not finite is multiplied in f32: infinities stay.
TEST_P(BlockGemmOfDigits, NotFinite) {
  BlockProblem p{1, 75, 20};
  p.isOpen = true;
  std::unique_ptr<Kernel> kernel = compileBlockGemm(GetParam(), p);
  ASSERT_TRUE(kernel);
  for (int64_t place : {0, 40, 74}) // in blocks that are whole and not
    for (float special : {INFINITY, -INFINITY, NAN}) {
      BlockCase data(p, spec(p));
      data.a[place] = special;
      std::vector<float> c = run(*kernel, p, data);
      for (int64_t i = 0; i < p.n; ++i) {
        double product = special * data.matrix[place * p.n + i];
        EXPECT_EQ(std::isnan(product), std::isnan(c[i])) << i;
        if (!std::isnan(product))
          EXPECT_EQ(c[i], product) << i;
      }
    }
}

using BlockGemmOfParts = BlockGemm;

TEST_P(BlockGemmOfParts, EveryEdge) {
  auto checkTiles = [&](const BlockProblem &p) {
    EXPECT_TRUE(spec(p).hasTiles);
    check(p);
  };
  for (int64_t n : {1, 16, 97})
    checkTiles({18, 40, n});
  // One block, two on their way, an odd one behind pairs, and around what is unpacked at once.
  for (int64_t k : {1, 31, 64, 96, 128, 129, 300, 600})
    checkTiles({17, k, 20});
  for (int64_t block : {16, 64, 128, 256})
    checkTiles({16, 530, 18, block});
  for (int64_t bits : {2, 4, 8})
    for (BlockZeros zeros : {BlockZeros::Constant, BlockZeros::Signed, BlockZeros::Unsigned})
      checkTiles({19, 80, 18, 32, bits, false, zeros != BlockZeros::Signed, zeros, 1});
  checkTiles({16, 80, 18, 32, 8, false, true, BlockZeros::Constant, 255});
  BlockProblem floats{16, 80, 18, 32, 4, false, true, BlockZeros::Float}, small{16, 80, 18, 8};
  EXPECT_FALSE(spec(floats).hasTiles || spec(small).hasTiles);
  check(small);
}

TEST_P(BlockGemmOfParts, AnyNumberOfRows) {
  BlockProblem p{0, 300, 70, 32, 4, true, true, BlockZeros::Unsigned};
  p.hasBias = true;
  std::unique_ptr<Kernel> kernel = compileBlockGemm(GetParam(), p);
  ASSERT_TRUE(kernel);
  EXPECT_TRUE(StringRef(kernel->assembly()).contains("tdpbf16ps"));
  for (int64_t m : {1, 4, 5, 15, 16, 17, 31, 33, 128, 129, 270}) {
    p.m = m;
    check(*kernel, p);
  }
  p.hasBias = false;
  p.m = 0;
  check(p);
}

// Rows of any size, of which f32 keeps 24 bits, and what is no number.
TEST_P(BlockGemmOfParts, NumbersOfAnySize) {
  BlockProblem p{16, 64, 20, 32, 4, false, true, BlockZeros::Constant, 8};
  std::unique_ptr<Kernel> kernel = compileBlockGemm(GetParam(), p);
  ASSERT_TRUE(kernel);
  std::vector<float> plain = run(*kernel, p);
  for (float factor : {0x1p-40f, 0x1p-80f, 0x1p100f}) {
    BlockCase other(p, spec(p));
    for (float &x : other.a)
      x *= factor;
    std::vector<float> c = run(*kernel, p, other);
    for (size_t i = 0; i < c.size(); ++i)
      EXPECT_EQ(c[i], plain[i] * factor) << i;
  }
  const float infinity = std::numeric_limits<float>::infinity();
  for (float special : {infinity, -infinity, std::nanf("")}) {
    BlockCase other(p, spec(p));
    other.a[3 * p.k + 5] = special;
    std::vector<float> c = run(*kernel, p, other);
    for (int64_t i = 0; i < p.m * p.n; ++i) {
      if (i / p.n != 3)
        EXPECT_EQ(c[i], plain[i]) << i;
      else if (std::isinf(special)) // times 0 it is no number, and else infinite
        EXPECT_FALSE(std::isfinite(c[i])) << i;
      else
        EXPECT_TRUE(std::isnan(c[i])) << i;
    }
    EXPECT_EQ(std::isinf(special), std::any_of(c.begin(), c.end(), [](float x) { return std::isinf(x); }));
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, BlockGemmOfDigits, testing::Values("avxvnni", "avx512vnni", "amx"),
                         [](const testing::TestParamInfo<const char *> &info) { return std::string(info.param); });
INSTANTIATE_TEST_SUITE_P(Isas, BlockGemmOfParts, testing::Values("amx"),
                         [](const testing::TestParamInfo<const char *> &info) { return std::string(info.param); });

} // namespace
