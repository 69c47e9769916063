#include "test/kernels/AttentionFixture.h"

#include <cstring>

// Products of bf16: the same attentions as those of f32, on operands of bf16.
using namespace attn::test;

namespace {

constexpr char kScaleAdd[] = "%k = arith.constant 0.125 : f32\n%x = arith.mulf %s, %k : f32\n"
                             "%y = arith.addf %x, %c0 : f32";
constexpr uint16_t kNan = 0x7fc0, kInfinite = 0x7f80;

class AttentionPairsTest : public testing::Test {
protected:
  void SetUp() override {
    if (!hostRuns(isa))
      GTEST_SKIP() << "this machine has no " << isa;
    a.element = "bf16";
    a.score = kScale;
    a.dynamic = "ij";
  }
  const std::string isa = "avx512bf16";
  Attention a;
};

TEST_F(AttentionPairsTest, QueriesAndKeys) {
  a.dynamic = "bij";
  Sizes sizes = {{'b', 1}, {'h', 2}, {'i', 0}, {'j', 0}, {'d', 32}, {'e', 32}};
  auto kernel = compileAttention(isa, a, sizes);
  ASSERT_TRUE(kernel);
  EXPECT_NE(kernel->assembly().find("vdpbf16ps"), std::string::npos);
  EXPECT_NE(kernel->assembly().find("vcvtne2ps2bf16"), std::string::npos);
  for (int64_t i : {0, 1, 5, 15, 16, 17, 33, 70})
    for (int64_t j : {0, 1, 2, 7, 9, 255, 256, 515}) {
      sizes['i'] = i, sizes['j'] = j, sizes['b'] = 1 + j % 2;
      Operands o(a, sizes, i * 1000 + j);
      ASSERT_TRUE(kernel->call(o.all()));
      ASSERT_EQ(compareWithReference(o, scaled), "") << i << " queries, " << j << " keys";
      std::vector<uint16_t> once = o.result.values<uint16_t>();
      o.result.poison();
      ASSERT_TRUE(kernel->call(o.all(), 3));
      ASSERT_EQ(o.result.values<uint16_t>(), once) << "the cut shows";
    }
}

TEST_F(AttentionPairsTest, Widths) {
  a.dynamic = "";
  for (auto [d, e] :
       std::vector<std::pair<int64_t, int64_t>>{{2, 1}, {6, 5}, {32, 16}, {34, 17}, {64, 33}, {80, 48}, {128, 130}}) {
    Sizes sizes = {{'b', 1}, {'h', 1}, {'i', 37}, {'j', 43}, {'d', d}, {'e', e}};
    auto kernel = compileAttention(isa, a, sizes);
    ASSERT_TRUE(kernel);
    EXPECT_NE(kernel->assembly().find("vdpbf16ps"), std::string::npos);
    Operands o(a, sizes);
    ASSERT_TRUE(kernel->call(o.all()));
    ASSERT_EQ(compareWithReference(o, scaled), "") << d << " " << e;
  }
}

// What is not read in pairs is widened, as for other targets.
TEST_F(AttentionPairsTest, NotInPairs) {
  auto usesPairs = [&](const Attention &attention, int64_t d) {
    Sizes sizes = {{'b', 1}, {'h', 2}, {'i', 37}, {'j', 43}, {'d', d}, {'e', 24}};
    auto kernel = compileAttention(isa, attention, sizes);
    EXPECT_TRUE(kernel);
    Operands o(attention, sizes);
    EXPECT_TRUE(kernel->call(o.all()));
    EXPECT_EQ(compareWithReference(o, scaled), "");
    return kernel->assembly().find("vdpbf16ps") != std::string::npos;
  };
  EXPECT_TRUE(usesPairs(a, 24));
  EXPECT_FALSE(usesPairs(a, 23));
  Attention columns = a;
  columns.key = "bhdj";
  EXPECT_FALSE(usesPairs(columns, 24));
  columns = a;
  columns.value = "bhej";
  EXPECT_FALSE(usesPairs(columns, 24));
  Attention half = a;
  half.element = "f16";
  EXPECT_FALSE(usesPairs(half, 24));
  Attention wide = a;
  wide.element = "f32";
  EXPECT_FALSE(usesPairs(wide, 24));
}

TEST_F(AttentionPairsTest, Layouts) {
  struct Case {
    const char *query, *key, *value, *result;
    int64_t group;
  };
  for (Case c : {Case{"bihd", "bjhd", "bjhe", "bihe", 1}, Case{"hbid", "bhjd", "bhje", "bhie", 4},
                 Case{"bhdi", "bjhd", "bhje", "bhei", 2}, Case{"dbhi", "jbhd", "jbhe", "ebhi", 1}}) {
    a.query = c.query, a.key = c.key, a.value = c.value, a.result = c.result, a.group = c.group;
    Sizes sizes = {{'b', 2}, {'h', 4}, {'i', 21}, {'j', 19}, {'d', 24}, {'e', 12}};
    auto kernel = compileAttention(isa, a, sizes);
    ASSERT_TRUE(kernel);
    for (int64_t i : {5, 21, 40}) {
      sizes['i'] = i;
      Operands o(a, sizes);
      ASSERT_TRUE(kernel->call(o.all()));
      ASSERT_EQ(compareWithReference(o, scaled), "") << c.query << " " << i;
    }
  }
}

// Tiles that a mask hides as a whole, rows without a key, an odd number of keys.
TEST_F(AttentionPairsTest, Masks) {
  struct Case {
    const char *term, *policy;
  };
  for (Case c :
       {Case{"dense", "zero"}, Case{"dense", "uniform"}, Case{"dense", "nan"}, Case{"window<40, 5>", "zero"}}) {
    bool isDense = std::string(c.term) == "dense";
    a.mask = {{c.term, isDense ? "bij" : "", isDense ? "i8" : ""}};
    a.maskedRows = c.policy;
    Sizes sizes = {{'b', 1}, {'h', 2}, {'i', 1}, {'j', 1}, {'d', 8}, {'e', 9}};
    auto kernel = compileAttention(isa, a, sizes);
    ASSERT_TRUE(kernel);
    for (int64_t i : {9, 33, 70})
      for (int64_t j : {9, 50, 271}) {
        sizes['i'] = i, sizes['j'] = j;
        Operands o(a, sizes, i + j);
        auto sees = [&](int64_t query, int64_t key) {
          return isDense ? query % 7 != 3 && key / 8 % 3 != 0 : key <= query + 5 && key >= query - 40;
        };
        for (int64_t n = 0; isDense && n < i * j; ++n)
          o.mask[0].data<int8_t>()[n] = sees(n / j, n % j);
        Reference reference;
        reference.score = scaled;
        reference.visible = [&](const At &at) { return sees(at.at('i'), at.at('j')); };
        reference.emptyRow = c.policy[0] == 'z' ? 0 : c.policy[0] == 'u' ? INFINITY : NAN;
        ASSERT_TRUE(kernel->call(o.all()));
        ASSERT_EQ(compareWithReference(o, reference), "") << c.term << " " << c.policy << ": " << i << " " << j;
      }
  }
}

TEST_F(AttentionPairsTest, NotANumberInMaskedValues) {
  a.score = kScaleAdd;
  a.captures = {{"ij", "f32"}};
  Sizes sizes = {{'b', 1}, {'h', 1}, {'i', 40}, {'j', 61}, {'d', 16}, {'e', 20}};
  auto kernel = compileAttention(isa, a, sizes);
  ASSERT_TRUE(kernel);
  Operands o(a, sizes);
  for (int64_t i = 0; i < 40; ++i)
    for (int64_t j = 0; j < 61; ++j)
      o.captures[0][i * 61 + j] = j == 17 || (j == 30 && i != 1) ? -INFINITY : 0.0f;
  for (int64_t e = 0; e < 20; ++e)
    o.value.data<uint16_t>()[17 * 20 + e] = e % 2 ? kNan : kInfinite, o.value.data<uint16_t>()[30 * 20 + e] = kNan;
  ASSERT_TRUE(kernel->call(o.all()));
  auto score = [&](double s, const At &at) { return 0.125 * s + o.captures[0][o.offset("ij", at)]; };
  EXPECT_EQ(compareWithReference(o, score), "");
  EXPECT_TRUE(std::isnan(readFloat(o.result, "bf16", 1 * 20))) << "a visible NaN must show";
}

// Maxima that move up again and again: what was weighed before is scaled.
TEST_F(AttentionPairsTest, RisingScores) {
  for (bool hasCapture : {false, true}) {
    a.score = hasCapture ? kScaleAdd : kScale;
    a.captures.clear();
    if (hasCapture)
      a.captures = {{"j", "f32"}};
    Sizes sizes = {{'b', 1}, {'h', 1}, {'i', 33}, {'j', 530}, {'d', 8}, {'e', 9}};
    auto kernel = compileAttention(isa, a, sizes);
    ASSERT_TRUE(kernel);
    Operands o(a, sizes);
    for (int64_t j = 0; j < 530; ++j) {
      float value = 0.5f * static_cast<float>(j);
      uint32_t bits;
      std::memcpy(&bits, &value, sizeof bits);
      o.key.data<uint16_t>()[j * 8] = bits >> 16;
      if (hasCapture)
        o.captures[0][j] = 0.25f * static_cast<float>(j % 97);
    }
    ASSERT_TRUE(kernel->call(o.all()));
    auto score = [&](double s, const At &at) { return 0.125 * s + (hasCapture ? o.captures[0][at.at('j')] : 0); };
    ASSERT_EQ(compareWithReference(o, score), "") << hasCapture;
  }
}

TEST_F(AttentionPairsTest, WeightRegionAndExtras) {
  a.score = kScaleAdd;
  a.weight = "%y = arith.mulf %s, %c1 : f32";
  a.captures = {{"bij", "f32"}, {"h", "f32"}};
  a.extras = {{"raw_scores", "bhij"}, {"lse", "bhi"}};
  a.dynamic = "";
  Sizes sizes = {{'b', 2}, {'h', 3}, {'i', 37}, {'j', 301}, {'d', 8}, {'e', 9}};
  auto kernel = compileAttention(isa, a, sizes);
  ASSERT_TRUE(kernel);
  Operands o(a, sizes);
  ASSERT_TRUE(kernel->call(o.all()));
  auto score = [&](double s, const At &at) { return 0.125 * s + o.captures[0][o.offset("bij", at)]; };
  auto weight = [&](double w, const At &at) { return w * o.captures[1][at.at('h')]; };
  ASSERT_EQ(compareWithReference(o, score, weight), "");
}

} // namespace
