// The GEMM kernel of blocks against float64, at every edge of its tiles, words and blocks. The bound is that of a sum
// of K products in f32: (K + 8) u times the sum of their magnitudes.
#include "passes/kernels/cpu/BlockGemm.h"
#include "test/kernels/KernelHarness.h"
#include "test/kernels/TileEmulator.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Parser/Parser.h"
#include "gtest/gtest.h"
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

using namespace mlir;
using namespace attn;
using namespace attn::test;

namespace {

constexpr char kBiased[] = R"(
  func.func @f(%in: tensor<4xf32>, %p: tensor<4xf32>, %out: tensor<4xf32>) {
    %g = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
                         iterator_types = ["parallel"]}
        ins(%p, %in : tensor<4xf32>, tensor<4xf32>) outs(%out : tensor<4xf32>) {
      ^bb0(%bias: f32, %sum: f32, %unused: f32):
        %result = arith.addf %sum, %bias : f32
        linalg.yield %result : f32
    } -> tensor<4xf32>
    return
  })";

struct Problem {
  int64_t m, k, n, block = 32, bits = 4;
  bool isOpen = false; ///< the kernel is for any number of rows
  bool isUnsigned = true;
  BlockZeros zeros = BlockZeros::Constant;
  int64_t zeroPoint = 8;
  bool hasBias = false;
  EpilogueOperand bias = EpilogueOperand::RowVector;
  bool hasByteRows = false;
  bool isExtreme = false; ///< rows of one number, all codes the greatest
};

BlockGemmSpec specOf(const Problem &p, TargetAttr target) {
  BlockGemmSpec spec = BlockGemmSpec::forTarget(target, p.isOpen ? ShapedType::kDynamic : p.m, p.k, p.n);
  spec.block = p.block;
  spec.bits = p.bits;
  spec.isUnsigned = p.isUnsigned;
  spec.zeros = p.zeros;
  spec.hasByteRows = p.hasByteRows;
  spec.zeroPoint = p.zeros == BlockZeros::Constant ? p.zeroPoint : 0;
  spec.hasTiles = spec.mayHaveTiles(target);
  return spec;
}

std::unique_ptr<Kernel> compile(StringRef isa, const Problem &p) {
  return Kernel::compile(isa, [&](OpBuilder &builder, Location loc) -> FailureOr<func::FuncOp> {
    BlockGemmSpec spec = specOf(p, makeTarget(*builder.getContext(), isa));
    OwningOpRef<ModuleOp> holder;
    if (p.hasBias) {
      holder = parseSourceString<ModuleOp>(kBiased, builder.getContext());
      if (!holder)
        return failure();
      holder->walk([&](linalg::GenericOp op) { spec.epilogue = op.getBody(); });
      spec.accumulator = 1;
      spec.operands = {p.bias};
    }
    return buildBlockGemm(builder, loc, spec);
  });
}

/// Rows rounded to s8, one scale a block, as numbers again. Blocks of zeros stay.
std::vector<double> roundedRows(const std::vector<float> &a, int64_t k, int64_t block) {
  std::vector<double> rounded(a.size());
  for (size_t first = 0; first < a.size(); first += k)
    for (int64_t begin = 0; begin < k; begin += block) {
      float most = 0;
      for (int64_t i = begin; i < std::min(begin + block, k); ++i)
        most = std::max(most, std::fabs(a[first + i]));
      float factor = most > 0 ? 127 / most : 0;
      for (int64_t i = begin; i < std::min(begin + block, k); ++i)
        rounded[first + i] = static_cast<double>(std::nearbyint(a[first + i] * factor)) * (most / 127);
    }
  return rounded;
}

/// What the kernel reads and should give.
struct Case {
  std::vector<float> a, bias;
  std::vector<double> expected, magnitude;
  Buffer words, scales, zeros;

