// The kernel that packs matrices of bytes of the run, beside what its panels mean, and the product that reads them.
#include "passes/kernels/cpu/PackBytes.h"
#include "test/kernels/IntegerGemmCases.h"

#include <optional>

using namespace mlir;
using namespace attn;
using namespace attn::test;

namespace {

class PackBytes : public ByteKernels {};

/// Matrices that the run packs, each for some rows: both kernels, for fixed sizes or any.
struct Pair {
  int64_t batches, m, k, n;
};

class PackedPair {
public:
  PackedPair(StringRef isa, TargetAttr target, int64_t k, int64_t n, bool isTransposed, bool isUnsigned)
      : hasShortOrder(!ShapedType::isDynamic(k)), spec(IntegerGemmSpec::forTarget(target, ShapedType::kDynamic, k, n)),
        isTransposed(isTransposed), isUnsigned(isUnsigned) {
    spec.isBatched = spec.hasRowZero = true;
    spec.columnZero = ZeroPoint::ByColumn;
    pack = Kernel::compile(isa, [&](OpBuilder &b, Location loc) -> FailureOr<func::FuncOp> {
      return buildPackBytes(
          b, loc, {k, n, isTransposed, isUnsigned, spec.panelWidth(), spec.group(), spec.lanes, spec.ordersSteps()});
    });
    gemm = Kernel::compile(isa, [&](OpBuilder &b, Location loc) { return buildIntegerGemm(b, loc, spec); });
    if (spec.hasTiles)
      rows.emplace(isa, ShapedType::kDynamic, k);
  }

  /// Both, cut in several ways, beside the sums.
  void check(const Pair &p, Bytes kind = Bytes::Any) {
    ASSERT_TRUE(pack && gemm);
    std::mt19937 random(p.batches * 7 + p.m * 131 + p.k * 17 + p.n);
    std::vector<int8_t> a = randomBytes(p.batches * p.m * p.k, random), b, zb = randomBytes(p.n, random),
                        za = randomBytes(1, random);
    for (int64_t n = 0; n < p.batches; ++n)
      llvm::append_range(b, randomMatrix(p.k, p.n, kind, isTransposed, random));
    if (kind != Bytes::Any) {
      std::fill(a.begin(), a.end(), -1);
      for (int8_t &byte : b)
        byte ^= isUnsigned ? 0x80 : 0;
    }
    std::vector<int32_t> expected;
    for (int64_t row = 0; row < p.batches * p.m; ++row)
      for (int64_t n = 0; n < p.n; ++n) {
        int64_t sum = 0, matrix = row / p.m * p.k * p.n;
        for (int64_t k = 0; k < p.k; ++k) {
          int8_t byte = b[matrix + (isTransposed ? n * p.k + k : k * p.n + n)];
          int64_t right = isUnsigned ? static_cast<uint8_t>(byte) - 128 : byte; // as it is stored
          sum += (static_cast<uint8_t>(a[row * p.k + k]) - static_cast<uint8_t>(za[0])) * (right - zb[n]);
        }
        expected.push_back(static_cast<int32_t>(sum));
      }
    int64_t count = p.batches * llvm::divideCeil(p.n, spec.panelWidth()), steps = llvm::divideCeil(p.k, spec.group());
    std::vector<int64_t> matrices = {p.batches, p.k, p.n};
    if (isTransposed)
      std::swap(matrices[1], matrices[2]);
    Buffer left({p.batches * p.m, p.k}, a), right(matrices, b), rowZero({}, za), columnZero({p.n}, zb);
    Buffer panels({count, steps, spec.panelWidth() * spec.group()}, 1), sums({count, spec.panelWidth()}, 4),
        order({count, p.k / 4 + 2}, hasShortOrder ? 2 : 4), c({p.batches * p.m, p.n}, 4);
    std::vector<const Buffer *> packing = {&right, &panels, &sums}, arguments = {&left, &panels, &sums};
    if (spec.ordersSteps()) {
      packing.push_back(&order);
      arguments.push_back(&order);
    }
    arguments.insert(arguments.end(), {&rowZero, &columnZero, &c});
    std::optional<RowPacking::Rows> packed;
    if (rows) {
      packed.emplace(rows->pack(left, p.batches));
      arguments.insert(arguments.begin() + 1, {&packed->tiles, &packed->sums});
    }
    for (int64_t pieces : {1, 3}) {
      panels.poison();
      sums.poison();
      order.poison();
      c.poison();
      ASSERT_TRUE(pack->call(packing, pieces));
      ASSERT_TRUE(gemm->call(arguments, pieces));
      EXPECT_EQ(c.values<int32_t>(), expected) << p.batches << "x" << p.m << "x" << p.k << "x" << p.n;
      EXPECT_TRUE(c.guardIntact() && panels.guardIntact() && sums.guardIntact() && order.guardIntact());
      if (!spec.ordersSteps())
        continue;
      std::vector<int32_t> want = stepOrder(panels.data<int8_t>(), count, p.k, spec.panelWidth() * 4, false), got(want);
      for (size_t i = 0; i < want.size(); ++i)
        got[i] = hasShortOrder ? order.data<int16_t>()[i] : order.data<int32_t>()[i];
      EXPECT_EQ(got, want);
    }
  }

private:
  bool hasShortOrder;
  IntegerGemmSpec spec;
  bool isTransposed, isUnsigned;
  std::unique_ptr<Kernel> pack, gemm;
  std::optional<RowPacking> rows;
};

TEST_P(PackBytes, MatricesThatTheRunPacks) {
  constexpr int64_t kAny = ShapedType::kDynamic;
  TargetAttr target = makeTarget(context, GetParam());
  for (bool isTransposed : {false, true})
    for (bool isUnsigned : {false, true}) {
      PackedPair any(GetParam(), target, kAny, kAny, isTransposed, isUnsigned);
      for (Pair p : {Pair{1, 1, 1, 1},
                     {2, 3, 5, 7},
                     {3, 9, 70, 50},
                     {2, 8, 64, 48},
                     {1, 17, 33, 97},
                     {2, 2, 0, 9},
                     {0, 4, 8, 8},
                     {2, 0, 8, 8},
                     {2, 4, 6, 0},
                     {2, 5, 15, 16},
                     {2, 16, 64, 32},
                     {3, 33, 65, 31},
                     {2, 130, 130, 65},
                     {2, 35, 0, 33},
                     {1, 50, 1000, 40}})
        any.check(p);
      any.check({2, 5, 1001, 50}, Bytes::Fitting);
    }
  PackedPair fixed(GetParam(), target, 70, 50, false, false), turned(GetParam(), target, 9, 48, true, true);
  for (int64_t m : {1, 6, 13}) {
    fixed.check({3, m, 70, 50});
    fixed.check({3, m, 70, 50}, Bytes::Fitting);
    turned.check({2, m, 9, 48});
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, PackBytes,
                         testing::Values("portable", "avx2", "avxvnni", "avx512", "avx512vnni", "amxint8"),
                         [](const testing::TestParamInfo<const char *> &info) { return std::string(info.param); });

} // namespace
