#include "test/kernels/AttentionFixture.h"

#include <cfloat>
#include <cstring>

using namespace attn::test;

namespace {

class AttentionTest : public AttentionFixture {};

INSTANTIATE_TEST_SUITE_P(Isas, AttentionTest, testing::ValuesIn(kIsas), [](auto &info) { return info.param; });

// Every tail of queries and keys with one kernel of dynamic sizes.
TEST_P(AttentionTest, DynamicQueriesAndKeys) {
  Attention a;
  a.score = kScale;
  a.dynamic = "bij";
  Sizes sizes = {{'b', 1}, {'h', 2}, {'i', 0}, {'j', 0}, {'d', 32}, {'e', 32}};
  auto kernel = compileAttention(isa, a, sizes);
  ASSERT_TRUE(kernel);
  for (int64_t i : {0, 1, 15, 16, 17, 33, 70})
    for (int64_t j : {0, 1, 7, 9, 255, 256, 515}) {
      sizes['i'] = i, sizes['j'] = j, sizes['b'] = 1 + j % 2;
      Operands o(a, sizes, i * 1000 + j);
      ASSERT_TRUE(kernel->call(o.all()));
      ASSERT_EQ(compareWithReference(o, scaled), "") << i << " queries, " << j << " keys";
    }
}

TEST_P(AttentionTest, StaticWidths) {
  for (auto [d, e] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {3, 5}, {59, 17}, {80, 130}}) {
    Attention a;
    a.score = kScale;
    Sizes sizes = {{'b', 1}, {'h', 1}, {'i', 37}, {'j', 43}, {'d', d}, {'e', e}};
    for (int64_t i : {37, 2}) {
      if (isa != "avx512" && d != 59)
        continue;
      sizes['i'] = i;
      auto kernel = compileAttention(isa, a, sizes);
      ASSERT_TRUE(kernel);
      Operands o(a, sizes);
      ASSERT_TRUE(kernel->call(o.all()));
      ASSERT_EQ(compareWithReference(o, scaled), "") << d << " " << e << " " << i;
    }
  }
}

// BSHD, a transposed key, a transposed result, packed heads: maps, no copies.
TEST_P(AttentionTest, Layouts) {
  struct Case {
    const char *query, *key, *value, *result;
    int64_t group;
  };
  for (Case c : {Case{"bihd", "bjhd", "bjhe", "bihe", 1}, Case{"bhid", "bhdj", "bhje", "bihe", 1},
                 Case{"hbid", "bhjd", "bhje", "bhie", 4}, Case{"bhdi", "bjhd", "bhej", "bhei", 2},
                 Case{"ibhd", "bjd", "bje", "ibhe", 1}, Case{"dbhi", "jbhd", "jbhe", "ebhi", 1}}) {
    Attention a;
    a.score = kScale;
    a.query = c.query, a.key = c.key, a.value = c.value, a.result = c.result, a.group = c.group;
    a.dynamic = "ij";
    Sizes sizes = {{'b', 2}, {'h', 4}, {'i', 21}, {'j', 19}, {'d', 24}, {'e', 12}};
    auto kernel = compileAttention(isa, a, sizes);
    ASSERT_TRUE(kernel);
    for (int64_t i : {3, 5, 21, 40}) {
      sizes['i'] = i;
      Operands o(a, sizes);
      ASSERT_TRUE(kernel->call(o.all()));
      ASSERT_EQ(compareWithReference(o, scaled), "") << c.query << " " << c.key << " " << c.result << " " << i;
    }
  }
}

