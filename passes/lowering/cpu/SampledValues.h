#ifndef PASSES_LOWERING_CPU_SAMPLEDVALUES_H
#define PASSES_LOWERING_CPU_SAMPLEDVALUES_H

#include "dialects/attn/AttnOps.h"

#include "mlir/IR/PatternMatch.h"

namespace attn {

/// Replaces `op` by a softmax and a sum for each part of its values, where each value is weighed for one query alone
/// and gathered from somewhere: deformable attention, whose queries sample maps. The gathers move into the sums, so
/// values are never stored: they are as many as queries times samples times features. False where `op` stays.
bool sumSamples(AttentionOp op, mlir::RewriterBase &rewriter);

} // namespace attn

#endif // PASSES_LOWERING_CPU_SAMPLEDVALUES_H