  Case(const Problem &p, const BlockGemmSpec &spec)
      : words(shapeOf(spec.panelShape())), scales(shapeOf(spec.scaleShape())),
        zeros(shapeOf(spec.scaleShape()), spec.zeros == BlockZeros::Float ? sizeof(float) : 1) {
    std::mt19937 random(p.m * 131 + p.k * 17 + p.n + p.bits);
    std::normal_distribution<float> normal;
    int64_t width = spec.panelWidth(), group = spec.group(), half = int64_t(1) << (p.bits - 1);
    std::memset(words.data<char>(), 0, words.size() * sizeof(uint32_t));
    for (int64_t i = 0; i < p.m * p.k; ++i)
      a.push_back(p.isExtreme ? 1 : normal(random));
    for (int64_t i = 0; i < p.m * p.n; ++i)
      bias.push_back(normal(random));
    std::vector<double> matrix(p.k * p.n);
    for (int64_t n = 0; n < p.n; ++n)
      for (int64_t k = 0; k < p.k; ++k) {
        int64_t at = (n / width * spec.numBlocks() + k / p.block) * width + n % width;
        if (k % p.block == 0) {
          scales[at] = 0.1f * normal(random);
          if (p.zeros == BlockZeros::Float)
            zeros[at] = normal(random);
          else if (p.zeros != BlockZeros::Constant)
            zeros.data<int8_t>()[at] = random() % (2 * half) - (p.isUnsigned ? 0 : half);
        }
        double zero = p.zeros == BlockZeros::Constant   ? p.zeroPoint
                      : p.zeros == BlockZeros::Float    ? zeros[at]
                      : p.zeros == BlockZeros::Unsigned ? zeros.data<uint8_t>()[at]
                                                        : zeros.data<int8_t>()[at];
        uint32_t stored = p.isExtreme ? 2 * half - 1 : random() % (2 * half);
        int64_t row = k % group;
        words.data<uint32_t>()[(n / width * spec.panelShape()[1] + k / group) * width + n % width] |=
            stored << (row % 4 * 8 + row / 4 * p.bits);
        matrix[k * p.n + n] = (static_cast<double>(stored) - (p.isUnsigned ? 0 : half) - zero) * scales[at];
      }
    for (int64_t i = 0; i < p.m * p.k && p.hasByteRows; ++i) // a block of zeros, and one that is small
      if (i % p.k < p.block)
        a[i] = i / p.k % 3 == 1 ? 0 : a[i] * 1e-30f;
    std::vector<double> rows(a.begin(), a.end());
    if (p.hasByteRows)
      rows = roundedRows(a, p.k, p.block);
    for (int64_t m = 0; m < p.m; ++m)
      for (int64_t n = 0; n < p.n; ++n) {
        double sum = 0, size = 0;
        for (int64_t k = 0; k < p.k; ++k) {
          double term = rows[m * p.k + k] * matrix[k * p.n + n];
          sum += term;
          size += std::fabs(term);
        }
        expected.push_back(sum);
        magnitude.push_back(size);
      }
  }
  static std::vector<int64_t> shapeOf(ArrayRef<int64_t> shape) { return shape; }
};