// Additive captures of every shape, each read in another way.
// A row without a visible key, beside rows with some, by policy and mask value.
TEST_P(AttentionTest, MaskedRows) {
  for (const char *policy : {"nan", "zero", "uniform", "finite"}) {
    if (isa != "avx512" && policy[0] != 'u')
      continue;
    Attention a;
    a.score = kScaleAdd;
    a.captures = {{"bij", "f32"}};
    a.maskedRows = policy;
    a.dynamic = "ij";
    Sizes sizes = {{'b', 1}, {'h', 2}, {'i', 40}, {'j', 270}, {'d', 8}, {'e', 9}};
    auto kernel = compileAttention(isa, a, sizes);
    ASSERT_TRUE(kernel);
    for (auto [rows, keys] : std::vector<std::pair<int64_t, int64_t>>{{40, 0}, {40, 5}, {40, 270}, {3, 0}, {3, 270}})
      for (float masked : {-INFINITY, -FLT_MAX, -1e4f}) {
        sizes['i'] = rows, sizes['j'] = keys;
        Operands o(a, sizes);
        for (int64_t i = 0; i < rows; ++i)
          for (int64_t j = 0; j < keys; ++j)
            o.captures[0][i * keys + j] = i % 5 == 0 || j > 2 * i ? masked : 0.0f;
        ASSERT_TRUE(kernel->call(o.all()));
        auto score = [&](double s, const At &at) {
          return static_cast<double>(static_cast<float>(0.125 * s) + o.captures[0][o.offset("bij", at)]);
        };
        double empty = std::string(policy) == "zero" ? 0 : std::string(policy) == "uniform" ? INFINITY : NAN;
        ASSERT_EQ(compareWithReference(o, score, nullptr, empty), "")
            << policy << " " << rows << " " << keys << " " << masked;
      }
  }
}

TEST_P(AttentionTest, NotANumberInMaskedValues) {
  Attention a;
  a.score = kScaleAdd;
  a.captures = {{"ij", "f32"}};
  a.dynamic = "i";
  Sizes sizes = {{'b', 1}, {'h', 1}, {'i', 40}, {'j', 61}, {'d', 16}, {'e', 20}};
  auto kernel = compileAttention(isa, a, sizes);
  ASSERT_TRUE(kernel);
  for (int64_t rows : {40, 3}) {
    sizes['i'] = rows;
    Operands o(a, sizes);
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < 61; ++j)
        o.captures[0][i * 61 + j] = j == 17 || (j == 30 && i != 1) ? -INFINITY : 0.0f;
    for (int64_t e = 0; e < 20; ++e)
      o.value[17 * 20 + e] = e % 2 ? NAN : INFINITY, o.value[30 * 20 + e] = NAN;
    ASSERT_TRUE(kernel->call(o.all()));
    auto score = [&](double s, const At &at) { return 0.125 * s + o.captures[0][o.offset("ij", at)]; };
    EXPECT_EQ(compareWithReference(o, score), "") << rows;
    EXPECT_TRUE(std::isnan(o.result[1 * 20])) << "a visible NaN must show";
    EXPECT_FALSE(std::isnan(o.result[2 * 20]));
  }
}

TEST_P(AttentionTest, ExtremeScores) {
  for (bool hasCapture : {false, true}) {
    Attention a;
    a.score = hasCapture ? kScaleAdd : kScale;
    a.dynamic = "i";
    if (hasCapture)
      a.captures = {{"j", "f32"}};
    Sizes sizes = {{'b', 1}, {'h', 1}, {'i', 33}, {'j', 530}, {'d', 8}, {'e', 9}};
    auto kernel = compileAttention(isa, a, sizes);
    ASSERT_TRUE(kernel);
    for (int64_t rows : {33, 2})
      for (float size : {1e-20f, 50.0f, 1e4f, 1e17f}) {
        sizes['i'] = rows;
        Operands o(a, sizes);
        for (int64_t n = 0; n < o.query.size(); ++n)
          o.query[n] *= size;
        ASSERT_TRUE(kernel->call(o.all()));
        auto score = [&](double s, const At &at) { return 0.125 * s + (hasCapture ? o.captures[0][at.at('j')] : 0); };
        ASSERT_EQ(compareWithReference(o, score), "") << hasCapture << " " << rows << " " << size;
      }
  }
}

