#ifndef TEST_KERNELS_INTEGERGEMMCASES_H
#define TEST_KERNELS_INTEGERGEMMCASES_H

#include "passes/kernels/cpu/IntegerGemm.h"
#include "passes/kernels/cpu/PackRows.h"
#include "test/kernels/KernelHarness.h"
#include "test/kernels/TileEmulator.h"
#include "gtest/gtest.h"
#include <random>

// What tests of the kernels of bytes share.
namespace attn::test {

/// Pairs of bytes side by side in a column.
enum class Bytes {
  Any,
  Ends,    ///< 127 or -128
  Fitting, ///< 255 times a pair just fits 16 bits, but in one column of a hundred it does not
  Doubles  ///< 255 times two pairs, of two steps, just do
};

/// The rows of `matrices` matrices as the kernel of tiles reads them: packed by the kernel for that, in several pieces.
class RowPacking {
public:
  RowPacking(llvm::StringRef isa, int64_t m, int64_t k)
      : kernel(Kernel::compile(
            isa, [&](mlir::OpBuilder &builder, mlir::Location loc) -> mlir::FailureOr<mlir::func::FuncOp> {
              return buildPackRows(builder, loc, PackRowsSpec{m, k});
            })) {}

  struct Rows {
    Buffer tiles, sums;
  };
  Rows pack(const Buffer &a, int64_t matrices) {
    int64_t rows = a.shape()[0] / std::max<int64_t>(matrices, 1);
    Rows packed{Buffer({matrices, (rows + 31) / 32, (a.shape()[1] + 63) / 64, 2048}, 1), Buffer({a.shape()[0]}, 4)};
    EXPECT_TRUE(kernel && kernel->call({&a, &packed.tiles, &packed.sums}, 3));
    EXPECT_TRUE(packed.tiles.guardIntact() && packed.sums.guardIntact());
    return packed;
  }

private:
  std::unique_ptr<Kernel> kernel;
};

inline std::vector<int8_t> randomBytes(int64_t count, std::mt19937 &random) {
  std::vector<int8_t> bytes(count);
  for (int8_t &byte : bytes)
    byte = static_cast<int8_t>(random());
  return bytes;
}

/// A matrix of K rows, or of N where it is transposed.
inline std::vector<int8_t> randomMatrix(int64_t k, int64_t n, Bytes kind, bool isTransposed, std::mt19937 &random) {
  std::vector<int8_t> bytes = randomBytes(k * n, random);
  constexpr std::pair<int8_t, int8_t> kPairs[] = {{127, 1},  {1, 127},   {64, 64},    {-128, 0},
                                                  {0, -128}, {-64, -64}, {127, -128}, {-128, 127},
                                                  {127, 2},  {-1, -128}, {65, 64},    {-127, -2}};
  for (int64_t row = 0; row < k; row += 2)
    for (int64_t column = 0; column < n; ++column) {
      std::pair<int8_t, int8_t> pair = kPairs[random() % (random() % 100 ? 8 : std::size(kPairs))];
      if (kind == Bytes::Any)
        continue;
      if (kind == Bytes::Doubles) {
        constexpr std::pair<int8_t, int8_t> kHalves[] = {{64, 0},  {1, 63},    {32, 32},  {0, -64},
                                                         {-64, 0}, {-32, -32}, {64, -64}, {-64, 64}};
        pair = kHalves[random() % 8];
        if (random() % 4000 == 0)
          pair = {33, 32};
      }
      if (kind == Bytes::Ends)
        pair = {random() % 2 ? 127 : -128, random() % 2 ? 127 : -128};
      bytes[isTransposed ? column * k + row : row * n + column] = pair.first;
      if (row + 1 < k)
        bytes[isTransposed ? column * k + row + 1 : (row + 1) * n + column] = pair.second;
    }
  return bytes;
}

/// Whether all sums of products of 0 or 255 by bytes at `places`, two side by side at each, fit 16 bits.
inline bool fitWords(const int8_t *panels, llvm::ArrayRef<int64_t> places) {
  int64_t most = 0, least = 0;
  for (int64_t place : places)
    for (int64_t n : {place, place + 1})
      (panels[n] > 0 ? most : least) += 255 * panels[n];
  return most <= INT16_MAX && least >= INT16_MIN;
}

/// As #attn.step_order, of panels of `depth` rows; without doubles as the run packs them.
inline std::vector<int32_t> stepOrder(const int8_t *panels, int64_t count, int64_t depth, int64_t stepBytes,
                                      bool hasDoubles) {
  int64_t steps = (depth + 3) / 4;
  std::vector<int32_t> order;
  for (int64_t panel = 0; panel < count; ++panel) {
    auto fit = [&](llvm::ArrayRef<int64_t> together) {
      for (int64_t i = 0; i < stepBytes; i += 2) {
        llvm::SmallVector<int64_t> places;
        for (int64_t step : together)
          places.push_back((panel * steps + step) * stepBytes + i);
        if (!fitWords(panels, places))
          return false;
      }
      return true;
    };
    std::vector<int64_t> doubles, narrow, wide;
    for (int64_t step = 0; step < depth / 4; ++step) {
      if (!fit(step)) {
        wide.insert(wide.begin(), step);
      } else if (hasDoubles && !narrow.empty() && fit({narrow.back(), step})) {
        doubles.insert(doubles.end(), {narrow.back(), step});
        narrow.pop_back();
      } else {
        narrow.push_back(step);
      }
    }
    order.push_back(doubles.size());
    order.push_back(narrow.size());
    for (const std::vector<int64_t> &part : {doubles, narrow, wide})
      order.insert(order.end(), part.begin(), part.end());
  }
  return order;
}

class ByteKernels : public testing::TestWithParam<const char *> {
protected:
  /// A machine without tiles emulates their instructions.
  void SetUp() override {
    bool hasTiles = GetParam() == llvm::StringRef("amxint8");
    const char *needed = hasTiles ? "avx512vnni" : GetParam();
    if (!hostRuns(needed))
      GTEST_SKIP() << "this machine has no " << needed;
    if (hasTiles && !hostRuns("amxint8"))
      emulateTiles();
  }

  mlir::MLIRContext context{mlir::MLIRContext::Threading::DISABLED};
  ByteKernels() { context.loadDialect<AttnDialect>(); }
};

} // namespace attn::test

#endif // TEST_KERNELS_INTEGERGEMMCASES_H
