#ifndef PASSES_KERNELS_CPU_ATTENTION_H
#define PASSES_KERNELS_CPU_ATTENTION_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "passes/kernels/spec/Attention.h"

namespace attn {

/// Emits the kernel `spec.symbol()` at the insertion point: a func.func with
/// attn.kernel on the operands' buffers and then the results'.
///
/// Flash attention with lanes = queries. For a block of queries the scores
/// S^T = K Q^T come a tile of keys at a time with queries along the lanes, so
/// keys and values are read where they lie, in any strides, and no reduction
/// runs across lanes; only queries and results pass through a register
/// transpose. The softmax is online, in registers: weights are exponentials
/// relative to a maximum that is moved only when a score exceeds it by 16
/// (natural units), and O^T += V^T P^T adds a block of keys at a time, which
/// also keeps the sums short. A weight region needs the final maximum and sum:
/// the scores wait for them in memory, or are computed twice where there are
/// too many keys for that.
///
/// One scf.parallel over (batch, head, query block); a result depends on
/// nothing but its own head, so every cut gives the same bits. Few queries on
/// few heads split their keys, in parts that depend on the sizes alone; a
/// second scf.parallel merges them.
mlir::func::FuncOp buildAttention(mlir::OpBuilder &builder, mlir::Location loc, const AttentionSpec &spec);

} // namespace attn

#endif // PASSES_KERNELS_CPU_ATTENTION_H