class BlockGemm : public testing::TestWithParam<const char *> {
protected:
  /// A machine without tiles emulates their instructions.
  void SetUp() override {
    StringRef isa = GetParam();
    StringRef needed = isa == "amxint8" ? "avx512vnni" : isa == "amx" ? "avx512bf16" : isa;
    if (!hostRuns(needed))
      GTEST_SKIP() << "this machine has no " << needed.str();
    if (isa.starts_with("amx") && !hostRuns(isa))
      emulateTiles();
  }
  BlockGemmSpec spec(const Problem &problem) { return specOf(problem, makeTarget(context, GetParam())); }
  std::vector<float> run(Kernel &kernel, const Problem &p) { return run(kernel, p, Case(p, spec(p))); }
  /// Runs the kernel on guarded buffers, cut in several ways, and gives C, the same each time.
  std::vector<float> run(Kernel &kernel, const Problem &p, const Case &data) {
    std::vector<std::vector<int64_t>> shapes = {{}, {p.n}, {p.m}, {p.m, p.n}};
    std::vector<int64_t> shape = shapes[static_cast<int>(p.bias)];
    int64_t count = 1;
    for (int64_t size : shape)
      count *= size;
    Buffer a({p.m, p.k}, data.a), c({p.m, p.n}),
        bias(shape, std::vector<float>(data.bias.begin(), data.bias.begin() + (p.hasBias ? count : 0)));
    SmallVector<const Buffer *> buffers = {&a, &data.words, &data.scales};
    if (p.zeros != BlockZeros::Constant)
      buffers.push_back(&data.zeros);
    if (p.hasBias)
      buffers.push_back(&bias);
    BlockGemmSpec kernelSpec = spec(p);
    int64_t rows = llvm::alignTo(p.m, kernelSpec.rowMultiple());
    Buffer rowBytes({rows, kernelSpec.rowShape()[1]}, size_t(1)), rowScales({rows, kernelSpec.numBlocks()}),
        rowStarts({rows, kernelSpec.numBlocks()});
    Buffer rowParts({rows, kernelSpec.rowShape()[1]}, size_t(2));
    if (p.hasByteRows)
      buffers.append({&rowBytes, &rowScales, &rowStarts});
    else if (kernelSpec.hasTiles)
      buffers.push_back(&rowParts);
    buffers.push_back(&c);
    std::vector<float> first;
    for (int64_t pieces : {1, 3}) {
      c.poison();
      EXPECT_TRUE(kernel.call(buffers, pieces));
      EXPECT_TRUE(c.guardIntact() && a.guardIntact());
      if (first.empty())
        first = c.values();
      EXPECT_EQ(0, std::memcmp(first.data(), c.data(), first.size() * sizeof(float))) << pieces << " pieces";
    }
    return first;
  }
  void check(Kernel &kernel, const Problem &p) {
    SCOPED_TRACE(testing::Message() << GetParam() << " M " << p.m << " K " << p.k << " N " << p.n << " bits " << p.bits
                                    << " block " << p.block << " zeros " << static_cast<int>(p.zeros));
    Case data(p, spec(p));
    std::vector<float> c = run(kernel, p, data);
    for (int64_t i = 0; i < p.m * p.n; ++i) {
      int64_t at = p.bias == EpilogueOperand::Scalar      ? 0
                   : p.bias == EpilogueOperand::RowVector ? i % p.n
                   : p.bias == EpilogueOperand::Column    ? i / p.n
                                                          : i;
      double want = data.expected[i] + (p.hasBias ? data.bias[at] : 0);
      ASSERT_LE(std::fabs(c[i] - want), std::ldexp(p.k + 8.0, -24) * (data.magnitude[i] + std::fabs(want))) << i;
    }
  }
  void check(const Problem &p) {
    std::unique_ptr<Kernel> kernel = compile(GetParam(), p);
    ASSERT_TRUE(kernel);
    check(*kernel, p);
  }

  MLIRContext context{MLIRContext::Threading::DISABLED};
  BlockGemm() { context.loadDialect<AttnDialect>(); }
};

TEST_P(BlockGemm, EveryEdge) {
  // Columns around a register and a panel; depths around a word, a block and what is unpacked at once.
  for (int64_t n : {1, 15, 64, 97})
    check({2, 40, n});
  for (int64_t k : {1, 7, 8, 31, 33, 256, 300, 555})
    check({1, k, 20});
  for (int64_t k : {5, 32, 128, 129, 300})
    check({9, k, 20});
}

TEST_P(BlockGemm, AnyNumberOfRows) {
  Problem open{0, 70, 50};
  open.isOpen = true;
  std::unique_ptr<Kernel> kernel = compile(GetParam(), open);
  ASSERT_TRUE(kernel);
  for (int64_t m : {0, 1, 2, 3, 4, 5, 6, 7, 13, 95, 96, 97, 200}) {
    Problem p = open;
    p.m = m;
    check(*kernel, p);
  }
}

