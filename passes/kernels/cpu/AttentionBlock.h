#ifndef PASSES_KERNELS_CPU_ATTENTIONBLOCK_H
#define PASSES_KERNELS_CPU_ATTENTIONBLOCK_H

#include "passes/kernels/cpu/Attention.h"
#include "passes/kernels/cpu/LaneBuilder.h"

namespace attn {

/// Emits the attention of one block of queries: rows block*R .. block*R + R - 1
/// with R = queryVectors * lanes, of one batch and head. `buffers` are the
/// operands of the kernel, the result last. Internal to the attention family.
void emitAttentionBlock(LaneBuilder &k, const AttentionSpec &spec, mlir::ValueRange buffers, mlir::Value batch,
                        mlir::Value head, mlir::Value block);

} // namespace attn

#endif // PASSES_KERNELS_CPU_ATTENTIONBLOCK_H
