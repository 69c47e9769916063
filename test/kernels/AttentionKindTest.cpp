#include "test/kernels/AttentionFixture.h"

using namespace attn::test;

// Kinds of scores, normalisers, extra results and element types.
namespace {

class AttentionKindTest : public AttentionFixture {};

INSTANTIATE_TEST_SUITE_P(Isas, AttentionKindTest, testing::ValuesIn(kIsas), [](auto &info) { return info.param; });

// Hidden keys take part, with scores of their own, in rows that see no other.
TEST_P(AttentionKindTest, HiddenKeysTakePart) {
  for (auto [kind, hasWeights] : {std::pair("dot", false), {"given", false}, {"dot", true}}) {
    if (isa != "avx512" && kind[0] == 'd')
      continue;
    Attention a;
    a.kind = kind;
    if (hasWeights)
      a.extras = {{"weights", "bhij"}};
    if (a.kind == "given")
      a.query = "bhij";
    a.score = kScale;
    a.masked = "%c = arith.constant -1.0e+04 : f32\n%y = arith.addf %s, %c : f32";
    a.maskedRows = "finite";
    a.mask = {{"dense", "bij", "i8"}, {"causal<2>", "", ""}};
    a.dynamic = "ij";
    Sizes sizes = {{'b', 2}, {'h', 2}, {'i', 1}, {'j', 1}, {'d', 8}, {'e', 9}};
    auto kernel = compileAttention(isa, a, sizes);
    ASSERT_TRUE(kernel);
    for (int64_t i : {3, 40})
      for (int64_t j : {0, 5, 290}) {
        sizes['i'] = i, sizes['j'] = j;
        Operands o(a, sizes, i + j);
        for (int64_t n = 0; n < o.mask[0].size(); ++n)
          o.mask[0].data<int8_t>()[n] = n / std::max<int64_t>(j, 1) % 3 != 1 && n % 4;
        ASSERT_TRUE(kernel->call(o.all()));
        Reference reference{scaled};
        reference.visible = [&](const At &at) {
          return o.mask[0].data<int8_t>()[o.offset("bij", at)] && at.at('j') <= at.at('i') + 2;
        };
        reference.masked = [](double s, const At &) { return static_cast<double>(static_cast<float>(s) - 1e4f); };
        ASSERT_EQ(compareWithReference(o, reference), "") << kind << ": " << i << " queries, " << j << " keys";
      }
  }
}

// Sums over a long context stay within the bound of a short one.
TEST_P(AttentionKindTest, LongContext) {
  if (isa != "avx512")
    GTEST_SKIP() << "the order of sums is the same";
  Attention a;
  a.score = kScale;
  a.dynamic = "i";
  Sizes sizes = {{'b', 1}, {'h', 1}, {'i', 1}, {'j', 1 << 17}, {'d', 4}, {'e', 4}};
  auto kernel = compileAttention(isa, a, sizes);
  ASSERT_TRUE(kernel);
  for (int64_t i : {1, 5}) {
    sizes['i'] = i;
    Operands o(a, sizes);
    for (int64_t n = 0; n < o.value.size(); ++n)
      o.value[n] += 3; // sums that grow
    ASSERT_TRUE(kernel->call(o.all()));
    ASSERT_EQ(compareWithReference(o, scaled), "") << i;
  }
}

//===----------------------------------------------------------------------===//
// Kinds
//===----------------------------------------------------------------------===//

TEST_P(AttentionKindTest, Additive) {
  struct Case {
    const char *activation;
    std::function<double(double)> reference;
    int64_t d;
    std::string key;
  };
  auto tanh = [](double x) { return std::tanh(x); };
  std::vector<Case> cases{{"%y = math.tanh %s : f32", tanh, 37, "bhjd"},
                          {"%z = arith.constant 0.0 : f32\n%y = arith.maximumf %s, %z : f32",
                           [](double x) { return std::fmax(x, 0); }, 16, "bhjd"}};
  if (isa == "avx512")
    cases.insert(cases.end(), {{"%y = math.tanh %s : f32", tanh, 1, "bjhd"},
                               {"%y = math.tanh %s : f32", tanh, 3, "bhjd"},
                               {"%y = math.tanh %s : f32", tanh, 130, "bhdj"},
                               {"", [](double x) { return x; }, 1, "bhjd"}});
  for (const Case &c : cases) {
    Attention a;
    a.kind = "additive";
    a.score = "%z0 = arith.constant 0.0 : f32\n%y = arith.addf %s, %z0 : f32";
    a.activation = c.activation;
    a.key = c.key;
    a.dynamic = "ij";
    a.mask = {{"lengths", "b", "i64"}};
    a.maskedRows = "zero";
    Sizes sizes = {{'b', 2}, {'h', 2}, {'i', 1}, {'j', 1}, {'d', c.d}, {'e', 9}};
    auto kernel = compileAttention(isa, a, sizes);
    ASSERT_TRUE(kernel);
    for (int64_t i : {1, 3, 37})
      for (int64_t j : {1, 21})
        // Four columns share a division, two, or none; weights of 1e30 times a product would overflow.
        for (auto [size, weight] : {std::pair(1.0f, 1.0f), {4, 1}, {15, 1}, {30, 1}, {9, 1e30f}, {20, 1e30f}}) {
          sizes['i'] = i, sizes['j'] = j;
          Operands o(a, sizes, i + j);
          set<int64_t>(o.mask[0], {j, j / 2});
          for (int64_t n = 0; n < o.query.size(); ++n)
            o.query[n] *= size;
          for (int64_t n = 0; n < o.alignment.size(); ++n)
            o.alignment[n] *= weight / std::sqrt(static_cast<float>(c.d));
          ASSERT_TRUE(kernel->call(o.all()));
          Reference reference;
          reference.activation = c.reference;
          reference.visible = [&](const At &at) { return at.at('j') < o.mask[0].data<int64_t>()[at.at('b')]; };
          reference.emptyRow = 0;
          ASSERT_EQ(compareWithReference(o, reference), "")
              << c.activation << " " << c.d << ": " << i << " queries, " << j << " keys, " << size << ", " << weight;
        }
  }
}

// A Gaussian of the distance of query and key; near vectors that are far from 0, too, where products would cancel.
TEST_P(AttentionKindTest, Distance) {
  for (int64_t d : {1, 7, 16, 130}) {
    if (isa != "avx512" && d != 7)
      continue;
    Attention a;
    a.kind = "distance";
    a.score = "%c = arith.constant -0.0625 : f32\n%y = arith.mulf %s, %c : f32";
    a.dynamic = "ij";
    a.mask = {{"lengths", "b", "i64"}};
    a.maskedRows = "zero";
    if (d == 16)
      a.key = "bhdj";
    Sizes sizes = {{'b', 2}, {'h', 2}, {'i', 1}, {'j', 1}, {'d', d}, {'e', 9}};
    auto kernel = compileAttention(isa, a, sizes);
    ASSERT_TRUE(kernel);
    for (int64_t i : {1, 3, 37})
      for (int64_t j : {0, 1, 21, 300}) {
        sizes['i'] = i, sizes['j'] = j;
        Operands o(a, sizes, i + j);
        set<int64_t>(o.mask[0], {j, j / 2});
        for (int64_t n = 0; n < o.query.size(); ++n)
          o.query[n] += 100;
        for (int64_t n = 0; n < o.key.size(); ++n)
          o.key[n] += 100;
        ASSERT_TRUE(kernel->call(o.all()));
        Reference reference;
        reference.score = [](double s, const At &) { return -0.0625 * s; };
        reference.visible = [&](const At &at) { return at.at('j') < o.mask[0].data<int64_t>()[at.at('b')]; };
        reference.emptyRow = 0;
        ASSERT_EQ(compareWithReference(o, reference), "") << d << ": " << i << " queries, " << j << " keys";
      }
  }
}

TEST_P(AttentionKindTest, Given) {
  for (const char *normalizer : {"softmax", "sum", "none"})
    for (const char *layout : {"bhij", "bhji"}) {
      Attention a; // sigmoid weights, or a leaky softmax
      a.kind = "given";
      a.query = layout;
      a.normalizer = normalizer;
      a.maskedRows = a.normalizer == "none" || layout[2] == 'i' ? "zero" : "nan";
      bool isSoftmax = a.normalizer == "softmax";
      a.score = isSoftmax ? "%k = arith.constant 2.0 : f32\n%y = arith.mulf %s, %k : f32"
                          : "%o = arith.constant 1.0 : f32\n%n = arith.negf %s : f32\n%e = math.exp %n : f32\n"
                            "%d = arith.addf %e, %o : f32\n%y = arith.divf %o, %d : f32";
      a.dynamic = "ij";
      a.mask = {{"window<9, 3>", "", ""}};
      Sizes sizes = {{'b', 2}, {'h', 2}, {'i', 1}, {'j', 1}, {'d', 1}, {'e', layout[2] == 'i' ? 1 : 20}};
      if (isa != "avx512" && (isSoftmax || layout[2] == 'j'))
        continue;
      auto kernel = compileAttention(isa, a, sizes);
      ASSERT_TRUE(kernel);
      for (int64_t i : {1, 40})
        for (int64_t j : {0, 5, 275}) {
          sizes['i'] = i, sizes['j'] = j;
          Operands o(a, sizes, i + j);
          ASSERT_TRUE(kernel->call(o.all()));
          Reference reference;
          reference.score = [&](double s, const At &) { return isSoftmax ? 2 * s : 1 / (1 + std::exp(-s)); };
          reference.visible = [](const At &at) { return at.at('j') >= at.at('i') - 9 && at.at('j') <= at.at('i') + 3; };
          reference.emptyRow = a.maskedRows == "zero" ? 0 : NAN;
          ASSERT_EQ(compareWithReference(o, reference), "")
              << normalizer << " " << layout << ": " << i << " queries, " << j << " keys";
        }
    }
}

//===----------------------------------------------------------------------===//
// Extra results and element types
//===----------------------------------------------------------------------===//

TEST_P(AttentionKindTest, ExtraResults) {
  struct Case {
    const char *policy;
    std::vector<std::pair<std::string, std::string>> extras;
    const char *weight;
  };
  std::vector<Case> cases{
      {"zero", {{"lse", "bhi"}}, ""},
      {"zero", {{"weights", "bhij"}, {"final_weights", "bijh"}, {"lse", "ibh"}}, "%y = arith.mulf %s, %s : f32"},
      {"nan", {{"weights", "bhij"}}, ""},
      {"uniform", {{"raw_scores", "bhij"}, {"scores", "bhji"}, {"masked_scores", "bhij"}}, ""}};
  for (const Case &c : cases) {
    if (isa != "avx512" && !*c.weight)
      continue;
    Attention a;
    a.score = kScale;
    a.weight = c.weight;
    a.maskedRows = c.policy;
    a.extras = c.extras;
    a.mask = {{"causal<-2>", "", ""}};
    a.dynamic = "ij";
    Sizes sizes = {{'b', 2}, {'h', 2}, {'i', 1}, {'j', 1}, {'d', 8}, {'e', 9}};
    auto kernel = compileAttention(isa, a, sizes);
    ASSERT_TRUE(kernel);
    for (int64_t i : {1, 40, 67})
      for (int64_t j : {0, 5, 275}) {
        sizes['i'] = i, sizes['j'] = j;
        Operands o(a, sizes, i + j);
        ASSERT_TRUE(kernel->call(o.all(), 2));
        Reference reference{scaled};
        if (*c.weight)
          reference.weight = [](double w, const At &) { return w * w; };
        reference.visible = [](const At &at) { return at.at('j') <= at.at('i') - 2; };
        reference.emptyRow = c.policy[0] == 'z' ? 0 : c.policy[0] == 'u' ? INFINITY : NAN;
        ASSERT_EQ(compareWithReference(o, reference), "") << c.policy << ": " << i << " queries, " << j << " keys";
      }
  }
}

// A tile that a dense mask hides is skipped, but its weights are results.
TEST_P(AttentionKindTest, WeightsOfHiddenTiles) {
  Attention a;
  a.score = kScale;
  a.maskedRows = "zero";
  a.extras = {{"weights", "bhij"}};
  a.mask = {{"dense", "bij", "i8"}};
  Sizes sizes = {{'b', 1}, {'h', 2}, {'i', 40}, {'j', 70}, {'d', 8}, {'e', 9}};
  auto kernel = compileAttention(isa, a, sizes);
  ASSERT_TRUE(kernel);
  Operands o(a, sizes);
  for (int64_t n = 0; n < o.mask[0].size(); ++n)
    o.mask[0].data<int8_t>()[n] = n % 70 / 16 % 2;
  ASSERT_TRUE(kernel->call(o.all(), 2));
  Reference reference{scaled};
  reference.visible = [&](const At &at) { return o.mask[0].data<int8_t>()[o.offset("bij", at)] != 0; };
  reference.emptyRow = 0;
  ASSERT_EQ(compareWithReference(o, reference), "");
}

// Weights of a few queries, whose keys may be in parts, stand in the scores' place.
TEST_P(AttentionKindTest, WeightsOfFewQueries) {
  struct Case {
    const char *policy;
    std::vector<Attention::Term> mask;
    const char *dynamic, *layout;
    std::function<bool(const Operands &, const At &)> visible;
  };
  auto causal = [](const Operands &, const At &at) {
    return at.at('j') <= at.at('i') + 900 && at.at('j') >= at.at('i') - 700;
  };
  auto lengths = [](const Operands &o, const At &at) { return at.at('j') < o.mask[0].data<int64_t>()[at.at('b')]; };
  auto dense = [](const Operands &o, const At &at) { return o.mask[0].data<int8_t>()[o.offset("bij", at)] != 0; };
  std::vector<Case> cases{{"zero", {{"causal<900>", "", ""}, {"window<700, inf>", "", ""}}, "ij", "bhij", causal},
                          {"nan", {{"lengths", "b", "i64"}}, "j", "hbij", lengths},
                          {"uniform", {{"lengths", "b", "i64"}}, "ij", "bhij", lengths},
                          {"finite", {{"dense", "bij", "i8"}}, "j", "bhij", dense},
                          {"nan", {}, "ij", "bhji", nullptr}, // no rows of weights: blocks
                          {"nan", {}, "j", "bhij", nullptr}};
  for (const Case &c : cases) {
    Attention a;
    a.score = kScale;
    a.group = 2;
    a.maskedRows = c.policy;
    a.mask = c.mask;
    a.dynamic = c.dynamic;
    a.extras = {{"weights", c.layout}};
    Sizes sizes = {{'b', 2}, {'h', 2}, {'i', 3}, {'j', 1}, {'d', 24}, {'e', 20}};
    auto kernel = compileAttention(isa, a, sizes);
    ASSERT_TRUE(kernel);
    for (int64_t i : {1, 3, 5})
      for (int64_t j : {0, 13, 1027, 5200}) {
        if (i != 3 && c.dynamic[0] != 'i')
          continue;
        sizes['i'] = i, sizes['j'] = j;
        Operands o(a, sizes, i + j);
        if (!c.mask.empty() && c.mask[0].term == "lengths")
          set<int64_t>(o.mask[0], {0, j - 5});
        else if (!c.mask.empty() && c.mask[0].term == "dense")
          for (int64_t n = 0; n < o.mask[0].size(); ++n)
            o.mask[0].data<int8_t>()[n] = n / std::max<int64_t>(j, 1) % 3 != 1 && n % 4 == 1;
        Reference reference{scaled};
        if (c.visible)
          reference.visible = [&](const At &at) { return c.visible(o, at); };
        reference.emptyRow = c.policy[0] == 'z' ? 0 : c.policy[0] == 'u' ? INFINITY : NAN;
        ASSERT_TRUE(kernel->call(o.all(), 3));
        ASSERT_EQ(compareWithReference(o, reference), "")
            << c.policy << " " << c.layout << ": " << i << " queries, " << j << " keys";
        std::vector<float> once = o.extras[0].values();
        o.extras[0].poison();
        ASSERT_TRUE(kernel->call(o.all(), 1));
        EXPECT_EQ(std::memcmp(o.extras[0].data(), once.data(), once.size() * sizeof(float)), 0) << "the cut shows";
      }
  }
}

// Rows of -0, NaN and infinities, one query at a time and in blocks, with their weights.
TEST_P(AttentionKindTest, NotFiniteRows) {
  for (bool hasWeights : {false, true}) {
    Attention a;
    a.score = kScale;
    a.dynamic = "ij";
    a.mask = {{"lengths", "b", "i64"}};
    a.maskedRows = "zero";
    if (hasWeights)
      a.extras = {{"weights", "bhij"}};
    Sizes sizes = {{'b', 1}, {'h', 4}, {'i', 1}, {'j', 1}, {'d', 24}, {'e', 20}};
    auto kernel = compileAttention(isa, a, sizes);
    ASSERT_TRUE(kernel);
    for (int64_t i : {1, 4, 19})
      for (int64_t j : {21, 1030}) {
        sizes['i'] = i, sizes['j'] = j;
        Operands o(a, sizes, i + j);
        set<int64_t>(o.mask[0], {j - 3});
        // Head 0: queries of -0; 1: one NaN in a query; 2: one infinite score, and one of -inf; 3: hidden keys that
        // are NaN, and a visible value that is infinite.
        int64_t queries = i * 24, keys = j * 24, values = j * 20;
        for (int64_t n = 0; n < queries; ++n)
          o.query[n] = -0.0f;
        o.query[queries + 5] = NAN;
        for (int64_t n = 0; n < 24; ++n)
          o.key[2 * keys + 7 * 24 + n] = n == 2 ? INFINITY : 0.0f,
                                    o.key[2 * keys + (j - 4) * 24 + n] = n ? 0 : -INFINITY;
        for (int64_t n = (j - 2) * 24; n < keys; ++n)
          o.key[3 * keys + n] = NAN;
        for (int64_t n = (j - 2) * 20; n < values; ++n)
          o.value[3 * values + n] = NAN;
        o.value[3 * values + 4 * 20 + 1] = INFINITY;
        for (int64_t n = 0; n < 20; ++n)
          o.value[n] = -0.0f;
        ASSERT_TRUE(kernel->call(o.all(), 3));
        Reference reference{scaled};
        reference.visible = [&](const At &at) { return at.at('j') < j - 3; };
        reference.emptyRow = 0;
        ASSERT_EQ(compareWithReference(o, reference), "") << hasWeights << ": " << i << " queries, " << j << " keys";
      }
  }
}

// Queries of f32 by a cache in 16 bits: few of them and blocks, keys in rows and in columns, every tail.
TEST_P(AttentionKindTest, StoredKeysAndValues) {
  if (isa == "portable")
    GTEST_SKIP() << "the harness widens with the machine's instructions";
  for (const char *stored : {"bf16", "f16"})
    for (const char *key : {"bhjd", "bhdj"}) {
      Attention a;
      a.stored = stored;
      a.key = key;
      a.score = kScale;
      a.dynamic = "ij";
      for (int64_t width : {20, 64}) {
        Sizes sizes = {{'b', 2}, {'h', 2}, {'i', 1}, {'j', 1}, {'d', width == 20 ? 41 : 64}, {'e', width}};
        auto kernel = compileAttention(isa, a, sizes);
        ASSERT_TRUE(kernel);
        EXPECT_EQ(kernel->assembly().find("__extendhfsf2"), std::string::npos);
        for (int64_t i : {1, 4, 5, 17})
          for (int64_t j : {1, 15, 16, 17, 275}) {
            sizes['i'] = i, sizes['j'] = j;
            Operands o(a, sizes, i + j);
            ASSERT_TRUE(kernel->call(o.all()));
            ASSERT_EQ(compareWithReference(o, Reference{scaled}), "")
                << stored << " " << key << ": " << i << " queries, " << j << " keys, width " << width;
          }
      }
    }
}

TEST_P(AttentionKindTest, NarrowElements) {
  if (isa == "portable")
    GTEST_SKIP() << "the harness widens with the machine's instructions";
  for (const char *element : {"bf16", "f16"})
    for (const char *kind : {"dot", "additive"}) {
      if ((element[0] == 'b') == (kind[0] == 'a'))
        continue;
      Attention a;
      a.element = element;
      a.kind = kind;
      a.score = kScale;
      a.activation = a.kind == "dot" ? "" : "%y = math.tanh %s : f32";
      a.dynamic = "ij";
      // Widths with and without a tail, queries one by one and in blocks, every rest of keys.
      for (int64_t width : {20, 32}) {
        Sizes sizes = {{'b', 2}, {'h', 2}, {'i', 1}, {'j', 1}, {'d', width == 20 ? 40 : 16}, {'e', width}};
        auto kernel = compileAttention(isa, a, sizes);
        ASSERT_TRUE(kernel);
        for (int64_t i : {1, 3, 17})
          for (int64_t j : {1, 9, 275}) {
            sizes['i'] = i, sizes['j'] = j;
            Operands o(a, sizes, i + j);
            ASSERT_TRUE(kernel->call(o.all()));
            Reference reference{scaled};
            reference.activation = [](double x) { return std::tanh(x); };
            ASSERT_EQ(compareWithReference(o, reference), "")
                << element << " " << kind << ": " << i << " queries, " << j << " keys, width " << width;
          }
      }
    }
}

} // namespace
