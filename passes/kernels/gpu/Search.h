#ifndef PASSES_KERNELS_GPU_SEARCH_H
#define PASSES_KERNELS_GPU_SEARCH_H

#include "passes/kernels/shared/Search.h"

namespace attn {

/// As buildSearchRows: a block of threads a row.
mlir::func::FuncOp buildGpuSearchRows(mlir::OpBuilder &b, mlir::Location loc, llvm::StringRef symbol,
                                      const SearchKernelSpec &spec);

/// As buildSearchSample, likewise.
mlir::func::FuncOp buildGpuSearchSample(mlir::OpBuilder &b, mlir::Location loc, llvm::StringRef symbol,
                                        const SearchKernelSpec &spec);

/// (of each frame the best score, its label and the log of the sum of exponentials, as buildGpuSearchRows finds them,
/// numbers of frames) -> as buildCtc without a width.
mlir::func::FuncOp buildGpuCtcGreedy(mlir::OpBuilder &b, mlir::Location loc, llvm::StringRef symbol,
                                     const CtcKernelSpec &spec);

/// Makes a launch of a kernel that is written for one thread: `threads` of them share the iterations of the loop at its
/// top, one each, or all work on one where `perBlock` says that a block has one. Without such a loop one thread runs
/// all of it. What the loop allocates is shared memory, and needs one thread a block.
void launchSearchKernel(mlir::func::FuncOp kernel, int64_t threads, bool perBlock);

} // namespace attn

#endif // PASSES_KERNELS_GPU_SEARCH_H
