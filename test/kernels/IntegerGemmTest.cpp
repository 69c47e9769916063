// The GEMM kernel of bytes against exact sums, at every edge of its tiles. Sums are equal to the last bit; an epilogue
// in f32 is of the sum rounded once, and within 4 u of the reference.
#include "test/kernels/IntegerGemmCases.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Parser/Parser.h"
#include "gtest/gtest.h"
#include <cmath>
#include <optional>
#include <random>

using namespace mlir;
using namespace attn;
using namespace attn::test;

namespace {

constexpr char kScaled[] = R"(
  func.func @f(%in: tensor<4xi32>, %p: tensor<4xf32>, %out: tensor<4xf32>) {
    %g = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
                         iterator_types = ["parallel"]}
        ins(%in, %p : tensor<4xi32>, tensor<4xf32>) outs(%out : tensor<4xf32>) {
      ^bb0(%sum: i32, %bias: f32, %unused: f32):
        %scale = arith.constant 0.0078125 : f32
        %wide = arith.sitofp %sum : i32 to f32
        %product = arith.mulf %wide, %scale : f32
        %result = arith.addf %product, %bias : f32
        linalg.yield %result : f32
    } -> tensor<4xf32>
    return
  })";
constexpr char kRequantised[] = R"(
  func.func @f(%in: tensor<4xi32>, %p: tensor<4xi8>, %out: tensor<4xi8>) {
    %g = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
                         iterator_types = ["parallel"]}
        ins(%p, %in : tensor<4xi8>, tensor<4xi32>) outs(%out : tensor<4xi8>) {
      ^bb0(%zero: i8, %sum: i32, %unused: i8):
        %low = arith.trunci %sum : i32 to i8
        %result = arith.addi %low, %zero : i8
        linalg.yield %result : i8
    } -> tensor<4xi8>
    return
  })";

struct Problem {
  int64_t m, k, n;
  bool isOpen = false; ///< the kernel is for any number of rows
  bool hasRowZero = false;
  ZeroPoint columnZero = ZeroPoint::None;
  const char *epilogue = nullptr;
  unsigned accumulator = 0;
  EpilogueOperand operand = EpilogueOperand::RowVector;
  Bytes right = Bytes::Any; ///< those of B; of A all are 255 but with Any
};

IntegerGemmSpec specOf(const Problem &problem, TargetAttr target) {
  IntegerGemmSpec spec =
      IntegerGemmSpec::forTarget(target, problem.isOpen ? ShapedType::kDynamic : problem.m, problem.k, problem.n);
  spec.hasRowZero = problem.hasRowZero;
  spec.columnZero = problem.columnZero;
  return spec;
}

std::unique_ptr<Kernel> compile(StringRef isa, const Problem &problem) {
  return Kernel::compile(isa, [&](OpBuilder &builder, Location loc) -> FailureOr<func::FuncOp> {
    IntegerGemmSpec spec = specOf(problem, makeTarget(*builder.getContext(), isa));
    OwningOpRef<ModuleOp> holder;
    if (problem.epilogue) {
      holder = parseSourceString<ModuleOp>(problem.epilogue, builder.getContext());
      if (!holder)
        return failure();
      holder->walk([&](linalg::GenericOp op) { spec.epilogue = op.getBody(); });
      spec.accumulator = problem.accumulator;
      spec.operands = {problem.operand};
    }
    return buildIntegerGemm(builder, loc, spec);
  });
}

/// What the kernel reads and should give.
struct Case {
  std::vector<int8_t> a, b, rowZero, columnZero;
  std::vector<int32_t> expected;
  Buffer panels, sums;
  std::optional<Buffer> order;

