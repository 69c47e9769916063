#ifndef PASSES_LOWERING_CPU_BLOCKWEIGHTS_H
#define PASSES_LOWERING_CPU_BLOCKWEIGHTS_H

#include "dialects/attn/AttnOps.h"
#include "mlir/IR/PatternMatch.h"
#include <string>

namespace attn {

/// Where what follows `op` takes the heads of a group apart that are queries of
/// one head to it (grouped-query attention), makes them heads that share their
/// keys; so queries are blocks of a dimension again.
AttentionOp splitGroups(AttentionOp op, mlir::RewriterBase &rewriter);

/// Replaces `op`, whose weights or scores are extra results that are only
/// reduced, by a loop over blocks of queries: the attention of a block, then what
/// reduces its weights, which are never whole in memory. Reductions over queries
/// add up in what the loop carries, and where the weights are compared with such
/// a sum there are two loops. Says in `note` what became of the weights; empty
/// where the op has none or they are few. False where the op stays as it is.
bool blockWeights(AttentionOp op, mlir::RewriterBase &rewriter, TargetAttr target, std::string &note);

} // namespace attn

#endif // PASSES_LOWERING_CPU_BLOCKWEIGHTS_H
