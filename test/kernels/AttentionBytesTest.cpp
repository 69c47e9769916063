#include "test/kernels/AttentionFixture.h"

#include <cstring>

// Keys and values in rows of bytes, each with its scale: caches of --cache=int8. What they stand for is exact in fp64,
// so that the bounds are those of f32.
using namespace attn::test;

namespace {

constexpr char kScaleAdd[] = "%k = arith.constant 0.125 : f32\n%x = arith.mulf %s, %k : f32\n"
                             "%y = arith.addf %x, %c0 : f32";

class AttentionBytesTest : public AttentionFixture {
protected:
  AttentionBytesTest() {
    a.stored = "bytes";
    a.score = kScale;
    a.dynamic = "ij";
  }
  Attention a;
};

INSTANTIATE_TEST_SUITE_P(Isas, AttentionBytesTest, testing::ValuesIn(kIsas), [](auto &info) { return info.param; });

TEST_P(AttentionBytesTest, QueriesAndKeys) {
  Sizes sizes = {{'b', 2}, {'h', 2}, {'i', 0}, {'j', 0}, {'d', 16}, {'e', 32}};
  auto kernel = compileAttention(isa, a, sizes);
  ASSERT_TRUE(kernel);
  for (int64_t i : {0, 1, 2, 4, 5, 17, 33})
    for (int64_t j : {0, 1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 255, 256, 257, 515}) {
      sizes['i'] = i, sizes['j'] = j;
      Operands o(a, sizes, i * 1000 + j);
      ASSERT_TRUE(kernel->call(o.all()));
      ASSERT_EQ(compareWithReference(o, scaled), "") << i << " queries, " << j << " keys";
      std::vector<float> once = o.result.values();
      o.result.poison();
      ASSERT_TRUE(kernel->call(o.all(), 3));
      for (size_t n = 0; n < once.size(); ++n)
        ASSERT_TRUE(std::memcmp(&once[n], &o.result[n], sizeof(float)) == 0) << "the cut shows";
    }
}

TEST_P(AttentionBytesTest, Widths) {
  for (auto [d, e] : std::vector<std::pair<int64_t, int64_t>>{
           {8, 9}, {9, 8}, {15, 17}, {16, 16}, {17, 15}, {64, 64}, {80, 33}, {160, 200}}) {
    Sizes sizes = {{'b', 1}, {'h', 1}, {'i', 0}, {'j', 43}, {'d', d}, {'e', e}};
    auto kernel = compileAttention(isa, a, sizes);
    ASSERT_TRUE(kernel);
    for (int64_t i : {1, 3, 21}) {
      sizes['i'] = i;
      Operands o(a, sizes, i);
      ASSERT_TRUE(kernel->call(o.all()));
      ASSERT_EQ(compareWithReference(o, scaled), "") << d << " " << e << " " << i;
    }
  }
}

// Heads that share keys, rows that lie in any order, one query of many keys in parts.
TEST_P(AttentionBytesTest, Layouts) {
  struct Case {
    const char *query, *key, *value, *result;
    int64_t group;
  };
  for (Case c : {Case{"bhid", "bhjd", "bhje", "bhie", 4}, Case{"bihd", "bjhd", "bjhe", "bihe", 2},
                 Case{"bhid", "jbhd", "hbje", "bihe", 1}}) {
    a.query = c.query, a.key = c.key, a.value = c.value, a.result = c.result, a.group = c.group;
    Sizes sizes = {{'b', 2}, {'h', 4}, {'i', 1}, {'j', 19}, {'d', 24}, {'e', 12}};
    auto kernel = compileAttention(isa, a, sizes);
    ASSERT_TRUE(kernel);
    for (auto [i, j] : std::vector<std::pair<int64_t, int64_t>>{{1, 19}, {1, 2050}, {3, 700}, {21, 300}}) {
      sizes['i'] = i, sizes['j'] = j;
      Operands o(a, sizes, i + j);
      ASSERT_TRUE(kernel->call(o.all()));
      ASSERT_EQ(compareWithReference(o, scaled), "") << c.query << " " << i << " " << j;
    }
  }
}

// A row whose scale is no number, which a mask hides, and one that it does not.
TEST_P(AttentionBytesTest, NotANumberInMaskedRows) {
  a.score = kScaleAdd;
  a.captures = {{"j", "f32"}};
  Sizes sizes = {{'b', 1}, {'h', 1}, {'i', 0}, {'j', 61}, {'d', 16}, {'e', 20}};
  auto kernel = compileAttention(isa, a, sizes);
  ASSERT_TRUE(kernel);
  for (int64_t i : {1, 4, 30}) {
    sizes['i'] = i;
    Operands o(a, sizes, i);
    for (int64_t j = 0; j < 61; ++j)
      o.captures[0][j] = j == 17 ? -INFINITY : 0.0f;
    float nan = NAN;
    std::memcpy(o.value.data<int8_t>() + 17 * 24 + 20, &nan, sizeof(nan));
    ASSERT_TRUE(kernel->call(o.all()));
    auto score = [&](double s, const At &at) { return 0.125 * s + o.captures[0][at.at('j')]; };
    EXPECT_EQ(compareWithReference(o, score), "") << i;
    std::memcpy(o.value.data<int8_t>() + 18 * 24 + 20, &nan, sizeof(nan));
    ASSERT_TRUE(kernel->call(o.all()));
    EXPECT_TRUE(std::isnan(o.result[0])) << "a visible NaN must show";
  }
}

// Near misses: columns of keys, and scores that are no products.
TEST_P(AttentionBytesTest, NoRows) {
  Sizes sizes = {{'b', 1}, {'h', 1}, {'i', 3}, {'j', 5}, {'d', 16}, {'e', 16}};
  for (bool isColumns : {false, true}) {
    Attention other = a;
    other.dynamic = "";
    (isColumns ? other.key : other.kind) = isColumns ? "bhdj" : "distance";
    testing::internal::CaptureStderr();
    EXPECT_FALSE(compileAttention(isa, other, sizes));
    EXPECT_NE(testing::internal::GetCapturedStderr().find("in bytes are no rows of a product"), std::string::npos);
  }
}

} // namespace