  Case(const Problem &p, const IntegerGemmSpec &spec)
      : panels(shapeOf(spec.panelShape()), 1), sums(shapeOf(spec.sumShape()), 4) {
    std::mt19937 random(p.m * 131 + p.k * 17 + p.n);
    a = randomBytes(p.m * p.k, random);
    if (p.right != Bytes::Any)
      std::fill(a.begin(), a.end(), -1);
    b = randomMatrix(p.k, p.n, p.right, false, random);
    rowZero = {static_cast<int8_t>(random())};
    columnZero = randomBytes(p.columnZero == ZeroPoint::Scalar ? 1 : p.n, random);
    int64_t width = spec.panelWidth(), group = spec.group();
    std::memset(panels.data<char>(), 0, panels.size());
    std::memset(sums.data<char>(), 0, sums.size() * sizeof(int32_t));
    for (int64_t k = 0; k < p.k; ++k)
      for (int64_t n = 0; n < p.n; ++n) {
        int64_t step = (n / width * spec.panelShape()[1] + k / group) * width * group;
        panels.data<int8_t>()[step + n % width * group + k % group] = b[k * p.n + n];
        sums.data<int32_t>()[n] += b[k * p.n + n];
      }
    if (spec.ordersSteps()) {
      int64_t count = spec.panelShape()[0];
      std::vector<int32_t> numbers = stepOrder(panels.data<int8_t>(), count, p.k, width * group, true);
      order.emplace(std::vector<int64_t>{count, p.k / 4 + 2}, std::vector<int16_t>(numbers.begin(), numbers.end()));
    }
    for (int64_t m = 0; m < p.m; ++m)
      for (int64_t n = 0; n < p.n; ++n) {
        int64_t sum = 0, za = p.hasRowZero ? static_cast<uint8_t>(rowZero[0]) : 0,
                zb = p.columnZero == ZeroPoint::None ? 0 : columnZero[n % columnZero.size()];
        for (int64_t k = 0; k < p.k; ++k)
          sum += (static_cast<uint8_t>(a[m * p.k + k]) - za) * (b[k * p.n + n] - zb);
        expected.push_back(static_cast<int32_t>(sum));
      }
  }
  static std::vector<int64_t> shapeOf(ArrayRef<int64_t> shape) { return shape; }
};

/// Runs the kernel on guarded buffers, cut in several ways, and gives C's bytes, the same each time.
std::vector<char> run(Kernel &kernel, const Problem &p, const Case &data, const Buffer *operand, size_t resultBytes,
                      RowPacking *packing) {
  Buffer a({p.m, p.k}, data.a), rowZero({}, data.rowZero), c({p.m, p.n}, resultBytes);
  Buffer columnZero(p.columnZero == ZeroPoint::Scalar ? std::vector<int64_t>{} : std::vector<int64_t>{p.n},
                    data.columnZero);
  std::vector<const Buffer *> buffers = {&a, &data.panels, &data.sums};
  if (data.order)
    buffers.push_back(&*data.order);
  std::optional<RowPacking::Rows> packed;
  if (packing) {
    packed.emplace(packing->pack(a, 1));
    buffers.insert(buffers.begin() + 1, &packed->tiles);
    if (p.columnZero != ZeroPoint::None)
      buffers.insert(buffers.begin() + 2, &packed->sums);
  }
  if (p.hasRowZero)
    buffers.push_back(&rowZero);
  if (p.columnZero != ZeroPoint::None)
    buffers.push_back(&columnZero);
  if (operand)
    buffers.push_back(operand);
  buffers.push_back(&c);
  std::vector<char> first;
  for (int64_t pieces : {1, 3, 7}) {
    c.poison();
    EXPECT_TRUE(kernel.call(buffers, pieces));
    std::vector<char> bytes(c.data<char>(), c.data<char>() + c.size() * resultBytes);
    EXPECT_TRUE(c.guardIntact() && a.guardIntact());
    if (first.empty())
      first = bytes;
    EXPECT_EQ(first, bytes) << pieces << " pieces";
  }
  return first;
}

