// The GEMM kernels whose factors are bf16, against a double-precision sum.
#include "passes/kernels/cpu/Gemm.h"
#include "test/kernels/KernelHarness.h"
#include "test/kernels/TileEmulator.h"

#include "mlir/Parser/Parser.h"
#include "llvm/ADT/STLExtras.h"
#include "gtest/gtest.h"
#include <cmath>
#include <random>

using namespace mlir;
using namespace attn;
using namespace attn::test;

namespace {

/// The nearest float of 8 significant bits; normal numbers only.
float nearestBf16(float value) {
  int exponent;
  std::frexp(value, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(value, 8 - exponent)), exponent - 8);
}

uint16_t bitsOf(float half) {
  uint32_t word;
  std::memcpy(&word, &half, sizeof word);
  return word >> 16;
}

/// Numbers and their parts in bf16, each what those before leave.
struct Parts {
  std::vector<float> values;
  std::vector<std::vector<float>> parts;

  Parts(int64_t count, int64_t numParts, unsigned seed) : parts(numParts) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < count; ++i) {
      float value = normal(random), rest = numParts > 1 ? value : nearestBf16(value);
      values.push_back(rest);
      for (std::vector<float> &part : parts) {
        part.push_back(nearestBf16(rest));
        rest -= part.back();
      }
    }
  }
};

/// A product of matrices that are the sum of parts, and what it should be.
struct Product {
  int64_t m, k, n, numParts;
  Parts a, b;
  std::vector<double> sums, sizes; ///< M x N: sum of a b and of |a b|

  Product(int64_t m, int64_t k, int64_t n, int64_t numParts)
      : m(m), k(k), n(n), numParts(numParts), a(m * k, numParts, 1), b(k * n, numParts, 2), sums(m * n), sizes(m * n) {
    for (int64_t i = 0; i < m; ++i)
      for (int64_t l = 0; l < k; ++l)
        for (int64_t j = 0; j < n; ++j) {
          double product = static_cast<double>(a.values[i * k + l]) * b.values[l * n + j];
          sums[i * n + j] += product;
          sizes[i * n + j] += std::fabs(product);
        }
  }

  Buffer rows(int64_t part) const {
    std::vector<uint16_t> halves;
    for (float value : a.parts[part])
      halves.push_back(bitsOf(value));
    return Buffer({m, k}, halves);
  }
  Buffer panels(const GemmSpec &spec) const {
    SmallVector<int64_t> shape = spec.panelShape();
    std::vector<uint16_t> halves(shape[0] * shape[1] * shape[2]);
    int64_t width = spec.panelWidth();
    for (int64_t i = 0; i < k; ++i)
      for (int64_t j = 0; j < n; ++j)
        for (int64_t part = 0; part < numParts; ++part)
          halves[((j / width * shape[1] + i / 2) * numParts + part) * 2 * width + 2 * (j % width) + i % 2] =
              bitsOf(b.parts[part][i * n + j]);
    return Buffer({shape.begin(), shape.end()}, halves);
  }
  double worst(const Buffer &c) const {
    double worst = 0;
    for (auto [got, want] : llvm::zip_equal(c.values(), sums))
      worst = std::max(worst, std::isnan(got) ? INFINITY : std::fabs(got - want));
    return worst;
  }
};

std::unique_ptr<Kernel> compile(StringRef isa, llvm::function_ref<GemmSpec(TargetAttr)> makeSpec) {
  return Kernel::compile(isa, [&](OpBuilder &builder, Location loc) {
    return buildGemm(builder, loc, makeSpec(makeTarget(*builder.getContext(), isa)));
  });
}

