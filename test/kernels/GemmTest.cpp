// The GEMM kernel against a double-precision sum, at every edge of its tiles: bounds in GemmHarness.h.
#include "passes/kernels/cpu/PackPanels.h"
#include "test/kernels/GemmHarness.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/FormatVariadic.h"
#include "gtest/gtest.h"
#include <cmath>

using namespace mlir;
using namespace attn;
using namespace attn::test;

namespace {

class GemmTest : public testing::TestWithParam<const char *> {
protected:
  void SetUp() override {
    if (!hostRuns(GetParam()))
      GTEST_SKIP() << "this machine has no " << GetParam();
  }
  void check(const Problem &problem, std::vector<int64_t> rows) {
    auto kernel = compileGemm(GetParam(), problem);
    ASSERT_TRUE(kernel);
    for (int64_t m : rows)
      EXPECT_EQ(checkGemm(*kernel, GetParam(), problem, m), "");
  }
};

TEST_P(GemmTest, DynamicRowsAtEveryTail) {
  for (int64_t k : {1, 2, 3, 17, 384})
    for (int64_t n : {1, 15, 16, 47, 48, 49, 96, 100})
      check({k, n}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 17, 50});
}

TEST_P(GemmTest, StaticRows) {
  for (int64_t m : {0, 1, 3, 7, 8, 9, 50, 64})
    check({17, 100, m}, {m});
}

TEST_P(GemmTest, RowsGatheredAtEveryTail) {
  for (int64_t k : {1, 5, 17, 384})
    for (int64_t n : {1, 16, 48, 100}) {
      Problem problem{k, n};
      problem.gathersRows = true;
      check(problem, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 17, 50});
      problem.next = {3, 5, 48};
      check(problem, {9, 50});
    }
  for (int64_t m : {0, 1, 7, 8, 9, 50}) {
    Problem problem{17, 100, m};
    problem.gathersRows = true;
    check(problem, {m});
  }
  for (PanelStorage storage : {PanelStorage::F16, PanelStorage::BF16}) {
    Problem problem{33, 100};
    problem.storage = storage;
    problem.gathersRows = true;
    check(problem, {0, 1, 7, 8, 9, 50});
  }
}

TEST_P(GemmTest, NextPanelsOfAnyShape) {
  std::vector<int64_t> shapes[] = {{1, 1, 48}, {3, 5, 48}, {16, 1, 8}, {0, 7, 48}};
  for (const std::vector<int64_t> &shape : shapes) {
    Problem problem{17, 100};
    problem.next = shape;
    check(problem, {0, 1, 8, 9, 17, 50, 130});
    problem.m = 50;
    check(problem, {50});
    problem.m = ShapedType::kDynamic;
    problem.k = 1000; // in chunks of rows
    check(problem, {9, 200});
  }
}

TEST_P(GemmTest, NarrowPanelsAtEveryTail) {
  std::pair<PanelStorage, int64_t> storages[] = {{PanelStorage::F16, 0},
                                                 {PanelStorage::BF16, 0},
                                                 {PanelStorage::I8, 1000},
                                                 {PanelStorage::I8, 16},
                                                 {PanelStorage::I8, 64}};
  for (auto [storage, group] : storages) {
    for (int64_t k : {1, 33, 64})
      for (int64_t n : {1, 48, 100}) {
        Problem problem{k, n};
        problem.storage = storage;
        problem.group = std::min(group, k);
        check(problem, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 17, 50});
      }
    for (int64_t m : {1, 9}) {
      Problem problem{129, 100, m};
      problem.storage = storage;
      problem.group = std::min<int64_t>(group, 129);
      check(problem, {m});
    }
  }
}

const Epilogue kBias{"%y = arith.addf %sum, %p0 : f32\n linalg.yield %y : f32",
                     {EpilogueOperand::RowVector},
                     [](double sum, double p0, double) { return sum + p0; }};
// Dear enough for the loop over the finished tile.
const Epilogue kGelu{R"(%one = arith.constant 1.0 : f32
  %half = arith.constant 0.5 : f32
  %r = arith.constant 0.707106769 : f32
  %x = arith.addf %sum, %p0 : f32
  %s = arith.mulf %x, %r : f32
  %e = math.erf %s : f32
  %t = arith.addf %e, %one : f32
  %h = arith.mulf %x, %half : f32
  %y = arith.mulf %h, %t : f32
  linalg.yield %y : f32)",
                     {EpilogueOperand::RowVector},
                     [](double sum, double p0, double) {
                       double x = sum + p0;
                       return 0.5 * x * (1 + std::erf(x * 0.70710678118654752));
                     },
                     1.2,
                     1e-6};