class IntegerGemm : public ByteKernels {
protected:
  IntegerGemmSpec spec(const Problem &problem) { return specOf(problem, makeTarget(context, GetParam())); }
  std::vector<char> run(Kernel &kernel, const Problem &p, const Case &data, const Buffer *operand, size_t resultBytes) {
    std::optional<RowPacking> packing;
    if (spec(p).hasTiles)
      packing.emplace(GetParam(), p.isOpen ? ShapedType::kDynamic : p.m, p.k);
    return ::run(kernel, p, data, operand, resultBytes, packing ? &*packing : nullptr);
  }
  void checkSums(const Problem &p) {
    SCOPED_TRACE(testing::Message() << GetParam() << " M " << p.m << " K " << p.k << " N " << p.n);
    std::unique_ptr<Kernel> kernel = compile(GetParam(), p);
    ASSERT_TRUE(kernel);
    Case data(p, spec(p));
    std::vector<char> got = run(*kernel, p, data, nullptr, sizeof(int32_t));
    ASSERT_EQ(got.size(), data.expected.size() * sizeof(int32_t));
    EXPECT_EQ(0, std::memcmp(got.data(), data.expected.data(), got.size()));
  }
};

TEST_P(IntegerGemm, SumsAreExactAtEveryEdge) {
  // Columns and depths around a panel, a group of rows and a register; heights around a tile.
  for (int64_t n : {1, 15, 17, 48, 97})
    checkSums({5, 7, n});
  // Panels of 64 columns, and around them.
  for (int64_t n : {63, 64, 65, 128})
    checkSums({7, 9, n, false, true, ZeroPoint::ByColumn});
  for (int64_t m : {0, 1, 5, 6, 7, 13})
    checkSums({m, 12, 64});
  for (int64_t k : {1, 3, 4, 65, 200})
    checkSums({3, k, 20, false, true, ZeroPoint::ByColumn});
  for (int64_t m : {0, 1, 8, 17})
    checkSums({m, 12, 33});
  if (GetParam() != StringRef("amxint8"))
    return;
  // Around a tile, two of them, and a part of a panel that stays in the first-level cache.
  for (int64_t m : {7, 15, 16, 31, 32, 33, 129})
    checkSums({m, 64, 32});
  for (int64_t k : {63, 64, 767, 768, 769, 833, 1600})
    checkSums({40, k, 31, false, true, ZeroPoint::ByColumn});
  // Blocks of 32 rows one after the other, each finished during the next one: of one step, of one pass or of several,
  // and a last one of fewer rows.
  for (auto [m, k] : {std::pair{64, 1}, {96, 64}, {100, 65}, {160, 200}, {128, 769}, {150, 1600}})
    for (bool isOpen : {false, true})
      checkSums({m, k, 33, isOpen, true, ZeroPoint::ByColumn});
}

TEST_P(IntegerGemm, AnyNumberOfRows) {
  Problem open{0, 9, 50, true, true};
  std::unique_ptr<Kernel> kernel = compile(GetParam(), open);
  ASSERT_TRUE(kernel);
  for (int64_t m : {0, 1, 2, 7, 8, 9, 16, 17, 31, 32, 33, 127, 128, 129, 300}) {
    Problem p = open;
    p.m = m;
    Case data(p, spec(p));
    std::vector<char> got = run(*kernel, p, data, nullptr, sizeof(int32_t));
    EXPECT_EQ(0, std::memcmp(got.data(), data.expected.data(), got.size())) << m;
  }
}

TEST_P(IntegerGemm, ZeroPointsOfBothSides) {
  for (ZeroPoint zero : {ZeroPoint::None, ZeroPoint::Scalar, ZeroPoint::ByColumn})
    for (bool hasRowZero : {false, true})
      checkSums({9, 70, 50, false, hasRowZero, zero});
}

TEST_P(IntegerGemm, NothingSaturates) {
  for (Bytes kind : {Bytes::Ends, Bytes::Fitting, Bytes::Doubles})
    for (bool isOpen : {false, true}) {
      Problem p{9, 1003, 33, isOpen};
      p.right = kind;
      checkSums(p);
    }
}

