#ifndef PASSES_KERNELS_GPU_ROWS_H
#define PASSES_KERNELS_GPU_ROWS_H

#include "passes/kernels/gpu/Precision.h"
#include "passes/kernels/spec/Rows.h"

namespace attn {

/// Whether there are such kernels on buffers like `type`: of f32, f16 and bf16. All of a kernel's have one type.
bool canBuildGpuRows(mlir::MemRefType type, std::string &reason);

/// Softmax and layer normalisation on a GPU: a warp a row, or a block where rows are longer. Threads read their
/// elements of a row once, by 16 bytes where its size allows it, and keep them in registers; the longest rows are read
/// again for each step. Sums are f32, and the result is rounded once. Arguments and what may share a buffer are those
/// of the kernels for CPUs; a spec's lanes don't count.
mlir::func::FuncOp buildGpuRowSoftmax(mlir::OpBuilder &builder, mlir::Location loc, llvm::StringRef symbol,
                                      const SoftmaxSpec &spec);
mlir::func::FuncOp buildGpuLayerNorm(mlir::OpBuilder &builder, mlir::Location loc, llvm::StringRef symbol,
                                     const LayerNormSpec &spec);

/// The greatest |x| of each row of `type`, of two dimensions at least: arguments (input, result), of which the latter
/// is f32, whatever the input is, without the last dimension. NaN wins.
mlir::func::FuncOp buildGpuRowMagnitudes(mlir::OpBuilder &builder, mlir::Location loc, llvm::StringRef symbol,
                                         mlir::MemRefType type);

/// Parts of a tensor that blocks reduce, each by itself, at most.
constexpr int64_t kGpuRangeParts = 2 * kProcessors;
/// The greatest and the least element of f32 of a whole tensor, as the kernel for CPUs has them: arguments (input,
/// parts, greatest, least), with kGpuRangeParts parts.
mlir::func::FuncOp buildGpuRange(mlir::OpBuilder &builder, mlir::Location loc, llvm::StringRef symbol,
                                 mlir::MemRefType type);

} // namespace attn

#endif // PASSES_KERNELS_GPU_ROWS_H