TEST_P(BlockGemm, EveryWidthAndZeroPoint) {
  for (int64_t bits : {2, 4, 8})
    for (bool isUnsigned : {false, true})
      for (BlockZeros zeros : {BlockZeros::Constant, BlockZeros::Signed, BlockZeros::Float}) {
        Problem p{3, 80, 18, 16, bits, false, isUnsigned, zeros, isUnsigned ? 1 : -1};
        if (zeros == BlockZeros::Signed && isUnsigned)
          p.zeros = BlockZeros::Unsigned;
        check(p);
        p.m = 6;
        check(p);
      }
  for (int64_t block : {64, 128, 256}) // the last is more than f32 writes out at a time else
    for (int64_t m : {2, 9})
      check({m, 300, 18, block});
}

TEST_P(BlockGemm, Epilogue) {
  for (int64_t m : {1, 7})
    for (EpilogueOperand kind :
         {EpilogueOperand::Scalar, EpilogueOperand::RowVector, EpilogueOperand::Column, EpilogueOperand::Full}) {
      Problem p{m, 40, 70};
      p.hasBias = true;
      p.bias = kind;
      check(p);
    }
}

using BlockGemmOfBytes = BlockGemm;

TEST_P(BlockGemmOfBytes, EveryEdge) {
  for (int64_t bits : {2, 4, 8})
    for (BlockZeros zeros : {BlockZeros::Constant, BlockZeros::Signed}) {
      Problem p{2, 75, 70, 16, bits, false, zeros == BlockZeros::Constant, zeros, 1};
      p.hasByteRows = true;
      check(p);
    }
  for (int64_t k : {1, 31, 256, 300}) {
    Problem p{1, k, 20, 32, 4};
    p.hasByteRows = true;
    check(p);
    p.m = 8;
    check(p);
  }
  Problem open{0, 300, 97, 32, 4, true, true, BlockZeros::Unsigned};
  open.hasByteRows = true;
  std::unique_ptr<Kernel> kernel = compile(GetParam(), open);
  ASSERT_TRUE(kernel);
  bool hasPairs = StringRef(GetParam()) == "avx2" || StringRef(GetParam()) == "avx512";
  EXPECT_TRUE(StringRef(kernel->assembly()).contains(hasPairs ? "vpmaddubsw" : "vpdpbusd"));
  for (int64_t m : {0, 1, 4, 5, 13, 97}) {
    Problem p = open;
    p.m = m;
    check(*kernel, p);
  }
}

/// Two products of the greatest code of 8 bits are more than a word holds, of fewer bits they are not.
TEST_P(BlockGemmOfBytes, GreatestCodes) {
  for (int64_t bits : {2, 4, 8})
    for (int64_t m : {1, 9}) {
      Problem p{m, 75, 20, 32, bits, false, true, BlockZeros::Constant, 1};
      p.hasByteRows = p.isExtreme = true;
      check(p);
    }
}

/// A row with an infinity or a NaN gives NaN, and no other row knows of it.
TEST_P(BlockGemmOfBytes, NotFinite) {
  for (int64_t m : {4, 18}) { // the latter on tiles
    Problem p{m, 75, 20};
    p.hasByteRows = true;
    std::unique_ptr<Kernel> kernel = compile(GetParam(), p);
    ASSERT_TRUE(kernel);
    Case data(p, spec(p));
    std::vector<float> want = run(*kernel, p, data);
    data.a[0 * p.k + 40] = INFINITY, data.a[2 * p.k + 1] = -INFINITY, data.a[2 * p.k + 2] = NAN;
    std::vector<float> got = run(*kernel, p, data);
    for (int64_t i = 0; i < p.m * p.n; ++i)
      if (i / p.n == 0 || i / p.n == 2)
        EXPECT_TRUE(std::isnan(got[i])) << got[i] << " in row " << i / p.n;
      else
        EXPECT_EQ(got[i], want[i]) << i;
  }
}

