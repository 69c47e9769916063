#ifndef PASSES_LOWERING_CPU_SPREADBATCH_H
#define PASSES_LOWERING_CPU_SPREADBATCH_H

#include "dialects/attn/AttnOps.h"
#include "mlir/IR/PatternMatch.h"

namespace attn {

/// Replaces `op` by a softmax and a sum whose innermost loop goes over a batch dimension, where each batch is of a few
/// given scores alone and values and result have that dimension innermost: outlook attention, whose windows of nine
/// places by nine lie beside each other in an image. A row of nine weights does not fill a register; nine rows of as
/// many images places do, and values need not be copied. False where `op` stays.
bool spreadBatch(AttentionOp op, mlir::RewriterBase &rewriter);

/// The innermost dimension along which `map` reads more than one element, or nullopt for none.
std::optional<unsigned> findInnermost(AttentionOp op, mlir::AffineMap map);

} // namespace attn

#endif // PASSES_LOWERING_CPU_SPREADBATCH_H
