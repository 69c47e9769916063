#ifndef PASSES_KERNELS_CPU_ATTENTIONROW_H
#define PASSES_KERNELS_CPU_ATTENTIONROW_H

#include "passes/kernels/cpu/Attention.h"
#include "passes/kernels/cpu/LaneBuilder.h"

namespace attn {

/// Up to this many queries are computed one by one: a register of queries costs
/// as much as 16 of them whether it is full or not.
inline constexpr int64_t kMaxRowQueries = 4;

/// Whether emitAttentionRow serves `spec`: key and value rows lie dense, and
/// there is no weight region.
bool canEmitAttentionRow(const AttentionSpec &spec);

/// Memory of one query.
struct AttentionRowScratch {
  mlir::Value weights; ///< [keyBlock]
  mlir::Value result;  ///< [value width, up to a multiple of lanes]
  mlir::Value wide;    ///< the query and the alignment, where they exceed the registers

  static AttentionRowScratch allocate(LaneBuilder &k, const AttentionSpec &spec);
};

/// Emits the attention of query `row` of one batch and head, for decoding:
/// scores with the key width along the lanes, softmax with the keys, and the
/// sum of values with the value width along the lanes, so that keys and values
/// stream through once. Internal to the attention family.
void emitAttentionRow(LaneBuilder &k, const AttentionSpec &spec, mlir::ValueRange buffers,
                      const AttentionRowScratch &scratch, mlir::Value batch, mlir::Value head, mlir::Value row);

} // namespace attn

#endif // PASSES_KERNELS_CPU_ATTENTIONROW_H
