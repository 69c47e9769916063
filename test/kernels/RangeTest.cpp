// The extremes of a tensor: exact, whatever the parts are.
#include "passes/kernels/cpu/Range.h"
#include "test/kernels/KernelHarness.h"

#include "gtest/gtest.h"
#include <cmath>
#include <limits>
#include <random>

using namespace mlir;
using namespace attn;
using namespace attn::test;

namespace {

class Range : public testing::TestWithParam<const char *> {
protected:
  void SetUp() override {
    if (!hostRuns(GetParam()))
      GTEST_SKIP() << "this machine has no " << GetParam();
    kernel = Kernel::compile(GetParam(), [](OpBuilder &builder, Location loc) {
      TargetAttr target = makeTarget(*builder.getContext(), GetParam());
      auto type = MemRefType::get({ShapedType::kDynamic, 3}, builder.getF32Type());
      return buildRange(builder, loc, {type, target.getF32Lanes()});
    });
    ASSERT_TRUE(kernel);
  }
  /// {greatest, least} of rows x 3 values, the same for every cut.
  std::pair<float, float> extremes(const std::vector<float> &values) {
    Buffer input({static_cast<int64_t>(values.size()) / 3, 3}, values), parts({2, RangeSpec::kParts}), most({}),
        least({});
    std::pair<float, float> first;
    for (int64_t pieces : {1, 5, 64}) {
      parts.poison();
      EXPECT_TRUE(kernel->call({&input, &parts, &most, &least}, pieces));
      std::pair<float, float> now(most[0], least[0]);
      if (pieces == 1)
        first = now;
      EXPECT_EQ(0, std::memcmp(&now, &first, sizeof now));
    }
    return first;
  }
  std::unique_ptr<Kernel> kernel;
};

TEST_P(Range, OfAnyNumberOfElements) {
  std::mt19937 random(3);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (int64_t count : {3, 15, 48, 63, 192, 4095, 4098, 12291}) {
    std::vector<float> values(count);
    for (float &value : values)
      value = uniform(random);
    // The extremes at the ends, where tails are.
    values.front() = -2;
    values.back() = 3;
    EXPECT_EQ(extremes(values), std::pair(3.0f, -2.0f)) << count;
    std::swap(values.front(), values.back());
    EXPECT_EQ(extremes(values), std::pair(3.0f, -2.0f)) << count;
  }
}

TEST_P(Range, OfNothingAndOfOddNumbers) {
  float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(extremes({}), std::pair(-inf, inf));
  EXPECT_EQ(extremes({1, inf, -inf}), std::pair(inf, -inf));
  for (size_t place : {0, 50, 95}) {
    std::vector<float> values(96, 1);
    values[place] = nan;
    std::pair<float, float> both = extremes(values);
    EXPECT_TRUE(std::isnan(both.first) && std::isnan(both.second)) << place;
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, Range, testing::ValuesIn(kIsas),
                         [](const testing::TestParamInfo<const char *> &info) { return std::string(info.param); });

} // namespace
