#include "passes/kernels/cpu/Normalization.h"
#include "test/kernels/KernelHarness.h"

#include "gtest/gtest.h"
#include <cmath>
#include <random>

using namespace mlir;
using namespace attn;
using namespace attn::test;

namespace {

class NormalizationTest : public testing::TestWithParam<const char *> {
protected:
  void SetUp() override {
    if (!hostRuns(GetParam()))
      GTEST_SKIP() << "this machine does not run " << GetParam();
  }

  static MemRefType f32(OpBuilder &b, ArrayRef<int64_t> shape) { return MemRefType::get(shape, b.getF32Type()); }

  std::unique_ptr<Kernel> softmax(ArrayRef<int64_t> shape, bool log) {
    return columnSoftmax(shape, static_cast<int64_t>(shape.size()) - 1, log);
  }
  std::unique_ptr<Kernel> columnSoftmax(ArrayRef<int64_t> shape, int64_t dim, bool log) {
    return Kernel::compile(GetParam(), [&](OpBuilder &b, Location loc) {
      TargetAttr target = makeTarget(*b.getContext(), GetParam());
      return buildSoftmax(b, loc, {f32(b, shape), dim, log, target.getF32Lanes()});
    });
  }
  std::unique_ptr<Kernel> layerNorm(ArrayRef<int64_t> shape, int64_t axis, bool hasBias, float epsilon) {
    return Kernel::compile(GetParam(), [&](OpBuilder &b, Location loc) {
      TargetAttr target = makeTarget(*b.getContext(), GetParam());
      MemRefType scale = f32(b, shape.drop_front(axis));
      return buildLayerNorm(
          b, loc, {f32(b, shape), scale, hasBias ? scale : MemRefType(), axis, epsilon, target.getF32Lanes()});
    });
  }