// Its inner sum is the result without %p1, which is in [-1, 1): rounding that is an error of its own.
const Epilogue kResidual{"%x = arith.addf %sum, %p0 : f32\n %y = arith.addf %p1, %x : f32\n linalg.yield %y : f32",
                         {EpilogueOperand::RowVector, EpilogueOperand::Full},
                         [](double sum, double p0, double p1) { return sum + p0 + p1; },
                         1,
                         0x1p-24};
const Epilogue kResidualFirst{"%y = arith.subf %p0, %sum : f32\n linalg.yield %y : f32",
                              {EpilogueOperand::Full},
                              [](double sum, double p0, double) { return p0 - sum; },
                              1,
                              0,
                              1};
const Epilogue kScaledTanh{R"(%x = arith.mulf %sum, %p0 : f32
  %t = math.tanh %x : f32
  %y = arith.addf %t, %p1 : f32
  linalg.yield %y : f32)",
                           {EpilogueOperand::Scalar, EpilogueOperand::Full},
                           [](double sum, double p0, double p1) { return std::tanh(sum * p0) + p1; },
                           1,
                           1e-6};
const Epilogue kColumnRelu{R"(%z = arith.constant 0.0 : f32
  %x = arith.addf %sum, %p0 : f32
  %y = arith.maximumf %x, %z : f32
  linalg.yield %y : f32)",
                           {EpilogueOperand::Column},
                           [](double sum, double p0, double) { return std::max(sum + p0, 0.0); }};

TEST_P(GemmTest, Epilogues) {
  for (const Epilogue *epilogue : {&kBias, &kGelu, &kResidual, &kResidualFirst, &kScaledTanh, &kColumnRelu})
    for (int64_t n : {7, 48, 100})
      check({33, n, ShapedType::kDynamic, epilogue}, {0, 1, 5, 8, 9, 23});
}

// One kernel for all sizes, whose sums go through memory.
TEST_P(GemmTest, EpiloguesWhereAllSizesAreOpen) {
  for (const Epilogue *epilogue : {&kBias, &kGelu, &kResidual, &kResidualFirst, &kScaledTanh, &kColumnRelu}) {
    Problem problem{33, 100, ShapedType::kDynamic, epilogue};
    problem.isOpen = true;
    auto kernel = compileGemm(GetParam(), problem);
    ASSERT_TRUE(kernel);
    for (int64_t k : {1, 33})
      for (int64_t n : {7, 48, 100})
        for (int64_t m : {0, 1, 5, 8, 9, 23}) {
          problem.k = k;
          problem.n = n;
          EXPECT_EQ(checkGemm(*kernel, GetParam(), problem, m), "");
        }
  }
}

// Both factors in bf16. vdpbf16ps rounds after each of its two additions, and
// its products of normal numbers are exact.
TEST(GemmBf16Test, PairsAtEveryTail) {
  const char *isa = "avx512bf16";
  if (!hostRuns(isa))
    GTEST_SKIP() << "this machine has no " << isa;
  MLIRContext context;
  context.loadDialect<AttnDialect>();
  TargetAttr target = makeTarget(context, isa);
  ASSERT_TRUE(hasNarrowProducts(target));
  ASSERT_FALSE(hasNarrowProducts(makeTarget(context, "avx512")));
  auto makeSpec = [&](int64_t m, int64_t k, int64_t n) {
    GemmSpec spec = GemmSpec::forTarget(target, m, k, n);
    spec.storage = PanelStorage::BF16;
    spec.hasNarrowRows = true;
    return spec;
  };
  for (int64_t k : {2, 34, 384})
    for (int64_t n : {1, 48, 100}) {
      auto kernel = Kernel::compile(isa, [&](OpBuilder &builder, Location loc) {
        return buildGemm(builder, loc, makeSpec(ShapedType::kDynamic, k, n));
      });
      ASSERT_TRUE(kernel);
      NarrowPanels weights(randomFloats(k * n, 2), k, n, makeSpec(ShapedType::kDynamic, k, n));
      for (int64_t m : {0, 1, 3, 8, 9, 13, 50}) {
        std::vector<uint16_t> halves(m * k);
        std::vector<float> rows = randomFloats(m * k, 1);
        for (auto [half, value] : llvm::zip_equal(halves, rows)) {
          uint32_t word;
          std::memcpy(&word, &value, sizeof word);
          word &= 0xffff0000;
          half = word >> 16;
          std::memcpy(&value, &word, sizeof word);
        }
        Buffer a({m, k}, halves), c({m, n});
        ASSERT_TRUE(kernel->call({&a, &weights.panels, &c}, 3));
        EXPECT_TRUE(c.guardIntact());
        for (int64_t i = 0; i < m; ++i)
          for (int64_t j = 0; j < n; ++j) {
            double sum = 0, size = 0;
            for (int64_t l = 0; l < k; ++l) {
              double product = static_cast<double>(rows[i * k + l]) * weights.stored[l * n + j];
              sum += product;
              size += std::fabs(product);
            }
            ASSERT_NEAR(c[i * n + j], sum, std::ldexp(2 + 4 * std::sqrt(k), -24) * size) << m << ' ' << k << ' ' << n;
          }
      }
    }
  // A result in bf16 is that in f32, rounded to the nearest even.
  std::vector<uint16_t> halves(13 * 34, 0x3f9d); // 1.2265625
  Buffer a({13, 34}, halves), wide({13, 100}), half({13, 100}, 2);
  NarrowPanels weights(randomFloats(34 * 100, 2), 34, 100, makeSpec(13, 34, 100));
  for (Buffer *c : {&wide, &half}) {
    auto kernel = Kernel::compile(isa, [&](OpBuilder &builder, Location loc) {
      GemmSpec spec = makeSpec(13, 34, 100);
      spec.hasNarrowResult = c == &half;
      return buildGemm(builder, loc, spec);
    });
    ASSERT_TRUE(kernel && kernel->call({&a, &weights.panels, c}, 3));
    EXPECT_TRUE(c->guardIntact());
  }
  for (int64_t i = 0; i < 13 * 100; ++i) {
    uint32_t word;
    std::memcpy(&word, &wide[i], sizeof word);
    EXPECT_EQ(half.data<uint16_t>()[i], (word + 0x7fff + ((word >> 16) & 1)) >> 16) << i;
  }
  GemmSpec odd = makeSpec(1, 3, 5);
  std::string reason;
  EXPECT_FALSE(canBuildGemm(odd, &reason));
  EXPECT_EQ(reason, "pairs of products need bf16 panels, 16 lanes and an even K");
}