TEST_P(IntegerGemm, EpilogueInFloat) {
  for (EpilogueOperand kind :
       {EpilogueOperand::Scalar, EpilogueOperand::RowVector, EpilogueOperand::Column, EpilogueOperand::Full}) {
    Problem p{70, 80, 50, false, true};
    p.epilogue = kScaled;
    p.operand = kind;
    std::unique_ptr<Kernel> kernel = compile(GetParam(), p);
    ASSERT_TRUE(kernel);
    Case data(p, spec(p));
    std::vector<std::vector<int64_t>> shapes = {{}, {p.n}, {p.m}, {p.m, p.n}};
    Buffer operand(shapes[static_cast<int>(kind)]);
    for (int64_t i = 0; i < operand.size(); ++i)
      operand[i] = 0.5f * i - 3;
    std::vector<char> got = run(*kernel, p, data, &operand, sizeof(float));
    for (int64_t i = 0; i < p.m * p.n; ++i) {
      float value;
      std::memcpy(&value, &got[i * sizeof value], sizeof value);
      int64_t at = kind == EpilogueOperand::Scalar      ? 0
                   : kind == EpilogueOperand::RowVector ? i % p.n
                   : kind == EpilogueOperand::Column    ? i / p.n
                                                        : i;
      double product = data.expected[i] * 0.0078125, want = product + operand[at];
      EXPECT_LE(std::fabs(value - want), std::ldexp(4.0, -24) * (std::fabs(product) + std::fabs(operand[at]))) << i;
    }
  }
}

TEST_P(IntegerGemm, EpilogueToBytes) {
  Problem p{9, 20, 50};
  p.epilogue = kRequantised;
  p.accumulator = 1;
  std::unique_ptr<Kernel> kernel = compile(GetParam(), p);
  ASSERT_TRUE(kernel);
  Case data(p, spec(p));
  std::vector<int8_t> zeros(p.n);
  for (int64_t n = 0; n < p.n; ++n)
    zeros[n] = 3 * n;
  Buffer operand({p.n}, zeros);
  std::vector<char> got = run(*kernel, p, data, &operand, 1);
  for (int64_t i = 0; i < p.m * p.n; ++i)
    EXPECT_EQ(static_cast<int8_t>(got[i]), static_cast<int8_t>(data.expected[i] + zeros[i % p.n])) << i;
}

TEST_P(IntegerGemm, TakesTheBestInstruction) {
  std::unique_ptr<Kernel> kernel = compile(GetParam(), {0, 64, 48, /*isOpen=*/true});
  ASSERT_TRUE(kernel);
  StringRef isa = GetParam(), assembly = kernel->assembly();
  bool hasQuads = isa == "avx512vnni" || isa == "avxvnni" || isa == "amxint8";
  EXPECT_EQ(hasQuads, assembly.contains("vpdpbusd"));
  EXPECT_EQ(!hasQuads && isa != "portable", assembly.contains("vpmaddwd"));
  EXPECT_EQ(!hasQuads && isa != "portable", assembly.contains("vpmaddubsw"));
  for (StringRef name : {"ldtilecfg", "tilezero", "tileloadd", "tileloaddt1", "tdpbusd", "tilestored", "tilerelease"})
    EXPECT_EQ(isa == "amxint8", assembly.contains(name)) << name.str();
}

INSTANTIATE_TEST_SUITE_P(Isas, IntegerGemm,
                         testing::Values("portable", "avx2", "avxvnni", "avx512", "avx512vnni", "amxint8"),
                         [](const testing::TestParamInfo<const char *> &info) { return std::string(info.param); });

/// A library for machines with tiles runs on others, too: the same kernel there.
TEST(IntegerGemmTiles, WithoutTiles) {
  if (!hostRuns("avx512vnni"))
    GTEST_SKIP() << "this machine has no avx512vnni";
  MLIRContext context;
  context.loadDialect<AttnDialect>();
  Problem p{0, 70, 50, true, true};
  IntegerGemmSpec spec = specOf(p, makeTarget(context, "amxint8"));
  auto kernel = Kernel::compile("avx512vnni", [&](OpBuilder &builder, Location loc) {
    return buildIntegerGemm(builder, loc, specOf(p, makeTarget(*builder.getContext(), "amxint8")));
  });
  RowPacking packing("avx512vnni", ShapedType::kDynamic, p.k);
  ASSERT_TRUE(kernel && spec.hasTiles);
  for (int64_t m : {1, 12, 13, 40}) {
    p.m = m;
    Case data(p, spec);
    std::vector<char> got = run(*kernel, p, data, nullptr, sizeof(int32_t), &packing);
    EXPECT_EQ(0, std::memcmp(got.data(), data.expected.data(), got.size())) << m;
  }
}

