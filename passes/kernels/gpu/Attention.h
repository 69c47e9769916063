#ifndef PASSES_KERNELS_GPU_ATTENTION_H
#define PASSES_KERNELS_GPU_ATTENTION_H

#include "passes/kernels/cpu/Attention.h"

namespace attn {

/// Whether buildGpuAttention can build `spec`; if not, `reason` says why. What a
/// spec says of lanes and tiles of a CPU doesn't count.
bool canBuildGpuAttention(const AttentionSpec &spec, std::string *reason = nullptr);

/// Emits the kernel `symbol` on the operands' buffers and then the result's, in
/// f32: flash attention by blocks of 128 threads. A block holds some queries in
/// shared memory and streams tiles of keys and values past them by cp.async; the
/// softmax is online, its maxima and sums in registers. Tiles that the mask
/// hides are skipped, tiles that it shows in full are not tested.
mlir::func::FuncOp buildGpuAttention(mlir::OpBuilder &builder, mlir::Location loc, llvm::StringRef symbol,
                                     const AttentionSpec &spec);

} // namespace attn

#endif // PASSES_KERNELS_GPU_ATTENTION_H
