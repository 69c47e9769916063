#ifndef PASSES_LOWERING_CPU_STORESCORES_H
#define PASSES_LOWERING_CPU_STORESCORES_H

#include "dialects/attn/AttnOps.h"
#include "mlir/IR/PatternMatch.h"

namespace attn {

/// Makes the scores of `op` a contraction of their own, which is an operand of what is returned, where each of many
/// batches has one query and values of its own and all share the keys: the sampled places of deformable attention,
/// whose keys are weights. A batch's own score product would read all keys for one query. The scores are smaller than
/// the values by the value width. Otherwise returns `op` as it is.
AttentionOp storeSharedScores(AttentionOp op, mlir::RewriterBase &rewriter);

/// The size of `dim` in `op`, nullopt where it is dynamic; 1 where no map names it.
std::optional<int64_t> getStaticSize(AttentionOp op, unsigned dim);

} // namespace attn

#endif // PASSES_LOWERING_CPU_STORESCORES_H
