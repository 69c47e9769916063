#include "passes/kernels/cpu/NarrowRows.h"
#include "test/kernels/KernelHarness.h"

#include "gtest/gtest.h"
#include <cmath>
#include <random>

using namespace mlir;
using namespace attn;
using namespace attn::test;

namespace {

class NarrowRowsTest : public testing::TestWithParam<const char *> {
protected:
  void SetUp() override {
    if (!hostRuns(GetParam()))
      GTEST_SKIP() << "this machine does not run " << GetParam();
  }

  std::unique_ptr<Kernel> compile(int64_t width, bool isHalf = false) {
    return Kernel::compile(GetParam(), [&](OpBuilder &b, Location loc) {
      TargetAttr target = makeTarget(*b.getContext(), GetParam());
      Type element = isHalf ? Type(b.getF16Type()) : b.getF32Type();
      return buildNarrowRows(b, loc, {MemRefType::get({ShapedType::kDynamic, width}, element), target.getF32Lanes()});
    });
  }

  static float scaleOf(const Buffer &bytes, int64_t row, int64_t width) {
    float scale;
    std::memcpy(&scale, bytes.data<int8_t>() + row * (width + 4) + width, sizeof(scale));
    return scale;
  }
};

INSTANTIATE_TEST_SUITE_P(Isas, NarrowRowsTest, testing::ValuesIn(kIsas), [](auto &info) { return info.param; });

// Each number is within half a step, and the greatest is 127 steps.
TEST_P(NarrowRowsTest, EveryWidth) {
  for (int64_t width : {1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 130}) {
    auto kernel = compile(width);
    ASSERT_TRUE(kernel);
    for (int64_t rows : {0, 1, 7}) {
      Buffer x({rows, width}), bytes({rows, width + 4}, 1);
      std::mt19937 random(width);
      std::normal_distribution<float> normal(0, 3);
      for (int64_t n = 0; n < x.size(); ++n)
        x[n] = normal(random);
      ASSERT_TRUE(kernel->call({&x, &bytes}, 2));
      ASSERT_TRUE(bytes.guardIntact());
      for (int64_t row = 0; row < rows; ++row) {
        double top = 0, scale = scaleOf(bytes, row, width);
        int greatest = 0;
        for (int64_t n = 0; n < width; ++n)
          top = std::fmax(top, std::fabs(x[row * width + n]));
        for (int64_t n = 0; n < width; ++n) {
          int code = bytes.data<int8_t>()[row * (width + 4) + n];
          greatest = std::max(greatest, std::abs(code));
          EXPECT_LE(std::fabs(code * scale - x[row * width + n]), top / 254 * 1.00001) << width << " " << n;
        }
        EXPECT_EQ(greatest, 127);
        EXPECT_NEAR(scale, top / 127, top * 1e-7);
      }
    }
  }
}

TEST_P(NarrowRowsTest, Halves) {
  auto kernel = compile(20, /*isHalf=*/true);
  ASSERT_TRUE(kernel);
  Buffer x({3, 20}, 2), bytes({3, 24}, 1);
  for (int64_t n = 0; n < x.size(); ++n)
    x.data<_Float16>()[n] = static_cast<_Float16>(n % 7 - 3);
  ASSERT_TRUE(kernel->call({&x, &bytes}));
  for (int64_t row = 0; row < 3; ++row)
    for (int64_t n = 0; n < 20; ++n)
      EXPECT_NEAR(bytes.data<int8_t>()[row * 24 + n] * scaleOf(bytes, row, 20), (row * 20 + n) % 7 - 3, 3.0 / 254);
}

// Zeros, what is next to nothing, what is no number: never a code without its scale.
TEST_P(NarrowRowsTest, SpecialRows) {
  constexpr int64_t kWidth = 18;
  auto kernel = compile(kWidth);
  ASSERT_TRUE(kernel);
  Buffer x({4, kWidth}), bytes({4, kWidth + 4}, 1);
  for (int64_t n = 0; n < x.size(); ++n)
    x[n] = n < kWidth ? 0 : n < 2 * kWidth ? 1e-38f : 1;
  x[2 * kWidth + 17] = NAN;
  x[3 * kWidth + 2] = -INFINITY;
  ASSERT_TRUE(kernel->call({&x, &bytes}));
  for (int64_t n = 0; n < kWidth; ++n) {
    auto value = [&](int64_t row) {
      return static_cast<float>(bytes.data<int8_t>()[row * (kWidth + 4) + n]) * scaleOf(bytes, row, kWidth);
    };
    EXPECT_EQ(value(0), 0);
    EXPECT_LE(std::fabs(value(1)), 0x1p-100);
    EXPECT_FALSE(std::isfinite(value(2)));
    EXPECT_FALSE(std::isfinite(value(3)));
  }
}

} // namespace