TEST_P(GemmTest, NarrowPanelsWithEpilogue) {
  for (const Epilogue *epilogue : {&kGelu, &kResidual, &kResidualFirst}) {
    check({33, 100, ShapedType::kDynamic, epilogue, PanelStorage::F16}, {1, 8, 23});
    check({33, 100, ShapedType::kDynamic, epilogue, PanelStorage::BF16}, {1, 8, 23});
    check({33, 100, ShapedType::kDynamic, epilogue, PanelStorage::I8, 33}, {1, 8, 23});
    check({33, 100, ShapedType::kDynamic, epilogue, PanelStorage::I8, 8}, {1, 8, 23});
  }
}

TEST_P(GemmTest, StaticRowsWithEpilogue) {
  for (int64_t m : {1, 8, 11})
    check({33, 100, m, &kGelu}, {m});
}

// A row's bits do not depend on how many rows stand beside it.
TEST_P(GemmTest, RowsDoNotDependOnTheirNeighbours) {
  Problem problem{384, 100};
  auto kernel = compileGemm(GetParam(), problem);
  ASSERT_TRUE(kernel);
  MLIRContext context;
  context.loadDialect<AttnDialect>();
  int64_t width = GemmSpec::forTarget(makeTarget(context, GetParam()), 1, 384, 100).panelWidth();
  std::vector<float> a = randomFloats(50 * 384, 1);
  Buffer b = packPanels(randomFloats(384 * 100, 2), 384, 100, width);
  Buffer all({50, 384}, a), c({50, 100}), one({1, 384}, std::vector<float>(a.end() - 384, a.end())), d({1, 100});
  ASSERT_TRUE(kernel->call({&all, &b, &c}) && kernel->call({&one, &b, &d}));
  std::vector<float> last(c.data() + 49 * 100, c.data() + 50 * 100);
  EXPECT_EQ(d.values(), last);
}

/// `batches` products of m x k and k x n, packed by the kernel that runs before;
/// the elements out of bounds, as text.
std::string checkBatch(Kernel &pack, Kernel &gemm, int64_t width, int64_t batches, int64_t m, int64_t k, int64_t n) {
  std::vector<float> aValues = randomFloats(batches * m * k, 3), bValues = randomFloats(batches * k * n, 4);
  Buffer a({batches * m, k}, aValues), b({batches, k, n}, bValues), c({batches * m, n});
  Buffer panels({batches * ((n + width - 1) / width), k, width});
  if (!pack.call({&b, &panels}, 3) || !gemm.call({&a, &panels, &c}, 3))
    return "the arguments do not fit";
  if (!panels.guardIntact() || !c.guardIntact())
    return "a write before the result";
  for (int64_t row = 0; row < batches * m; ++row)
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0, size = 0;
      for (int64_t l = 0; l < k; ++l) {
        double product = static_cast<double>(aValues[row * k + l]) * bValues[(row / m * k + l) * n + j];
        sum += product;
        size += std::fabs(product);
      }
      double bound = std::ldexp(2 + 4 * std::sqrt(k), -24) * size + std::ldexp(std::fabs(sum), -23);
      if (!(std::fabs(c[row * n + j] - sum) <= bound))
        return llvm::formatv("b {0} m {1} k {2} n {3}: c[{4},{5}] is {6}, expects {7} within {8}", batches, m, k, n,
                             row, j, c[row * n + j], sum, bound);
    }
  return "";
}