// Scores of 1e4 are rounded to 1e-3. The sweep that writes weights rounds them as the one that adds them up does.
TEST_P(AttentionTest, WeightsOfGreatScoresSumToOne) {
  Attention a;
  a.score = kScale;
  a.dynamic = "i";
  a.extras = {{"weights", "bhij"}};
  Sizes sizes = {{'b', 1}, {'h', 1}, {'i', 33}, {'j', 530}, {'d', 8}, {'e', 9}};
  auto kernel = compileAttention(isa, a, sizes);
  ASSERT_TRUE(kernel);
  for (int64_t rows : {33, 2}) {
    sizes['i'] = rows;
    Operands o(a, sizes);
    for (int64_t n = 0; n < o.query.size(); ++n)
      o.query[n] *= 1e4f;
    ASSERT_TRUE(kernel->call(o.all()));
    for (int64_t i = 0; i < rows; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < 530; ++j)
        sum += o.extras[0][i * 530 + j];
      ASSERT_NEAR(sum, 1, 1e-5) << rows << " rows, row " << i;
    }
  }
}

// Weights run through all exponents under sharp scores: denormals are 0 inside, and the caller's as before.
TEST_P(AttentionTest, DenormalsAreZero) {
  if (isa == "portable")
    GTEST_SKIP() << "denormals stay where no control register is known";
  Attention a;
  a.score = kScale;
  a.dynamic = "i";
  Sizes sizes = {{'b', 1}, {'h', 1}, {'i', 33}, {'j', 300}, {'d', 8}, {'e', 9}};
  auto kernel = compileAttention(isa, a, sizes);
  ASSERT_TRUE(kernel);
  unsigned control = __builtin_ia32_stmxcsr();
  for (int64_t rows : {33, 4}) { // many queries, and few
    sizes['i'] = rows;
    Operands o(a, sizes);
    for (int64_t n = 0; n < o.query.size(); ++n)
      o.query[n] *= 40;
    ASSERT_TRUE(kernel->call(o.all()));
    ASSERT_EQ(compareWithReference(o, scaled), "");
    for (int64_t n = 0; n < o.value.size(); ++n)
      o.value[n] = 1e-40f;
    ASSERT_TRUE(kernel->call(o.all()));
    for (int64_t n = 0; n < o.result.size(); ++n)
      ASSERT_EQ(o.result[n], 0) << rows << " rows, element " << n;
    ASSERT_EQ(__builtin_ia32_stmxcsr(), control);
  }
}

// Weights that are no exponentials below a maximum may all be denormal, as sigmoids of -88 are, and still sum to 1.
TEST_P(AttentionTest, DenormalsSumToOne) {
  Attention a;
  a.normalizer = "sum";
  a.score = "%k = arith.constant 3.0e-39 : f32\n%p = math.absf %s : f32\n%y = arith.mulf %p, %k : f32";
  a.dynamic = "ij";
  Sizes sizes = {{'b', 1}, {'h', 1}, {'i', 33}, {'j', 300}, {'d', 8}, {'e', 9}};
  auto kernel = compileAttention(isa, a, sizes);
  ASSERT_TRUE(kernel);
  Reference reference;
  reference.score = [](double s, const At &) { return 3e-39 * std::fabs(s); };
  for (int64_t rows : {33, 4, 1})
    for (int64_t keys : {300, 5}) {
      sizes['i'] = rows, sizes['j'] = keys;
      Operands o(a, sizes);
      ASSERT_TRUE(kernel->call(o.all()));
      ASSERT_EQ(compareWithReference(o, reference), "") << rows << " queries, " << keys << " keys";
    }
}

