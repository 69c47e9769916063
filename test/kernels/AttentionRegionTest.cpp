// What score and weight regions make of the elements, their captures and indices.

#include "test/kernels/AttentionFixture.h"

#include <cmath>
#include <random>

using namespace attn::test;

namespace {

class AttentionRegionTest : public AttentionFixture {};

INSTANTIATE_TEST_SUITE_P(Isas, AttentionRegionTest, testing::ValuesIn(kIsas), [](auto &info) { return info.param; });

TEST_P(AttentionRegionTest, AdditiveCaptures) {
  for (const char *dims : {"", "bj", "bhij", "ij", "bi", "ib", "bhji", "hjb", "ijb", "h"})
    for (const char *dynamic : {"ij", ""}) {
      bool isMain = std::string(dims) == "bhij" || std::string(dims) == "ib" || std::string(dims) == "bj";
      // All of them on one ISA; elsewhere those that its lanes change.
      if (isMain ? isa == "portable" && *dynamic : !*dynamic || isa != "avx512")
        continue;
      Attention a;
      a.score = kScaleAdd;
      a.captures = {{dims, "f32"}};
      a.dynamic = dynamic;
      Sizes sizes = {{'b', 2}, {'h', 2}, {'i', 37}, {'j', 29}, {'d', 16}, {'e', 16}};
      auto kernel = compileAttention(isa, a, sizes);
      ASSERT_TRUE(kernel);
      for (int64_t i : {37, 9, 2}) {
        sizes['i'] = *dynamic ? i : 37;
        Operands o(a, sizes);
        ASSERT_TRUE(kernel->call(o.all()));
        auto score = [&](double s, const At &at) { return 0.125 * s + o.captures[0][o.offset(dims, at)]; };
        ASSERT_EQ(compareWithReference(o, score), "") << dims << " " << dynamic << " " << i;
      }
    }
}

TEST_P(AttentionRegionTest, SelectByBooleanMask) {
  for (const char *fill : {"0xff800000", "-1.0e4", "-3.40282347e+38"})
    for (const char *dims : {"bj", "bhij", "bi"}) {
      if ((fill[0] == '-' || isa == "portable") && std::string(dims) != "bhij")
        continue;
      Attention a;
      a.score = "%z = arith.constant 0 : i8\n%low = arith.constant " + std::string(fill) +
                " : f32\n%k = arith.cmpi ne, %c0, %z : i8\n%y = arith.select %k, %s, %low : f32";
      a.captures = {{dims, "i8"}};
      a.dynamic = "i";
      Sizes sizes = {{'b', 2}, {'h', 2}, {'i', 45}, {'j', 29}, {'d', 8}, {'e', 8}};
      auto kernel = compileAttention(isa, a, sizes);
      ASSERT_TRUE(kernel);
      for (int64_t i : {45, 4}) {
        sizes['i'] = i;
        Operands o(a, sizes);
        std::mt19937 random(5);
        for (int64_t n = 0; n < o.captures[0].size(); ++n)
          o.captures[0].data<int8_t>()[n] = random() % 3 == 0;
        ASSERT_TRUE(kernel->call(o.all()));
        double low = fill[0] == '0' ? -INFINITY : std::stod(fill);
        auto score = [&](double s, const At &at) { return o.captures[0].data<int8_t>()[o.offset(dims, at)] ? s : low; };
        ASSERT_EQ(compareWithReference(o, score), "") << dims << " " << fill << " " << i;
      }
    }
}

TEST_P(AttentionRegionTest, IndicesInTheRegion) {
  Attention a; // causal, with a slope by head and a shift by batch
  a.score = R"(%i = attn.index 2 : index
    %j = attn.index 3 : index
    %h = attn.index 1 : index
    %b = attn.index 0 : index
    %d = arith.subi %j, %i : index
    %n = arith.index_cast %d : index to i32
    %f = arith.sitofp %n : i32 to f32
    %hn = arith.index_cast %h : index to i32
    %hf = arith.sitofp %hn : i32 to f32
    %slope = arith.constant 0.25 : f32
    %t = arith.mulf %hf, %slope : f32
    %u = arith.mulf %t, %f : f32
    %x = arith.addf %s, %u : f32
    %limit = arith.addi %i, %b : index
    %k = arith.cmpi sle, %j, %limit : index
    %low = arith.constant 0xff800000 : f32
    %y = arith.select %k, %x, %low : f32)";
  a.dynamic = "i";
  Sizes sizes = {{'b', 2}, {'h', 3}, {'i', 1}, {'j', 50}, {'d', 8}, {'e', 9}};
  auto kernel = compileAttention(isa, a, sizes);
  ASSERT_TRUE(kernel);
  for (int64_t i : {3, 7, 33, 50}) {
    sizes['i'] = i;
    Operands o(a, sizes);
    ASSERT_TRUE(kernel->call(o.all()));
    auto score = [&](double s, const At &at) {
      return at.at('j') <= at.at('i') + at.at('b') ? s + 0.25 * at.at('h') * (at.at('j') - at.at('i')) : -INFINITY;
    };
    ASSERT_EQ(compareWithReference(o, score), "") << i;
  }
}