TEST_P(BlockGemmOfBytes, Tiles) {
  if (GetParam() != StringRef("amxint8"))
    GTEST_SKIP() << "it has no tiles";
  auto checkTiles = [&](Problem p) {
    p.hasByteRows = true;
    EXPECT_TRUE(spec(p).hasTiles);
    check(p);
  };
  for (int64_t n : {1, 16, 97})
    checkTiles({18, 40, n});
  // One block, two on their way, an odd one behind pairs, and around what is unpacked at once.
  for (int64_t k : {31, 64, 96, 256, 257, 600})
    checkTiles({17, k, 20});
  checkTiles({16, 530, 18, 16, 4, false, true, BlockZeros::Unsigned});
  checkTiles({16, 530, 18, 64, 4, false, false, BlockZeros::Signed});
  checkTiles({16, 530, 18, 128, 4, false, false, BlockZeros::Constant, -1});
  checkTiles({16, 530, 18, 256, 4, false, true, BlockZeros::Constant, 1});
  checkTiles({16, 80, 18, 32, 2, false, true, BlockZeros::Unsigned});
  checkTiles({16, 300, 18, 256, 8, false, false, BlockZeros::Constant, 0});
  checkTiles({16, 80, 18, 32, 8, false, true, BlockZeros::Constant, 128});
  Problem wide{16, 300, 18, 32, 8, false, true, BlockZeros::Constant, 127}; // 255 - 127 is none of s8
  wide.hasByteRows = true;
  EXPECT_FALSE(spec(wide).hasTiles);
}

/// Whether a run has tiles does not show: all sums of a block are exact, and scaled in the same order.
TEST_P(BlockGemmOfBytes, SameBitsWithoutTiles) {
  if (GetParam() != StringRef("amxint8"))
    GTEST_SKIP() << "it has no tiles";
  Problem p{0, 300, 70, 32, 4, true, true, BlockZeros::Unsigned};
  p.hasByteRows = p.hasBias = true;
  std::unique_ptr<Kernel> tiles = compile(GetParam(), p), plain = compile("avx512vnni", p);
  ASSERT_TRUE(tiles && plain);
  for (StringRef name : {"ldtilecfg", "tilezero", "tileloadd", "tdpbssd", "tilestored", "tilerelease", "vpdpbusd"})
    EXPECT_TRUE(StringRef(tiles->assembly()).contains(name)) << name.str();
  // Around a tile and a chunk of rows.
  for (int64_t m : {4, 5, 15, 16, 17, 31, 32, 33, 128, 129, 270}) {
    p.m = m;
    check(*tiles, p);
    EXPECT_EQ(run(*tiles, p), run(*plain, p)) << m;
  }
}

using BlockGemmOfParts = BlockGemm;

TEST_P(BlockGemmOfParts, EveryEdge) {
  auto checkTiles = [&](const Problem &p) {
    EXPECT_TRUE(spec(p).hasTiles);
    check(p);
  };
  for (int64_t n : {1, 16, 97})
    checkTiles({18, 40, n});
  // One block, two on their way, an odd one behind pairs, and around what is unpacked at once.
  for (int64_t k : {1, 31, 64, 96, 128, 129, 300, 600})
    checkTiles({17, k, 20});
  for (int64_t block : {16, 64, 128, 256})
    checkTiles({16, 530, 18, block});
  for (int64_t bits : {2, 4, 8})
    for (BlockZeros zeros : {BlockZeros::Constant, BlockZeros::Signed, BlockZeros::Unsigned})
      checkTiles({19, 80, 18, 32, bits, false, zeros != BlockZeros::Signed, zeros, 1});
  checkTiles({16, 80, 18, 32, 8, false, true, BlockZeros::Constant, 255});
  Problem floats{16, 80, 18, 32, 4, false, true, BlockZeros::Float}, small{16, 80, 18, 8};
  EXPECT_FALSE(spec(floats).hasTiles || spec(small).hasTiles);
  check(small);
}