// A NaN or an infinite score poisons its row, as softmax does, and no other.
TEST_P(AttentionTest, NotANumberInQueries) {
  Attention a;
  a.score = kScale;
  a.dynamic = "i";
  Sizes sizes = {{'b', 1}, {'h', 1}, {'i', 33}, {'j', 300}, {'d', 8}, {'e', 9}};
  auto kernel = compileAttention(isa, a, sizes);
  ASSERT_TRUE(kernel);
  for (int64_t rows : {33, 4})
    for (float bad : {NAN, INFINITY}) {
      sizes['i'] = rows;
      Operands o(a, sizes);
      o.query[3 * 8 + 3] = bad;
      ASSERT_TRUE(kernel->call(o.all()));
      for (int64_t n = 0; n < o.result.size(); ++n)
        ASSERT_EQ(std::isnan(o.result[n]), n / 9 == 3) << rows << " " << n;
    }
}

// Windows on either side of the query, and rows that see no key: values that no query sees are not read.
TEST_P(AttentionTest, LimitsOfKeys) {
  constexpr int64_t kNone = 1000;
  struct Case {
    int64_t left, right;
    const char *policy;
  };
  std::vector<Case> cases{{40, 5, "zero"}};
  if (isa == "avx512")
    cases.insert(cases.end(), {{4, -1, "uniform"}, {kNone, -2, "zero"}, {0, kNone, "nan"}});
  for (Case c : cases) {
    Attention a;
    a.maskedRows = c.policy;
    a.dynamic = "ij";
    a.score = kScale;
    auto side = [](int64_t keys) { return keys == kNone ? std::string("inf") : std::to_string(keys); };
    a.mask = {{"window<" + side(c.left) + ", " + side(c.right) + ">", "", ""}};
    Sizes sizes = {{'b', 1}, {'h', 2}, {'i', 1}, {'j', 1}, {'d', 8}, {'e', 9}};
    auto kernel = compileAttention(isa, a, sizes);
    ASSERT_TRUE(kernel);
    auto sees = [&](int64_t i, int64_t j) {
      return (c.right == kNone || j <= i + c.right) && (c.left == kNone || j >= i - c.left);
    };
    for (int64_t i : {3, 33, 70})
      for (int64_t j : {0, 9, 50, 270}) {
        sizes['i'] = i, sizes['j'] = j;
        Operands o(a, sizes, i + j);
        for (int64_t key = 0; key < j; ++key) {
          bool isSeen = false;
          for (int64_t query = 0; query < i; ++query)
            isSeen |= sees(query, key);
          for (int64_t n = 0; !isSeen && c.policy[0] != 'u' && n < 9; ++n)
            o.value[key * 9 + n] = o.value[(j + key) * 9 + n] = NAN;
        }
        ASSERT_TRUE(kernel->call(o.all()));
        auto score = [&](double s, const At &at) { return sees(at.at('i'), at.at('j')) ? 0.125 * s : -INFINITY; };
        double empty = c.policy[0] == 'z' ? 0 : c.policy[0] == 'u' ? INFINITY : NAN;
        ASSERT_EQ(compareWithReference(o, score, nullptr, empty), "")
            << c.left << " " << c.right << ": " << i << " queries, " << j << " keys";
        std::vector<float> once = o.result.values();
        o.result.poison();
        ASSERT_TRUE(kernel->call(o.all(), 3));
        ASSERT_EQ(std::memcmp(once.data(), o.result.data(), once.size() * sizeof(float)), 0) << "the cut shows";
      }
  }
}

// A dear region is written once, in a loop over the keys of a tile: captures of every shape, every tail of keys.
TEST_P(AttentionTest, SameBitsForEveryCut) {
  Attention a;
  a.score = kScaleAdd;
  a.captures = {{"bj", "f32"}};
  Sizes sizes = {{'b', 2}, {'h', 3}, {'i', 77}, {'j', 60}, {'d', 16}, {'e', 16}};
  auto kernel = compileAttention(isa, a, sizes);
  ASSERT_TRUE(kernel);
  Operands o(a, sizes);
  ASSERT_TRUE(kernel->call(o.all()));
  std::vector<float> once = o.result.values();
  for (int64_t pieces : {2, 5, 18}) {
    o.result.poison();
    ASSERT_TRUE(kernel->call(o.all(), pieces));
    EXPECT_EQ(o.result.values(), once) << pieces;
  }
}

