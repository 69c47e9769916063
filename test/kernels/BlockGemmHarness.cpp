#include "test/kernels/BlockGemmHarness.h"
#include "test/kernels/TileEmulator.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Parser/Parser.h"
#include <cmath>
#include <random>

using namespace mlir;

namespace attn::test {

static constexpr char kBiased[] = R"(
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

BlockGemmSpec specOf(const BlockProblem &p, TargetAttr target) {
  BlockGemmSpec spec = BlockGemmSpec::forTarget(target, p.isOpen ? ShapedType::kDynamic : p.m, p.k, p.n);
  spec.block = p.block;
  spec.bits = p.bits;
  spec.isUnsigned = p.isUnsigned;
  spec.zeros = p.zeros;
  spec.hasByteRows = p.hasByteRows;
  spec.zeroPoint = p.zeros == BlockZeros::Constant ? p.zeroPoint : 0;
  spec.hasTiles = spec.mayHaveTiles(target);
  spec.hasDigits = spec.mayHaveDigits();
  return spec;
}

std::unique_ptr<Kernel> compileBlockGemm(StringRef isa, const BlockProblem &p) {
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
static std::vector<double> roundedRows(const std::vector<float> &a, int64_t k, int64_t block) {
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

static std::vector<int64_t> shapeOf(ArrayRef<int64_t> shape) { return shape; }

BlockCase::BlockCase(const BlockProblem &p, const BlockGemmSpec &spec)
    : words(shapeOf(spec.panelShape())), scales(shapeOf(spec.scaleShape())),
      zeros(shapeOf(spec.scaleShape()), spec.zeros == BlockZeros::Float ? sizeof(float) : 1) {
  std::mt19937 random(p.m * 131 + p.k * 17 + p.n + p.bits);
  std::normal_distribution<float> normal;
  int64_t width = spec.panelWidth(), group = spec.group(), half = int64_t(1) << (p.bits - 1);
  std::memset(words.data<char>(), 0, words.size() * sizeof(uint32_t));
  for (int64_t i = 0; i < p.m * p.k; ++i)
    a.push_back(!p.isExtreme ? normal(random) : i ? p.rest : 1);
  for (int64_t i = 0; i < p.m * p.n; ++i)
    bias.push_back(normal(random));
  matrix.resize(p.k * p.n);
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
  expect(p);
}

void BlockCase::expect(const BlockProblem &p) {
  expected.clear(), magnitude.clear();
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

double BlockCase::size(const BlockProblem &p, int64_t n) const {
  double sum = 0;
  for (int64_t k = 0; k < p.k; ++k)
    sum += std::fabs(matrix[k * p.n + n]);
  return sum;
}

void BlockGemm::SetUp() {
  StringRef isa = GetParam();
  StringRef needed = isa == "amxint8" ? "avx512vnni" : isa == "amx" ? "avx512bf16" : isa;
  if (!hostRuns(needed))
    GTEST_SKIP() << "this machine has no " << needed.str();
  if (isa.starts_with("amx") && !hostRuns(isa))
    emulateTiles();
}

std::vector<float> BlockGemm::run(Kernel &kernel, const BlockProblem &p, const BlockCase &data) {
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
  std::vector<int64_t> digitShape = shapeOf(kernelSpec.digitShape());
  Buffer digits(digitShape, size_t(1)), digitScales(shapeOf(kernelSpec.digitScaleShape())),
      digitStarts(shapeOf(kernelSpec.digitStartShape()));
  if (kernelSpec.hasDigits)
    buffers.append({&digits, &digitScales, &digitStarts});
  buffers.push_back(&c);
  std::vector<float> first;
  for (int64_t pieces : {1, 3}) {
    c.poison();
    EXPECT_TRUE(kernel.call(buffers, pieces));
    EXPECT_TRUE(c.guardIntact() && a.guardIntact());
    EXPECT_TRUE(!kernelSpec.hasDigits ||
                (digits.guardIntact() && digitScales.guardIntact() && digitStarts.guardIntact()));
    if (first.empty())
      first = c.values();
    EXPECT_EQ(0, std::memcmp(first.data(), c.data(), first.size() * sizeof(float))) << pieces << " pieces";
  }
  return first;
}

void BlockGemm::check(Kernel &kernel, const BlockProblem &p) {
  SCOPED_TRACE(testing::Message() << GetParam() << " M " << p.m << " K " << p.k << " N " << p.n << " bits " << p.bits
                                  << " block " << p.block << " zeros " << static_cast<int>(p.zeros));
  BlockCase data(p, spec(p));
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

} // namespace attn::test