TEST_P(BlockGemmOfParts, AnyNumberOfRows) {
  Problem p{0, 300, 70, 32, 4, true, true, BlockZeros::Unsigned};
  p.hasBias = true;
  std::unique_ptr<Kernel> kernel = compile(GetParam(), p);
  ASSERT_TRUE(kernel);
  EXPECT_TRUE(StringRef(kernel->assembly()).contains("tdpbf16ps"));
  for (int64_t m : {1, 4, 5, 15, 16, 17, 31, 33, 128, 129, 270}) {
    p.m = m;
    check(*kernel, p);
  }
  p.hasBias = false;
  p.m = 0;
  check(p);
}

// Rows of any size, of which f32 keeps 24 bits, and what is no number.
TEST_P(BlockGemmOfParts, NumbersOfAnySize) {
  Problem p{16, 64, 20, 32, 4, false, true, BlockZeros::Constant, 8};
  std::unique_ptr<Kernel> kernel = compile(GetParam(), p);
  ASSERT_TRUE(kernel);
  std::vector<float> plain = run(*kernel, p);
  for (float factor : {0x1p-40f, 0x1p-80f, 0x1p100f}) {
    Case other(p, spec(p));
    for (float &x : other.a)
      x *= factor;
    std::vector<float> c = run(*kernel, p, other);
    for (size_t i = 0; i < c.size(); ++i)
      EXPECT_EQ(c[i], plain[i] * factor) << i;
  }
  const float infinity = std::numeric_limits<float>::infinity();
  for (float special : {infinity, -infinity, std::nanf("")}) {
    Case other(p, spec(p));
    other.a[3 * p.k + 5] = special;
    std::vector<float> c = run(*kernel, p, other);
    for (int64_t i = 0; i < p.m * p.n; ++i) {
      if (i / p.n != 3)
        EXPECT_EQ(c[i], plain[i]) << i;
      else if (std::isinf(special)) // times 0 it is no number, and else infinite
        EXPECT_FALSE(std::isfinite(c[i])) << i;
      else
        EXPECT_TRUE(std::isnan(c[i])) << i;
    }
    EXPECT_EQ(std::isinf(special), std::any_of(c.begin(), c.end(), [](float x) { return std::isinf(x); }));
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, BlockGemmOfParts, testing::Values("amx"),
                         [](const testing::TestParamInfo<const char *> &info) { return std::string(info.param); });
INSTANTIATE_TEST_SUITE_P(Isas, BlockGemmOfBytes, testing::Values("avx2", "avxvnni", "avx512", "avx512vnni", "amxint8"),
                         [](const testing::TestParamInfo<const char *> &info) { return std::string(info.param); });
INSTANTIATE_TEST_SUITE_P(Isas, BlockGemm, testing::ValuesIn(kIsas),
                         [](const testing::TestParamInfo<const char *> &info) { return std::string(info.param); });

TEST(BlockGemmSpec, SaysWhatItCannotBuild) {
  MLIRContext context;
  context.loadDialect<AttnDialect>();
  BlockGemmSpec spec = BlockGemmSpec::forTarget(makeTarget(context, "avx512"), 4, 64, 16);
  std::string reason;
  EXPECT_TRUE(canBuildBlockGemm(spec, &reason));
  BlockGemmSpec odd = spec;
  odd.block = 20;
  EXPECT_FALSE(canBuildBlockGemm(odd, &reason));
  EXPECT_EQ(reason, "blocks of 20 are not whole words of 8 codes, or do not divide 256");
  for (int64_t block : {0, 4}) {
    odd.block = block;
    EXPECT_FALSE(canBuildBlockGemm(odd, &reason)) << block;
  }
  BlockGemmSpec wide = spec;
  wide.bits = 3;
  EXPECT_FALSE(canBuildBlockGemm(wide, &reason));
  EXPECT_EQ(reason, "codes have 3 bits, not 2, 4 or 8");
  BlockGemmSpec far = spec;
  far.zeroPoint = 16;
  EXPECT_FALSE(canBuildBlockGemm(far, &reason));
  EXPECT_EQ(reason, "the zero point 16 is outside the codes' range");
  BlockGemmSpec empty = spec;
  empty.k = 0;
  EXPECT_FALSE(canBuildBlockGemm(empty, &reason));
}

} // namespace