// A few queries: their keys in parts, heads of a group beside each other.
TEST_P(AttentionTest, FewQueriesOnManyKeys) {
  struct Case {
    int64_t b, h, i, group;
    std::vector<Attention::Term> mask;
    const char *policy;
  };
  std::vector<Case> cases{{1, 1, 1, 1, {}, "nan"},
                          {2, 6, 1, 3, {{"lengths", "b", "i64"}}, "zero"},
                          {1, 8, 3, 4, {{"causal<900>", "", ""}, {"window<700, inf>", "", ""}}, "nan"},
                          {1, 4, 2, 4, {{"lengths", "bh", "i64"}}, "uniform"},
                          {1, 2, 2, 1, {{"dense", "bij", "i8"}}, "finite"},
                          {4, 32, 1, 4, {}, "nan"}};
  for (const Case &c : cases) {
    Attention a;
    a.score = kScale;
    a.group = c.group;
    a.maskedRows = c.policy;
    a.mask = c.mask;
    a.dynamic = c.i == 2 || c.h == 1 ? "ij" : "j";
    Sizes sizes = {{'b', c.b}, {'h', c.h}, {'i', c.i}, {'j', 1}, {'d', 24}, {'e', 20}};
    auto kernel = compileAttention(isa, a, sizes);
    ASSERT_TRUE(kernel);
    for (int64_t j : {0, 13, 1027, 5200}) {
      sizes['j'] = j;
      Operands o(a, sizes, static_cast<unsigned>(j));
      std::function<bool(const At &)> visible;
      if (!c.mask.empty() && c.mask[0].term == "lengths") {
        for (int64_t n = 0; n < o.mask[0].size(); ++n)
          o.mask[0].data<int64_t>()[n] = n % 3 == 1 ? 0 : j - 5 * n;
        visible = [&](const At &at) { return at.at('j') < o.mask[0].data<int64_t>()[o.offset(c.mask[0].dims, at)]; };
      } else if (!c.mask.empty() && c.mask[0].term == "dense") {
        // The first blocks hidden; the second row hidden altogether.
        for (int64_t n = 0; n < o.mask[0].size(); ++n)
          o.mask[0].data<int8_t>()[n] = n < j && n > 600;
        for (int64_t n = 0; n < o.query.size(); ++n)
          o.query[n] *= 100;
        visible = [&](const At &at) { return at.at('i') == 0 && at.at('j') > 600; };
      } else if (!c.mask.empty()) {
        visible = [](const At &at) { return at.at('j') <= at.at('i') + 900 && at.at('j') >= at.at('i') - 700; };
      }
      Reference reference{scaled};
      reference.visible = visible;
      reference.emptyRow = c.policy[0] == 'z' ? 0 : c.policy[0] == 'u' ? INFINITY : NAN;
      ASSERT_TRUE(kernel->call(o.all(), 3));
      ASSERT_EQ(compareWithReference(o, reference), "") << c.b << "x" << c.h << "x" << c.i << ": " << j << " keys";
      std::vector<float> once = o.result.values();
      ASSERT_TRUE(kernel->call(o.all(), 1));
      EXPECT_EQ(std::memcmp(o.result.data(), once.data(), once.size() * sizeof(float)), 0);
    }
  }
}

TEST(AttentionSpec, RefusesWithAReason) {
  Attention a;
  a.score = kScale;
  a.dynamic = "d";
  Sizes sizes = {{'b', 1}, {'h', 1}, {'i', 4}, {'j', 4}, {'d', 8}, {'e', 8}};
  testing::internal::CaptureStderr();
  EXPECT_FALSE(compileAttention("portable", a, sizes));
  EXPECT_NE(testing::internal::GetCapturedStderr().find("the key width is dynamic"), std::string::npos);
}

} // namespace