/// Runs `kernel` on `product`; true where every element is within `bound` of it,
/// a factor of the sum of the sizes of its terms.
testing::AssertionResult run(Kernel &kernel, const GemmSpec &spec, const Product &product, double bound,
                             Buffer *result = nullptr) {
  SmallVector<Buffer, 3> rows;
  for (int64_t part = 0; part < product.numParts; ++part)
    rows.push_back(product.rows(part));
  Buffer panels = product.panels(spec), own({product.m, product.n}), &c = result ? *result : own;
  SmallVector<const Buffer *> arguments = {&rows[0], &panels};
  for (const Buffer &part : llvm::drop_begin(rows))
    arguments.push_back(&part);
  arguments.push_back(&c);
  if (!kernel.call(arguments, 3) || !c.guardIntact())
    return testing::AssertionFailure() << "no call, or a write before the result";
  for (int64_t at = 0; at < product.m * product.n; ++at)
    if (!(std::fabs(c[at] - product.sums[at]) <= bound * product.sizes[at]))
      return testing::AssertionFailure() << "m " << product.m << " k " << product.k << " n " << product.n << " parts "
                                         << product.numParts << ": c[" << at / product.n << ',' << at % product.n
                                         << "] is " << c[at] << ", expects " << product.sums[at] << " within "
                                         << bound * product.sizes[at];
  return testing::AssertionSuccess();
}

/// As a share of sum |a b|: of so many additions, and of what the parts leave.
/// Signs are random; a product of parts too few or twice is 2^-9, or 2^-17 of 3 parts.
double boundOf(int64_t k, int64_t numParts) {
  double additions = std::ldexp(2 + 4 * std::sqrt(k * numParts * (numParts + 1) / 2), -24);
  return additions + (numParts == 2 ? std::ldexp(4, -17) / std::sqrt(k) : 0);
}

class GemmPartsTest : public testing::TestWithParam<int64_t> {};

TEST_P(GemmPartsTest, ProductsOfPartsAtEveryTail) {
  const char *isa = "avx512bf16";
  if (!hostRuns(isa))
    GTEST_SKIP() << "this machine has no " << isa;
  for (int64_t k : {2, 34, 384})
    for (int64_t n : {1, 48, 100}) {
      GemmSpec spec;
      auto kernel = compile(isa, [&](TargetAttr target) {
        spec = GemmSpec::forTarget(target, ShapedType::kDynamic, k, n);
        spec.storage = PanelStorage::BF16;
        spec.hasNarrowRows = true;
        spec.parts = GetParam();
        spec.panelDepth = n == 48 ? 32 : 1;
        return spec;
      });
      ASSERT_TRUE(kernel);
      for (int64_t m : {0, 1, 3, 8, 9, 13, 50})
        ASSERT_TRUE(run(*kernel, spec, Product(m, k, n, GetParam()), boundOf(k, GetParam())));
    }
}

GemmSpec makeTileSpec(TargetAttr target, int64_t m, int64_t k, int64_t n, int64_t parts) {
  GemmSpec spec = GemmSpec::forTarget(target, m, k, n);
  spec.storage = PanelStorage::BF16;
  spec.hasNarrowRows = true;
  spec.parts = parts;
  spec.useTiles(target);
  return spec;
}

/// The code of tiles on a machine that has them, or by an emulation of their
/// instructions.
class GemmTilesTest : public testing::TestWithParam<int64_t> {
  void SetUp() override {
    if (!hostRuns("avx512bf16"))
      GTEST_SKIP() << "this machine has no avx512bf16";
    if (!hostRuns("amx"))
      emulateTiles();
  }
};

