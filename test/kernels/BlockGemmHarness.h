#ifndef TEST_KERNELS_BLOCKGEMMHARNESS_H
#define TEST_KERNELS_BLOCKGEMMHARNESS_H

#include "passes/kernels/cpu/BlockGemm.h"
#include "test/kernels/KernelHarness.h"
#include "gtest/gtest.h"

// The GEMM kernel of blocks against float64. The bound is that of a sum of K products in f32: (K + 8) u times the sum
// of their magnitudes.
namespace attn::test {

/// A product by a matrix in blocks, and which kernel is to make it.
struct BlockProblem {
  int64_t m, k, n, block = 32, bits = 4;
  bool isOpen = false; ///< the kernel is for any number of rows
  bool isUnsigned = true;
  BlockZeros zeros = BlockZeros::Constant;
  int64_t zeroPoint = 8;
  bool hasBias = false;
  EpilogueOperand bias = EpilogueOperand::RowVector;
  bool hasByteRows = false;
  bool isExtreme = false; ///< rows of a 1 and `rest`, all codes the greatest
  float rest = 1;
};

/// The spec of the kernel for a target, with all that it may have.
BlockGemmSpec specOf(const BlockProblem &p, TargetAttr target);
std::unique_ptr<Kernel> compileBlockGemm(llvm::StringRef isa, const BlockProblem &p);

/// What the kernel reads and should give.
struct BlockCase {
  std::vector<float> a, bias;
  std::vector<double> matrix, expected, magnitude;
  Buffer words, scales, zeros;

  BlockCase(const BlockProblem &p, const BlockGemmSpec &spec);
  /// Makes `expected` and `magnitude` of A and the matrix.
  void expect(const BlockProblem &p);
  /// Of the matrix's column `n`: the sum of its magnitudes.
  double size(const BlockProblem &p, int64_t n) const;
};

class BlockGemm : public testing::TestWithParam<const char *> {
protected:
  /// A machine without tiles emulates their instructions.
  void SetUp() override;
  BlockGemmSpec spec(const BlockProblem &problem) { return specOf(problem, makeTarget(context, GetParam())); }
  std::vector<float> run(Kernel &kernel, const BlockProblem &p) { return run(kernel, p, BlockCase(p, spec(p))); }
  /// Runs the kernel on guarded buffers, cut in several ways, and gives C, the same each time.
  std::vector<float> run(Kernel &kernel, const BlockProblem &p, const BlockCase &data);
  void check(Kernel &kernel, const BlockProblem &p);
  void check(const BlockProblem &p) {
    std::unique_ptr<Kernel> kernel = compileBlockGemm(GetParam(), p);
    ASSERT_TRUE(kernel);
    check(*kernel, p);
  }

  mlir::MLIRContext context{mlir::MLIRContext::Threading::DISABLED};
  BlockGemm() { context.loadDialect<AttnDialect>(); }
};

} // namespace attn::test

#endif // TEST_KERNELS_BLOCKGEMMHARNESS_H