/// Products of few rows and of many share a weight: their panels are the same, and few rows have no tiles.
TEST(IntegerGemmSpec, FewRowsHaveNoTiles) {
  MLIRContext context;
  context.loadDialect<AttnDialect>();
  TargetAttr target = makeTarget(context, "amxint8");
  IntegerGemmSpec few = IntegerGemmSpec::forTarget(target, IntegerGemmSpec::kFewestTileRows - 1, 768, 768);
  IntegerGemmSpec many = IntegerGemmSpec::forTarget(target, IntegerGemmSpec::kFewestTileRows, 768, 768);
  EXPECT_FALSE(few.hasTiles);
  EXPECT_TRUE(many.hasTiles);
  EXPECT_EQ(few.panelShape(), many.panelShape());
  EXPECT_FALSE(IntegerGemmSpec::mayHaveTiles(makeTarget(context, "avx512vnni")));
  EXPECT_FALSE(IntegerGemmSpec::mayHaveTiles(makeTarget(context, "amx"))); // of bf16 alone
  many.tileVectors = 3;
  std::string reason;
  EXPECT_FALSE(canBuildIntegerGemm(many, &reason));
  EXPECT_EQ(reason, "tiles need products of 4 bytes and panels of 32 columns");
}

/// Panels are as wide as leaves fewer columns empty, where no tiles want 32 columns and registers hold 24 sums
/// beside 4.
TEST(IntegerGemmSpec, PanelsFitTheColumns) {
  MLIRContext context;
  context.loadDialect<AttnDialect>();
  auto width = [&](StringRef isa, int64_t n) {
    return IntegerGemmSpec::forTarget(makeTarget(context, isa), ShapedType::kDynamic, 64, n).panelWidth();
  };
  for (int64_t n : {64, 128, 256, 512, 1024})
    EXPECT_EQ(width("avx512vnni", n), 64) << n;
  for (int64_t n : {1, 32, 48, 96, 384, 768, 3072})
    EXPECT_EQ(width("avx512vnni", n), 48) << n;
  EXPECT_EQ(width("avx512vnni", ShapedType::kDynamic), 48);
  EXPECT_EQ(width("avx512", 64), 48);
  EXPECT_EQ(width("amxint8", 64), 32);
}

TEST(IntegerGemmSpec, SaysWhatItCannotBuild) {
  MLIRContext context;
  context.loadDialect<AttnDialect>();
  IntegerGemmSpec spec = IntegerGemmSpec::forTarget(makeTarget(context, "avx512vnni"), 4, 8, 16);
  std::string reason;
  EXPECT_TRUE(canBuildIntegerGemm(spec, &reason));
  EXPECT_EQ(spec.group(), 4);
  IntegerGemmSpec empty = spec;
  empty.k = 0;
  EXPECT_FALSE(canBuildIntegerGemm(empty, &reason));
  EXPECT_EQ(reason, "the sizes M, K, N (4, 0, 16) are not positive");
  IntegerGemmSpec batched = spec;
  batched.isBatched = true;
  EXPECT_FALSE(canBuildIntegerGemm(batched, &reason));
  EXPECT_EQ(reason, "the rows of a batch are fixed at 4");
  IntegerGemmSpec narrow = spec;
  narrow.lanes = 4;
  EXPECT_FALSE(canBuildIntegerGemm(narrow, &reason));
  EXPECT_EQ(reason, "products of 4 bytes need 8 or 16 lanes, not 4");
  IntegerGemmSpec slim = spec;
  slim.tileVectors = 1;
  EXPECT_TRUE(canBuildIntegerGemm(slim, &reason));
  slim.tileVectors = 0;
  EXPECT_FALSE(canBuildIntegerGemm(slim, &reason));
  EXPECT_EQ(reason, "the tile is empty");
}

} // namespace