TEST_P(GemmTilesTest, EveryTail) {
  // K: less than a tile, tiles and a tail, more than what a pass keeps in the cache.
  for (int64_t k : {2, 32, 70, 320})
    for (int64_t n : {1, 32, 100})
      for (bool isOpen : {true, false}) {
        std::unique_ptr<Kernel> kernel;
        GemmSpec spec;
        for (int64_t m : {0, 1, 16, 17, 32, 33, 63, 64, 130, 300}) {
          if (!isOpen && k != 70)
            continue;
          if (!kernel || !isOpen)
            kernel = compile("amx", [&](TargetAttr target) {
              spec = makeTileSpec(target, isOpen ? ShapedType::kDynamic : m, k, n, GetParam());
              if (n == 100)
                spec.tileGroups = 2;
              return spec;
            });
          ASSERT_TRUE(kernel);
          ASSERT_TRUE(run(*kernel, spec, Product(m, k, n, GetParam()), boundOf(k, GetParam())));
          if (!hostRuns("amx")) {
            EXPECT_FALSE(holdsTiles());
            EXPECT_EQ(takeTileCounts().products > 0, m > 0);
          }
        }
      }
}

/// A library for machines with tiles runs on others, too: the same kernel there.
TEST_P(GemmTilesTest, WithoutTiles) {
  for (int64_t m : {1, 12, 25, 50}) {
    GemmSpec spec;
    auto kernel = Kernel::compile("avx512bf16", [&](OpBuilder &builder, Location loc) {
      TargetAttr target = makeTarget(*builder.getContext(), "amx");
      return buildGemm(builder, loc, spec = makeTileSpec(target, ShapedType::kDynamic, 70, 100, GetParam()));
    });
    ASSERT_TRUE(kernel);
    ASSERT_TRUE(run(*kernel, spec, Product(m, 70, 100, GetParam()), boundOf(70, GetParam())));
  }
}

INSTANTIATE_TEST_SUITE_P(Parts, GemmTilesTest, testing::Values(1, 2, 3));

/// What factors in parts are for: errors like those of products in f32. Three
/// parts have them; what two parts lack is hidden by the additions of long sums only.
TEST_P(GemmPartsTest, ErrorBesidePlainF32) {
  if (!hostRuns("avx512bf16"))
    GTEST_SKIP() << "this machine has no avx512bf16";
  if (!hostRuns("amx"))
    emulateTiles();
  for (const char *isa : {"avx512bf16", "amx"})
    for (int64_t k : {64, 768, 3072}) {
      Product product(24, k, 96, GetParam());
      GemmSpec spec, plain;
      auto kernel = compile(isa, [&](TargetAttr target) {
        if (GemmSpec::mayHaveTiles(target))
          return spec = makeTileSpec(target, 24, k, 96, GetParam());
        spec = GemmSpec::forTarget(target, 24, k, 96);
        spec.storage = PanelStorage::BF16;
        spec.hasNarrowRows = true;
        spec.parts = GetParam();
        return spec;
      });
      auto f32 = compile(isa, [&](TargetAttr target) { return plain = GemmSpec::forTarget(target, 24, k, 96); });
      ASSERT_TRUE(kernel && f32);
      ASSERT_EQ(plain.panelWidth(), 48);
      Buffer c({24, 96}), reference({24, 96}), a({24, k}, product.a.values), b({2, k, 48});
      for (int64_t i = 0; i < k; ++i)
        for (int64_t j = 0; j < 96; ++j)
          b[(j / 48 * k + i) * 48 + j % 48] = product.b.values[i * 96 + j];
      ASSERT_TRUE(run(*kernel, spec, product, boundOf(k, GetParam()), &c) && f32->call({&a, &b, &reference}));
      double ratio = product.worst(c) / product.worst(reference);
      RecordProperty(std::string(isa) + "_k" + std::to_string(k), std::to_string(ratio));
      if (GetParam() != 2 || k == 3072)
        EXPECT_LE(ratio, 4) << isa << " k " << k;
    }
}

