#ifndef PASSES_KERNELS_GPU_INTEGERGEMM_H
#define PASSES_KERNELS_GPU_INTEGERGEMM_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include "passes/kernels/spec/IntegerProduct.h"

namespace attn {

/// The product on a GPU: by matrix units, and of few rows as fast as the matrix comes from memory. B lies as
/// #attn.byte_panels of 32 columns, 16 rows of a column side by side: what a lane copies, or loads, at once, and what a
/// row of ldmatrix is.
struct GpuIntegerSpec : IntegerProductSpec {
  static constexpr int64_t kWidth = 32, kGroup = 16;
  /// Of the rows that are multiplied without matrix units.
  static constexpr int64_t kFewRows = 8;

  llvm::SmallVector<int64_t> panelShape() const;
  llvm::SmallVector<int64_t> sumShape() const { return {panelShape().front(), kWidth}; }
  /// The kernel's name and cache key: equal names, identical code.
  std::string symbol() const;
};

/// Emits the kernel `spec.symbol()` of a product that isIntegerProduct, with the arguments (A, B, sums of its columns,
/// [za,] [zb,] operands of the epilogue..., C), as buildIntegerGemm for a CPU has them. Of a number of rows that the
/// run tells, the host chooses the form.
mlir::func::FuncOp buildGpuIntegerGemm(mlir::OpBuilder &builder, mlir::Location loc, const GpuIntegerSpec &spec);

/// Matrices that the run multiplies by, K x N or N x K each; kDynamic where the sizes are open.
struct GpuPackBytesSpec {
  int64_t k, n;
  bool isTransposed, isUnsigned;

  std::string symbol() const;
};

/// Emits what packs them, with the arguments (matrices, B, sums of its columns): those of the kernel above.
mlir::func::FuncOp buildGpuPackBytes(mlir::OpBuilder &builder, mlir::Location loc, const GpuPackBytesSpec &spec);

} // namespace attn

#endif // PASSES_KERNELS_GPU_INTEGERGEMM_H
