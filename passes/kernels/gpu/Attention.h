#ifndef PASSES_KERNELS_GPU_ATTENTION_H
#define PASSES_KERNELS_GPU_ATTENTION_H

#include "passes/kernels/gpu/Precision.h"
#include "passes/kernels/spec/Attention.h"

namespace attn {

/// Whether buildGpuAttention can build `spec`; if not, `reason` says why. What a
/// spec says of lanes and tiles of a CPU doesn't count.
bool canBuildGpuAttention(const AttentionSpec &spec, std::string *reason = nullptr);

/// In how many parts the keys are taken by blocks of their own, where there are too
/// few queries to keep a GPU busy, as in decoding; 1: as a whole.
int64_t countGpuAttentionSplits(const AttentionSpec &spec);

/// Emits the kernel `symbol` on the operands' buffers and then the result's, of
/// f32, f16 or bf16: flash attention by blocks of 128 threads. A block holds some queries and
/// streams tiles of keys and values past them by cp.async; the softmax is online
/// in f32, its maxima and sums in registers. Tiles that the mask hides are
/// skipped, tiles that it shows in full are not tested. With bf16 or f16 matrix
/// units multiply where they can, those of warpgroups as far as `sm90a` says; all
/// else computes in f32.
mlir::func::FuncOp buildGpuAttention(mlir::OpBuilder &builder, mlir::Location loc, llvm::StringRef symbol,
                                     const AttentionSpec &spec, Precision precision, Sm90a sm90a);

/// How many f32 of scratch the kernel wants as its last argument, which it has only
/// if that is not null; `sizeOf` gives the sizes of iteration dimensions. With the
/// keys in parts it has for each query and part as many as a value has, and two.
mlir::Value countGpuAttentionScratch(mlir::OpBuilder &builder, mlir::Location loc, const AttentionSpec &spec,
                                     llvm::function_ref<mlir::Value(int64_t dim)> sizeOf, Precision precision,
                                     Sm90a sm90a);

} // namespace attn

#endif // PASSES_KERNELS_GPU_ATTENTION_H
