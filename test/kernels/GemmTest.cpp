// The GEMM kernel against a double-precision sum, at every edge of its tiles.
//
// Bound per element, u = 2^-24 and S = sum |a||b|: |c - ref| <= (2 + 4 sqrt(K)) u S.
// Sequential f32 sums have a proven K u S; the square root is what random signs
// give, and is the one that notices a wrong term.
#include "passes/kernels/cpu/Gemm.h"
#include "passes/kernels/cpu/PackPanels.h"
#include "test/kernels/KernelHarness.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/FormatVariadic.h"
#include "gtest/gtest.h"
#include <cmath>
#include <random>

using namespace mlir;
using namespace attn;
using namespace attn::test;

namespace {

std::vector<float> randomFloats(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(count);
  for (float &value : values)
    value = uniform(random);
  return values;
}

/// B[K,N] as ceil(N/width) panels of K x width, zeros beyond N.
Buffer packPanels(const std::vector<float> &b, int64_t k, int64_t n, int64_t width) {
  int64_t panels = (n + width - 1) / width;
  Buffer packed({panels, k, width});
  for (int64_t p = 0; p < panels; ++p)
    for (int64_t i = 0; i < k; ++i)
      for (int64_t j = 0; j < width; ++j)
        packed[(p * k + i) * width + j] = p * width + j < n ? b[i * n + p * width + j] : 0;
  return packed;
}

/// Panels in fewer bits, their scales, and what they stand for.
struct NarrowPanels {
  Buffer panels, scales;
  std::vector<float> stored; // K x N

  NarrowPanels(const std::vector<float> &b, int64_t k, int64_t n, const GemmSpec &spec)
      : panels(panelShape(spec), spec.storage == PanelStorage::BF16 ? 2 : 1), scales(scaleShape(spec)), stored(b) {
    int64_t width = spec.panelWidth();
    std::memset(panels.data<char>(), 0, panels.size() * (spec.storage == PanelStorage::BF16 ? 2 : 1));
    std::fill_n(scales.data(), scales.size(), 0.0f);
    for (int64_t j = 0; j < n; ++j)
      for (int64_t i = 0; i < k; ++i) {
        float &value = stored[i * n + j];
        if (spec.storage == PanelStorage::BF16) {
          // The nearest multiple of the last of 8 bits.
          int exponent;
          std::frexp(value, &exponent);
          value = std::ldexp(std::nearbyint(std::ldexp(value, 8 - exponent)), exponent - 8);
          uint32_t word;
          std::memcpy(&word, &value, sizeof word);
          int64_t at = (j / width * ((k + 1) / 2) + i / 2) * 2 * width + 2 * (j % width) + i % 2;
          panels.data<uint16_t>()[at] = word >> 16;
          continue;
        }
        int64_t begin = i / spec.group * spec.group;
        float most = 0;
        for (int64_t l = begin; l < std::min(k, begin + spec.group); ++l)
          most = std::max(most, std::fabs(b[l * n + j]));
        float scale = most / 127, step = std::nearbyint(value / scale);
        value = scale * step;
        scales[(j / width * spec.scaleShape()[1] + i / spec.group) * width + j % width] = scale;
        panels.data<int8_t>()[(j / width * k + i) * width + j % width] = static_cast<int8_t>(step);
      }
  }
  static std::vector<int64_t> panelShape(const GemmSpec &spec) {
    SmallVector<int64_t> shape = spec.panelShape();
    return {shape.begin(), shape.end()};
  }
  static std::vector<int64_t> scaleShape(const GemmSpec &spec) {
    if (spec.storage != PanelStorage::I8)
      return {1};
    SmallVector<int64_t> shape = spec.scaleShape();
    return {shape.begin(), shape.end()};
  }
};

/// An epilogue: its body as the inside of a linalg.generic whose arguments are
/// %sum, %p0, %p1, and what it computes.
struct Epilogue {
  std::string body;
  std::vector<EpilogueOperand> operands;
  double (*reference)(double sum, double p0, double p1) = nullptr;
  /// Of the epilogue by the sum, and its own error relative to 1 + |result|.
  double slope = 1, error = 0;
  unsigned accumulator = 0;
};

struct Problem {
  int64_t k, n;
  int64_t m = ShapedType::kDynamic;
  const Epilogue *epilogue = nullptr;
  PanelStorage storage = PanelStorage::F32;
  int64_t group = 0;
  /// Shape of the panels of the product that is said to run next.
  std::vector<int64_t> next = {};
  /// The kernel is for any k and n.
  bool isOpen = false;

