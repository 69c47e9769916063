#include "test/kernels/AttentionFixture.h"

using namespace attn::test;

// Every mask term, alone and beside others.
namespace {

class AttentionMaskTest : public AttentionFixture {};

INSTANTIATE_TEST_SUITE_P(Isas, AttentionMaskTest, testing::ValuesIn(kIsas), [](auto &info) { return info.param; });

struct MaskCase {
  const char *name;
  std::vector<Attention::Term> terms;
  const char *policy;
  std::function<void(const Operands &)> setUp;
  std::function<bool(const Operands &, const At &)> visible;
};

void nothing(const Operands &) {}

std::vector<MaskCase> chunkCases() {
  return {
      {"chunks",
       {{"chunks<12, 1, 0>", "", ""}},
       "nan",
       nothing,
       [](const Operands &, const At &at) {
         int64_t own = at.at('i') / 12, chunk = at.at('j') / 12;
         return chunk >= own - 1 && chunk <= own;
       }},
      {"chunks by batch and a prefix",
       {{"chunks<5, inf, -1, offset>", "b", "i64"}, {"causal<-9>", "", ""}, {"prefix<2>", "", ""}},
       "zero",
       [](const Operands &o) { set<int64_t>(o.mask[0], {-10, 15}); },
       [](const Operands &o, const At &at) {
         int64_t i = at.at('i'), j = at.at('j'), shift = o.mask[0].data<int64_t>()[at.at('b')];
         return j < i / 5 * 5 + shift && (j <= i - 9 || j < 2);
       }},
  };
}

std::vector<MaskCase> maskCases() {
  return {
      {"causal",
       {{"causal<3>", "", ""}},
       "nan",
       nothing,
       [](const Operands &, const At &at) { return at.at('j') <= at.at('i') + 3; }},
      {"causal by batch, lengths",
       {{"causal<?>", "b", "i64"}, {"lengths", "b", "i32"}},
       "zero",
       [](const Operands &o) { set<int64_t>(o.mask[0], {-5, 200}), set<int32_t>(o.mask[1], {45, 7}); },
       [](const Operands &o, const At &at) {
         return at.at('j') <= at.at('i') + o.mask[0].data<int64_t>()[at.at('b')] &&
                at.at('j') < o.mask[1].data<int32_t>()[at.at('b')];
       }},
      {"window and prefix",
       {{"window<4, -1>", "", ""}, {"prefix<2>", "", ""}},
       "uniform",
       nothing,
       [](const Operands &, const At &at) {
         int64_t i = at.at('i'), j = at.at('j');
         return j < 2 || (j >= i - 4 && j <= i - 1);
       }},
      {"centre",
       {{"window<5, 9, centre>", "bi", "f32"}},
       "zero",
       [](const Operands &o) { set<float>(o.mask[0], {3.5f, 20, -100, 1e30f, NAN, 11.25f, 33.99f}); },
       [](const Operands &o, const At &at) {
         double c = o.mask[0][o.offset("bi", at)];
         return at.at('j') >= c - 5 && at.at('j') <= c + 9;
       }},
      {"prefix by batch",
       {{"causal<0>", "", ""}, {"prefix<?>", "b", "i64"}, {"window<6, inf>", "", ""}},
       "nan",
       [](const Operands &o) { set<int64_t>(o.mask[1], {13, -4}); },
       [](const Operands &o, const At &at) {
         int64_t i = at.at('i'), j = at.at('j');
         return j < o.mask[1].data<int64_t>()[at.at('b')] || (j <= i && j >= i - 6);
       }},
      {"lengths by row",
       {{"lengths", "bi", "i64"}, {"window<inf, 2, offset>", "h", "index"}},
       "nan",
       [](const Operands &o) { set<int64_t>(o.mask[0], {3, 60, 17, 0, 9}), set<int64_t>(o.mask[1], {4, -1}); },
       [](const Operands &o, const At &at) {
         return at.at('j') < o.mask[0].data<int64_t>()[o.offset("bi", at)] &&
                at.at('j') <= at.at('i') + o.mask[1].data<int64_t>()[at.at('h')] + 2;
       }},
      {"dense",
       {{"dense", "bij", "i8"}, {"causal<20>", "", ""}},
       "zero",
       [](const Operands &o) {
         At at;
         for (at['b'] = 0; at['b'] < o.sizes.at('b'); ++at['b'])
           for (at['i'] = 0; at['i'] < o.sizes.at('i'); ++at['i'])
             for (at['j'] = 0; at['j'] < o.sizes.at('j'); ++at['j'])
               o.mask[0].data<int8_t>()[o.offset("bij", at)] = at['j'] / 16 == at['i'] / 16 && at['j'] % 5 != 1;
       },
       [](const Operands &o, const At &at) {
         return o.mask[0].data<int8_t>()[o.offset("bij", at)] && at.at('j') <= at.at('i') + 20;
       }},
      {"dense keys",
       {{"dense", "bj", "i32"}},
       "nan",
       [](const Operands &o) { set<int32_t>(o.mask[0], {0, 7, 0, -1, 1}); },
       [](const Operands &o, const At &at) { return o.mask[0].data<int32_t>()[o.offset("bj", at)] != 0; }},
  };
}

TEST_P(AttentionMaskTest, Terms) {
  std::vector<MaskCase> cases = maskCases();
  if (isa != "avx512")
    cases = {cases[1], cases[6]};
  for (MaskCase &c : chunkCases())
    cases.push_back(c);
  for (MaskCase &c : cases) {
    Attention a;
    a.score = kScale;
    a.maskedRows = c.policy;
    a.mask = c.terms;
    a.dynamic = "ij";
    Sizes sizes = {{'b', 2}, {'h', 2}, {'i', 1}, {'j', 1}, {'d', 8}, {'e', 9}};
    auto kernel = compileAttention(isa, a, sizes);
    ASSERT_TRUE(kernel) << c.name;
    for (int64_t i : {2, 33, 70})
      for (int64_t j : {0, 9, 50, 300}) {
        sizes['i'] = i, sizes['j'] = j;
        Operands o(a, sizes, i + j);
        c.setUp(o);
        ASSERT_TRUE(kernel->call(o.all(), 3));
        Reference reference{scaled};
        reference.visible = [&](const At &at) { return c.visible(o, at); };
        reference.emptyRow = c.policy[0] == 'z' ? 0 : c.policy[0] == 'u' ? INFINITY : NAN;
        ASSERT_EQ(compareWithReference(o, reference), "") << c.name << ": " << i << " queries, " << j << " keys";
      }
  }
}

// A sweep for weights takes up to so many keys' scores from memory as a quarter of L2 holds, and computes those of
// more. Rows that see no key bring keys that the sweep before left out.
TEST_P(AttentionMaskTest, WeightsOfStoredScores) {
  int64_t lanes = isa == "avx512" ? 16 : isa == "avx2" ? 8 : 4, most = (1 << 20) / 4 / (2 * lanes * 4);
  for (bool isMasked : {false, true}) {
    Attention a;
    a.score = kScale;
    a.weight = "%n = arith.cmpf uno, %s, %s : f32\n%z = arith.constant 0.25 : f32\n"
               "%y = arith.select %n, %z, %s : f32";
    if (isMasked)
      a.mask = {{"window<inf, -2>", "", ""}};
    a.dynamic = "ij";
    Sizes sizes = {{'b', 1}, {'h', 1}, {'i', 1}, {'j', 1}, {'d', 5}, {'e', 3}};
    for (int64_t fixed : {int64_t(0), most - 1, most + 1}) { // 0: not known to the compiler
      if (fixed)
        a.dynamic = "i", sizes['j'] = fixed;
      auto kernel = compileAttention(isa, a, sizes);
      ASSERT_TRUE(kernel);
      for (int64_t i : {1, 37})
        for (int64_t j : {int64_t(1), int64_t(8), int64_t(9), int64_t(301), most - 1, most, most + 1}) {
          if (fixed && j != fixed)
            continue;
          sizes['i'] = i, sizes['j'] = j;
          Operands o(a, sizes, i + j);
          ASSERT_TRUE(kernel->call(o.all()));
          auto score = [&](double s, const At &at) {
            return isMasked && at.at('j') > at.at('i') - 2 ? -INFINITY : 0.125 * s;
          };
          auto weight = [](double w, const At &) { return std::isnan(w) ? 0.25 : w; };
          ASSERT_EQ(compareWithReference(o, score, weight), "")
              << isMasked << ": " << i << " queries, " << j << " keys";
        }
    }
  }
}

} // namespace
