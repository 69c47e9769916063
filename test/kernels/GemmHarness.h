// Problems for the GEMM kernel, and their check against a double-precision sum.
//
// Bound per element, u = 2^-24 and S = sum |a||b|: |c - ref| <= (2 + 4 sqrt(K)) u S.
// Sequential f32 sums have a proven K u S; the square root is what random signs
// give, and is the one that notices a wrong term.
#ifndef TEST_KERNELS_GEMMHARNESS_H
#define TEST_KERNELS_GEMMHARNESS_H

#include "passes/kernels/cpu/Gemm.h"
#include "test/kernels/KernelHarness.h"

#include <cmath>
#include <string>
#include <vector>

namespace attn::test {

/// In [-1, 1).
std::vector<float> randomFloats(int64_t count, unsigned seed);

/// B[K,N] as ceil(N/width) panels of K x width, zeros beyond N.
Buffer packPanels(const std::vector<float> &b, int64_t k, int64_t n, int64_t width);

/// Panels in fewer bits, their scales, and what they stand for.
struct NarrowPanels {
  Buffer panels, scales;
  std::vector<float> stored; // K x N

  NarrowPanels(const std::vector<float> &b, int64_t k, int64_t n, const GemmSpec &spec);
  static std::vector<int64_t> panelShape(const GemmSpec &spec) {
    llvm::SmallVector<int64_t> shape = spec.panelShape();
    return {shape.begin(), shape.end()};
  }
  static std::vector<int64_t> scaleShape(const GemmSpec &spec) {
    if (spec.storage != PanelStorage::I8)
      return {1};
    llvm::SmallVector<int64_t> shape = spec.scaleShape();
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
  int64_t m = mlir::ShapedType::kDynamic;
  const Epilogue *epilogue = nullptr;
  PanelStorage storage = PanelStorage::F32;
  int64_t group = 0;
  /// Shape of the panels of the product that is said to run next.
  std::vector<int64_t> next = {};
  /// The kernel is for any k and n.
  bool isOpen = false;
  /// Rows are windows of one vector, which overlap.
  bool gathersRows = false;

  GemmSpec spec(TargetAttr target, int64_t rows) const {
    GemmSpec spec = GemmSpec::forTarget(target, rows, isOpen ? mlir::ShapedType::kDynamic : k,
                                        isOpen ? mlir::ShapedType::kDynamic : n);
    spec.storage = storage;
    spec.group = group;
    spec.prefetchesNext = !next.empty();
    spec.gathersRows = gathersRows;
    spec.sharePanels();
    spec.hasHalfTiles = !gathersRows && spec.mayHaveHalfTiles(target);
    return spec;
  }
  bool isNarrow() const { return storage != PanelStorage::F32; }
  /// How far a stored weight in [-1, 1) may be from what it was.
  double rounding(double weight) const {
    return storage == PanelStorage::BF16  ? std::ldexp(std::fabs(weight), -8)
           : storage == PanelStorage::F16 ? std::ldexp(std::fabs(weight), -11) + 0x1p-25
           : storage == PanelStorage::I8  ? 1.001 / 254
                                          : 0;
  }
};

std::unique_ptr<Kernel> compileGemm(llvm::StringRef isa, const Problem &problem);

/// Runs one problem with `m` rows; the elements out of bounds, as text.
std::string checkGemm(Kernel &kernel, llvm::StringRef isa, const Problem &problem, int64_t m);

} // namespace attn::test

#endif // TEST_KERNELS_GEMMHARNESS_H