  GemmSpec spec(TargetAttr target, int64_t rows) const {
    GemmSpec spec =
        GemmSpec::forTarget(target, rows, isOpen ? ShapedType::kDynamic : k, isOpen ? ShapedType::kDynamic : n);
    spec.storage = storage;
    spec.group = group;
    spec.prefetchesNext = !next.empty();
    return spec;
  }
  bool isNarrow() const { return storage != PanelStorage::F32; }
  /// How far a stored weight in [-1, 1) may be from what it was.
  double rounding(double weight) const {
    return storage == PanelStorage::BF16 ? std::ldexp(std::fabs(weight), -8)
           : storage == PanelStorage::I8 ? 1.001 / 254
                                         : 0;
  }
};

std::unique_ptr<Kernel> compileGemm(StringRef isa, const Problem &problem) {
  return Kernel::compile(isa, [&](OpBuilder &builder, Location loc) -> FailureOr<func::FuncOp> {
    GemmSpec spec = problem.spec(makeTarget(*builder.getContext(), isa), problem.m);
    OwningOpRef<ModuleOp> holder;
    if (const Epilogue *epilogue = problem.epilogue) {
      std::vector<std::string> names = {"%p0", "%p1"};
      names.resize(epilogue->operands.size());
      names.insert(names.begin() + epilogue->accumulator, "%sum");
      std::string ins, types, maps, args;
      for (const std::string &name : names) {
        ins += ins.empty() ? "%in" : ", %in";
        types += types.empty() ? "tensor<4xf32>" : ", tensor<4xf32>";
        maps += "affine_map<(i) -> (i)>, ";
        args += name + ": f32, ";
      }
      holder = parseSourceString<ModuleOp>("func.func @f(%in: tensor<4xf32>) { %g = linalg.generic {indexing_maps = [" +
                                               maps + "affine_map<(i) -> (i)>], iterator_types = [\"parallel\"]} ins(" +
                                               ins + " : " + types + ") outs(%in : tensor<4xf32>) { ^bb0(" + args +
                                               "%out: f32):\n" + epilogue->body + " } -> tensor<4xf32>\n return }",
                                           builder.getContext());
      if (!holder)
        return failure();
      holder->walk([&](linalg::GenericOp generic) { spec.epilogue = generic.getBody(); });
      spec.operands.assign(epilogue->operands.begin(), epilogue->operands.end());
      spec.accumulator = epilogue->accumulator;
    }
    return buildGemm(builder, loc, spec);
  });
}

/// Runs one problem with `m` rows; the elements out of bounds, as text.
std::string checkGemm(Kernel &kernel, StringRef isa, const Problem &problem, int64_t m) {
  int64_t k = problem.k, n = problem.n;
  static const Epilogue identity{"", {}, [](double sum, double, double) { return sum; }};
  const Epilogue &epilogue = problem.epilogue ? *problem.epilogue : identity;
  MLIRContext context;
  context.loadDialect<AttnDialect>();
  GemmSpec spec = problem.spec(makeTarget(context, isa), m);
  int64_t width = spec.panelWidth();

  std::vector<float> aValues = randomFloats(m * k, 1), bValues = randomFloats(k * n, 2);
  Buffer a({m, k}, aValues), b = packPanels(bValues, k, n, width), c({m, n});
  std::optional<NarrowPanels> narrow;
  if (problem.isNarrow())
    narrow.emplace(bValues, k, n, spec);
  const std::vector<float> &stored = narrow ? narrow->stored : bValues;
  std::vector<Buffer> extras;
  for (auto [index, kind] : llvm::enumerate(epilogue.operands)) {
    std::vector<int64_t> shape;
    switch (kind) {
    case EpilogueOperand::Scalar:
      break;
    case EpilogueOperand::RowVector:
      shape = {n};
      break;
    case EpilogueOperand::Column:
      shape = {m};
      break;
    case EpilogueOperand::Full:
      shape = {m, n};
      break;
    }
    int64_t count = 1;
    for (int64_t size : shape)
      count *= size;
    extras.emplace_back(shape, randomFloats(count, 10 + index));
  }
  std::vector<const Buffer *> arguments = {&a, narrow ? &narrow->panels : &b};
  if (problem.storage == PanelStorage::I8)
    arguments.push_back(&narrow->scales);
  size_t firstExtra = arguments.size();
  for (Buffer &extra : extras)
    arguments.push_back(&extra);
  std::optional<Buffer> next; // too small for what is asked for: a prefetch never faults
  if (!problem.next.empty())
    arguments.push_back(&next.emplace(problem.next));
  arguments.push_back(&c);
  if (!kernel.call(arguments))
    return "the arguments do not fit";
  if (!c.guardIntact())
    return "a write before C";

  auto extra = [&](size_t index, int64_t i, int64_t j) -> double {
    if (index >= extras.size())
      return 0;
    switch (epilogue.operands[index]) {
    case EpilogueOperand::Scalar:
      return extras[index][0];
    case EpilogueOperand::RowVector:
      return extras[index][j];
    case EpilogueOperand::Column:
      return extras[index][i];
    case EpilogueOperand::Full:
      return extras[index][i * n + j];
    }
    return 0;
  };
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      // Of the weights as stored; `lost` bounds what storing them may change.
      double sum = 0, size = 0, exact = 0, lost = 0;
      for (int64_t l = 0; l < k; ++l) {
        double factor = aValues[i * k + l], product = factor * stored[l * n + j];
        sum += product;
        size += std::fabs(product);
        exact += factor * bValues[l * n + j];
        lost += std::fabs(factor) * problem.rounding(bValues[l * n + j]);
      }
      if (std::fabs(sum - exact) > lost)
        return llvm::formatv("m {0} k {1} n {2}: [{3},{4}] loses {5}", m, k, n, i, j, sum - exact);
      double expected = epilogue.reference(sum, extra(0, i, j), extra(1, i, j));
      // A scale is one more rounding, of each product or of the sum.
      double bound = epilogue.slope * std::ldexp((problem.group ? 4 : 2) + 4 * std::sqrt(k), -24) * size +
                     epilogue.error * (1 + std::fabs(expected)) + std::ldexp(std::fabs(expected), -23);
      if (!(std::fabs(c[i * n + j] - expected) <= bound))
        return llvm::formatv("m {0} k {1} n {2}: c[{3},{4}] is {5}, expects {6} within {7}", m, k, n, i, j,
                             c[i * n + j], expected, bound);
    }
  // The same bits for any cut of the work, and with C in place of a residual.
  std::vector<float> whole = c.values();
  for (int64_t pieces : {2, 3, 7}) {
    c.poison();
    kernel.call(arguments, pieces);
    if (whole != c.values())
      return "other bits in " + std::to_string(pieces) + " pieces";
  }
  for (auto [index, kind] : llvm::enumerate(epilogue.operands))
    if (kind == EpilogueOperand::Full) {
      arguments[firstExtra + index] = &c;
      std::copy_n(extras[index].data(), m * n, c.data());
      kernel.call(arguments, 3);
      if (whole != c.values())
        return "other bits when a full operand is C itself";
      break;
    }
  return "";
}

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
  std::pair<PanelStorage, int64_t> storages[] = {
      {PanelStorage::BF16, 0}, {PanelStorage::I8, 1000}, {PanelStorage::I8, 16}, {PanelStorage::I8, 64}};
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
  ASSERT_TRUE(GemmSpec::hasNarrowProducts(target));
  ASSERT_FALSE(GemmSpec::hasNarrowProducts(makeTarget(context, "avx512")));
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
      return FailureOr<func::FuncOp>(buildPackPanels(builder, loc, {k, n, spec.panelWidth(), spec.lanes}));
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