TEST_P(AttentionRegionTest, DearRegions) {
  // x (0.1 x^2 + 1) / (0.2 x^2 + 1), four times over.
  std::string bent = "%one = arith.constant 1.0 : f32\n%p = arith.constant 0.1 : f32\n%q = arith.constant 0.2 : f32\n";
  constexpr int kTimes = 4;
  for (int n = 0; n < kTimes; ++n) {
    std::string x = n ? "%x" + std::to_string(n) : "%s", of = std::to_string(n), next = std::to_string(n + 1);
    auto line = [&](const char *name, const char *op, const std::string &left, const std::string &right) {
      bent += std::string(name) + of + " = arith." + op + " " + left + ", " + right + " : f32\n";
    };
    line("%square", "mulf", x, x);
    line("%a", "mulf", "%square" + of, "%p");
    line("%b", "mulf", "%square" + of, "%q");
    line("%over", "addf", "%a" + of, "%one");
    line("%under", "addf", "%b" + of, "%one");
    line("%ratio", "divf", "%over" + of, "%under" + of);
    bent += "%x" + next + " = arith.mulf " + x + ", %ratio" + of + " : f32\n";
  }
  bent += "%bent = arith.addf %x4, %x4 : f32\n%k = arith.constant 0.0625 : f32\n%y0 = arith.mulf %bent, %k : f32\n";
  auto bend = [](double x) {
    for (int n = 0; n < kTimes; ++n)
      x = x * (0.1 * x * x + 1) / (0.2 * x * x + 1);
    return 0.125 * x;
  };
  for (const char *dims : {"bhij", "ib", "bj", "bhji", "h"}) {
    Attention a;
    a.score = bent + "%y = arith.addf %y0, %c0 : f32";
    a.captures = {{dims, "f32"}, {"bij", "i8"}};
    a.dynamic = "ij";
    if (std::string(dims) == "bhij") // and weights, of a boolean for each query and key
      a.weight = bent + R"(%none = arith.constant 0 : i8
        %zero = arith.constant 0.0 : f32
        %isKept = arith.cmpi ne, %c1, %none : i8
        %y = arith.select %isKept, %y0, %zero : f32)";
    Sizes sizes = {{'b', 2}, {'h', 2}, {'i', 37}, {'j', 29}, {'d', 16}, {'e', 9}};
    auto kernel = compileAttention(isa, a, sizes);
    ASSERT_TRUE(kernel);
    for (int64_t i : {37, 9, 2})
      for (int64_t j : {1, 7, 8, 9, 29, 300}) {
        sizes['i'] = i, sizes['j'] = j;
        Operands o(a, sizes, i + j);
        auto kept = [&](const At &at) { return o.captures[1].data<int8_t>()[o.offset("bij", at)] != 0; };
        for (int64_t n = 0; n < o.captures[1].size(); ++n)
          o.captures[1].data<int8_t>()[n] = n % 3 == 0;
        ASSERT_TRUE(kernel->call(o.all()));
        auto score = [&](double s, const At &at) { return bend(s) + o.captures[0][o.offset(dims, at)]; };
        auto weight = [&](double w, const At &at) { return kept(at) ? bend(w) : 0; };
        std::string difference =
            a.weight.empty() ? compareWithReference(o, score) : compareWithReference(o, score, weight);
        ASSERT_EQ(difference, "") << dims << ": " << i << " queries, " << j << " keys";
      }
  }
}

TEST_P(AttentionRegionTest, WeightRegion) {
  for (const char *policy : {"zero", "uniform"}) {
    Attention a; // a head mask and a NaN guard after the softmax
    a.score = kScaleAdd;
    a.weight = "%y = arith.mulf %s, %c1 : f32";
    a.captures = {{"bij", "f32"}, {"h", "f32"}};
    a.maskedRows = policy;
    Sizes sizes = {{'b', 2}, {'h', 3}, {'i', 37}, {'j', 301}, {'d', 8}, {'e', 9}};
    auto kernel = compileAttention(isa, a, sizes);
    ASSERT_TRUE(kernel);
    Operands o(a, sizes);
    for (int64_t j = 0; j < 301; ++j)
      o.captures[0][4 * 301 + j] = -INFINITY;
    ASSERT_TRUE(kernel->call(o.all()));
    bool isZero = policy[0] == 'z';
    auto score = [&](double s, const At &at) { return 0.125 * s + o.captures[0][o.offset("bij", at)]; };
    auto weight = [&](double w, const At &at) { return (isZero && std::isnan(w) ? 0 : w) * o.captures[1][at.at('h')]; };
    ASSERT_EQ(compareWithReference(o, score, weight, isZero ? 0 : INFINITY), "") << policy;
  }
}

} // namespace