  static Buffer random(std::vector<int64_t> shape, float scale = 1, float shift = 0) {
    Buffer buffer(std::move(shape));
    std::mt19937 generator(buffer.size());
    std::normal_distribution<float> normal(shift, scale);
    for (int64_t n = 0; n < buffer.size(); ++n)
      buffer[n] = normal(generator);
    return buffer;
  }
};

INSTANTIATE_TEST_SUITE_P(Isas, NormalizationTest, testing::ValuesIn(kIsas), [](auto &info) { return info.param; });

void expectSoftmax(const Buffer &x, const Buffer &y, int64_t size, bool log) {
  ASSERT_TRUE(y.guardIntact());
  for (int64_t row = 0; row * size < x.size(); ++row) {
    double top = -INFINITY, sum = 0;
    for (int64_t n = 0; n < size; ++n)
      top = std::isnan(x[row * size + n]) ? NAN : std::fmax(top, x[row * size + n]);
    for (int64_t n = 0; n < size; ++n)
      sum += std::exp(x[row * size + n] - top);
    for (int64_t n = 0; n < size; ++n) {
      double shifted = x[row * size + n] - top;
      double expected = log ? shifted - std::log(sum) : std::exp(shifted) / sum, got = y[row * size + n];
      // The rounding of x - max is an error of the exponential's argument.
      double bound = log ? 4e-7 * (1 + std::fabs(expected))
                         : (4e-7 + std::ldexp(std::fmin(std::fabs(shifted), 200), -23)) * expected + 1e-37;
      if (std::isnan(expected) || std::isinf(expected))
        ASSERT_TRUE(std::isnan(expected) ? std::isnan(got) : got == expected) << row << " " << n << " " << got;
      else
        ASSERT_LE(std::fabs(got - expected), bound) << row << " " << n << " " << got << " " << expected;
    }
  }
}

TEST_P(NormalizationTest, SoftmaxOfEverySize) {
  for (bool log : {false, true}) {
    auto kernel = softmax({ShapedType::kDynamic, ShapedType::kDynamic}, log);
    ASSERT_TRUE(kernel);
    for (int64_t size : {0, 1, 3, 4, 7, 8, 15, 16, 17, 33, 63, 64, 65, 100, 1000})
      for (float scale : {1.0f, 30.0f}) {
        Buffer x = random({3, size}, scale), y({3, size});
        ASSERT_TRUE(kernel->call({&x, &y}));
        expectSoftmax(x, y, size, log);
        ASSERT_TRUE(kernel->call({&x, &x}, 2)); // in place, in another cut
        ASSERT_EQ(x.values(), y.values()) << size;
      }
  }
}

/// x[outer, n, column] as rows [outer, column, n].
Buffer asRows(const Buffer &x, int64_t size, int64_t columns) {
  Buffer rows({x.size() / std::max<int64_t>(1, size), size});
  for (int64_t n = 0; n < x.size(); ++n) {
    int64_t column = n % columns, row = n / columns % size, outer = n / columns / size;
    rows[(outer * columns + column) * size + row] = x[n];
  }
  return rows;
}

TEST_P(NormalizationTest, SoftmaxDownColumns) {
  for (bool log : {false, true}) {
    auto kernel = columnSoftmax({ShapedType::kDynamic, ShapedType::kDynamic, ShapedType::kDynamic, 3}, 1, log);
    ASSERT_TRUE(kernel);
    for (int64_t size : {0, 1, 2, 17})
      for (int64_t width : {0, 1, 2, 3, 5, 6, 11}) // 3 times as many columns: all tails of 4, 8 and 16
        for (float scale : {1.0f, 30.0f}) {
          Buffer x = random({2, size, width, 3}, scale), y({2, size, width, 3});
          if (x.size() > 3)
            x[1] = -INFINITY, x[x.size() - 1] = NAN;
          ASSERT_TRUE(kernel->call({&x, &y}));
          ASSERT_TRUE(y.guardIntact());
          if (x.size())
            expectSoftmax(asRows(x, size, 3 * width), asRows(y, size, 3 * width), size, log);
          ASSERT_TRUE(kernel->call({&x, &x}, 3)); // in place, in another cut
          ASSERT_TRUE(x.guardIntact());
          for (int64_t n = 0; n < x.size(); ++n)
            ASSERT_TRUE(x[n] == y[n] || (std::isnan(x[n]) && std::isnan(y[n]))) << n;
        }
  }
}

TEST_P(NormalizationTest, SoftmaxOfStaticShape) {
  for (std::vector<int64_t> shape : {std::vector<int64_t>{2, 3, 48}, {21}, {1, 2, 2, 5}}) {
    auto kernel = softmax(shape, false);
    ASSERT_TRUE(kernel);
    Buffer x = random(shape), y(shape);
    ASSERT_TRUE(kernel->call({&x, &y}));
    expectSoftmax(x, y, shape.back(), false);
  }
}

TEST_P(NormalizationTest, SoftmaxOfSpecialValues) {
  for (bool log : {false, true}) {
    auto kernel = softmax({ShapedType::kDynamic, ShapedType::kDynamic}, log);
    ASSERT_TRUE(kernel);
    for (int64_t size : {5, 16, 21}) {
      Buffer x = random({8, size}), y({8, size});
      x[0] = NAN;
      x[size + size - 1] = INFINITY;
      x[2 * size + 1] = -INFINITY;
      for (int64_t n = 0; n < size; ++n) {
        x[3 * size + n] = -INFINITY;
        x[4 * size + n] = -3.4028235e38f;
        x[5 * size + n] = 1e4f * static_cast<float>(n);
        x[6 * size + n] = 1e4f + 0.5f * static_cast<float>(n % 3);
      }
      ASSERT_TRUE(kernel->call({&x, &y}));
      expectSoftmax(x, y, size, log);
    }
  }
}

TEST_P(NormalizationTest, LayerNormOfEverySize) {
  for (bool hasBias : {false, true}) {
    auto kernel = layerNorm({ShapedType::kDynamic, ShapedType::kDynamic}, 1, hasBias, 1e-5f);
    ASSERT_TRUE(kernel);
    for (int64_t size : {0, 1, 3, 8, 16, 17, 63, 64, 100, 384, 1000})
      for (float shift : {0.0f, 100.0f}) {
        Buffer x = random({3, size}, 1, shift), y({3, size}), scale = random({size}, 1, 1), bias = random({size});
        std::vector<const Buffer *> arguments = {&x, &scale};
        if (hasBias)
          arguments.push_back(&bias);
        arguments.push_back(&y);
        ASSERT_TRUE(kernel->call(arguments));
        ASSERT_TRUE(y.guardIntact());
        for (int64_t row = 0; row < 3; ++row) {
          double mean = 0, variance = 0;
          for (int64_t n = 0; n < size; ++n)
            mean += x[row * size + n] / static_cast<double>(size);
          for (int64_t n = 0; n < size; ++n)
            variance += std::pow(x[row * size + n] - mean, 2) / static_cast<double>(size);
          double factor = 1 / std::sqrt(variance + 1e-5);
          for (int64_t n = 0; n < size; ++n) {
            double expected = (x[row * size + n] - mean) * factor * scale[n] + (hasBias ? bias[n] : 0);
            // An error of the mean, 2^-23 of it, counts as much as the factor is large.
            double bound =
                1e-6 * (1 + std::fabs(expected)) + std::ldexp(std::fabs(mean) * factor * std::fabs(scale[n]), -22);
            ASSERT_NEAR(y[row * size + n], expected, bound) << size << " " << row << " " << n;
          }
        }
        arguments.back() = &x; // in place, in another cut
        ASSERT_TRUE(kernel->call(arguments, 3));
        ASSERT_EQ(x.values(), y.values()) << size;
      }
  }
}

TEST_P(NormalizationTest, LayerNormOverTwoDimensions) {
  auto kernel = layerNorm({2, 3, 5, 7}, 2, true, 1e-3f);
  ASSERT_TRUE(kernel);
  Buffer x = random({2, 3, 5, 7}), scale({5, 7}, std::vector<float>(35, 1)), bias({5, 7}, std::vector<float>(35, 0)),
         y({2, 3, 5, 7});
  ASSERT_TRUE(kernel->call({&x, &scale, &bias, &y}));
  for (int64_t row = 0; row < 6; ++row) {
    double sum = 0, squares = 0;
    for (int64_t n = 0; n < 35; ++n)
      sum += y[row * 35 + n], squares += static_cast<double>(y[row * 35 + n]) * y[row * 35 + n];
    EXPECT_NEAR(sum, 0, 1e-5);
    EXPECT_NEAR(squares / 35, 1, 2e-2);
  }
}

TEST_P(NormalizationTest, LayerNormKeepsNotANumberInItsRow) {
  auto kernel = layerNorm({3, 20}, 1, false, 1e-5f);
  ASSERT_TRUE(kernel);
  Buffer x = random({3, 20}), scale = random({20}), y({3, 20});
  x[25] = NAN;
  ASSERT_TRUE(kernel->call({&x, &scale, &y}));
  for (int64_t n = 0; n < 60; ++n)
    EXPECT_EQ(std::isnan(y[n]), n / 20 == 1) << n;
}

} // namespace