TEST_P(GemmTest, BatchesOfSizesThatTheRunKnows) {
  constexpr int64_t kOpen = ShapedType::kDynamic;
  for (auto [fixedK, fixedN] :
       {std::pair(kOpen, kOpen), std::pair<int64_t, int64_t>(17, kOpen), std::pair<int64_t, int64_t>(17, 100)}) {
    int64_t width = 0;
    auto gemm = Kernel::compile(GetParam(), [&, k = fixedK, n = fixedN](OpBuilder &builder, Location loc) {
      GemmSpec spec = GemmSpec::forTarget(makeTarget(*builder.getContext(), GetParam()), kOpen, k, n);
      spec.isBatched = true;
      spec.chunkBlocks = 2;
      width = spec.panelWidth();
      return buildGemm(builder, loc, spec);
    });
    auto pack = Kernel::compile(GetParam(), [&, k = fixedK, n = fixedN](OpBuilder &builder, Location loc) {
      GemmSpec spec = GemmSpec::forTarget(makeTarget(*builder.getContext(), GetParam()), kOpen, k, n);
      return buildPackPanels(builder, loc, {k, n, spec.panelWidth(), spec.lanes});
    });
    ASSERT_TRUE(gemm && pack);
    for (int64_t batches : {0, 1, 3})
      for (int64_t m : {0, 1, 8, 9, 50})
        for (int64_t k : {0, 1, 17, 64})
          for (int64_t n : {0, 1, 15, 16, 48, 49, 100})
            if ((ShapedType::isDynamic(fixedK) || k == fixedK) && (ShapedType::isDynamic(fixedN) || n == fixedN))
              EXPECT_EQ(checkBatch(*pack, *gemm, width, batches, m, k, n), "");
  }
}

// A's rows in chunks: the same bits as without.
TEST_P(GemmTest, ChunksOfRows) {
  std::vector<float> a = randomFloats(100 * 33, 5), results[2];
  for (int64_t chunkBlocks : {0, 3}) {
    int64_t width = 0;
    auto kernel = Kernel::compile(GetParam(), [&](OpBuilder &builder, Location loc) {
      GemmSpec spec = GemmSpec::forTarget(makeTarget(*builder.getContext(), GetParam()), ShapedType::kDynamic, 33, 130);
      spec.chunkBlocks = chunkBlocks;
      width = spec.panelWidth();
      return buildGemm(builder, loc, spec);
    });
    ASSERT_TRUE(kernel);
    Buffer b = packPanels(randomFloats(33 * 130, 6), 33, 130, width);
    for (int64_t m : {1, 24, 25, 100}) {
      Buffer rows({m, 33}, std::vector<float>(a.begin(), a.begin() + m * 33)), c({m, 130});
      ASSERT_TRUE(kernel->call({&rows, &b, &c}, 3));
      llvm::append_range(results[chunkBlocks != 0], c.values());
    }
  }
  EXPECT_EQ(results[0], results[1]);
}

// The k loop of the full tile: one FMA a register and step, no reload of a sum.
TEST(GemmCode, KeepsSumsInRegisters) {
  for (auto [isa, fmas] : {std::pair("avx512", 24), std::pair("avx2", 12)}) {
    auto kernel = compileGemm(isa, {384, 384, 64});
    ASSERT_TRUE(kernel);
    // Instructions of each basic block; the one with most FMAs is the k loop.
    StringRef text = kernel->assembly();
    int most = 0;
    StringRef loop;
    while (!text.empty()) {
      auto [block, rest] = text.split("\n.LBB");
      block = block.take_front(block.find("\n\tj"));
      if (int count = block.count("vfmadd"); count > most)
        most = count, loop = block;
      text = rest;
    }
    EXPECT_EQ(most, fmas) << loop.str();
    EXPECT_EQ(loop.count("rsp"), 0u) << loop.str();
    EXPECT_LE(loop.count("\n"), static_cast<size_t>(fmas + 8 + 3 + 8)) << loop.str();
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, GemmTest, testing::ValuesIn(kIsas));

} // namespace