/// One configuration a height of tiles and task, and no tile without need.
TEST(GemmTileCode, CountsOfInstructions) {
  if (!hostRuns("avx512bf16") || hostRuns("amx"))
    GTEST_SKIP() << "this machine has no avx512bf16, or runs tiles itself";
  emulateTiles();
  // 4 panels, 2 groups of 128 and 34 rows, 33 steps of which 8 a pass.
  GemmSpec spec;
  auto kernel = compile("amx", [&](TargetAttr target) { return spec = makeTileSpec(target, 162, 1056, 128, 1); });
  ASSERT_TRUE(kernel);
  ASSERT_TRUE(run(*kernel, spec, Product(162, 1056, 128, 1), boundOf(1056, 1)));
  TileCounts counts = takeTileCounts();
  constexpr int64_t kSteps = 33, kPasses = 5, kWhole = 5, kPanels = 4; // and a block of 2 rows
  EXPECT_EQ(counts.configs, kPanels * 3);
  EXPECT_EQ(counts.releases, kPanels * 2);
  EXPECT_EQ(counts.zeros, kPanels * (4 * kWhole + 2));
  EXPECT_EQ(counts.stores, kPanels * kPasses * (4 * kWhole + 2));
  EXPECT_EQ(counts.loads, kPanels * (kSteps * (4 * kWhole + 3) + (kPasses - 1) * (4 * kWhole + 2)));
  EXPECT_EQ(counts.products, kPanels * kSteps * (4 * kWhole + 2));
  StringRef text = kernel->assembly();
  for (StringRef name : {"ldtilecfg", "tilezero", "tileloadd", "tdpbf16ps", "tilestored", "tilerelease"})
    EXPECT_TRUE(text.contains(name)) << name.str();
}

// The epilogue sees sums from tiles as it sees others, and rounds as they do.
TEST(GemmTileCode, EpilogueAndNarrowResult) {
  if (!hostRuns("avx512bf16"))
    GTEST_SKIP() << "this machine has no avx512bf16";
  if (!hostRuns("amx"))
    emulateTiles();
  constexpr int64_t kM = 49, kK = 70, kN = 50;
  Product product(kM, kK, kN, 1);
  std::vector<float> bias(kN);
  for (int64_t j = 0; j < kN; ++j)
    bias[j] = static_cast<float>(j) / 8 - 3;
  for (bool isNarrow : {false, true}) {
    GemmSpec spec;
    OwningOpRef<ModuleOp> epilogue;
    auto kernel = Kernel::compile("amx", [&](OpBuilder &builder, Location loc) {
      epilogue = parseSourceString<ModuleOp>("func.func @relu(%sum: f32, %bias: f32) -> f32 {\n"
                                             "%zero = arith.constant 0.0 : f32\n%x = arith.addf %sum, %bias : f32\n"
                                             "%y = arith.maximumf %x, %zero : f32\nreturn %y : f32\n}",
                                             ParserConfig(builder.getContext()));
      spec = makeTileSpec(makeTarget(*builder.getContext(), "amx"), kM, kK, kN, 1);
      spec.epilogue = &(*epilogue->getOps<func::FuncOp>().begin()).front();
      spec.operands = {EpilogueOperand::RowVector};
      spec.hasNarrowResult = isNarrow;
      FailureOr<func::FuncOp> made = buildGemm(builder, loc, spec);
      epilogue = nullptr;
      return made;
    });
    ASSERT_TRUE(kernel);
    Buffer a = product.rows(0), panels = product.panels(spec), row({kN}, bias), c({kM, kN}, isNarrow ? 2 : 4);
    ASSERT_TRUE(kernel->call({&a, &panels, &row, &c}, 2));
    EXPECT_TRUE(c.guardIntact());
    for (int64_t at = 0; at < kM * kN; ++at) {
      double want = std::max(0.0, product.sums[at] + bias[at % kN]), got;
      if (isNarrow) {
        uint32_t word = static_cast<uint32_t>(c.data<uint16_t>()[at]) << 16;
        float value;
        std::memcpy(&value, &word, sizeof value);
        got = value;
      } else {
        got = c[at];
      }
      ASSERT_NEAR(got, want, (isNarrow ? want / 256 : 0) + 2 * boundOf(kK, 1) * product.sizes[at]) << at;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Parts, GemmPartsTest, testing::Values(1, 2, 3));

} // namespace
