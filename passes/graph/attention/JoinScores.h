#ifndef PASSES_GRAPH_ATTENTION_JOINSCORES_H
#define PASSES_GRAPH_ATTENTION_JOINSCORES_H

#include "dialects/attn/AttnOps.h"

#include "mlir/IR/PatternMatch.h"

namespace attn {

/// [q k1, q k2] = q [k1, k2], where the first one's softmax weighs values: the keys of an attention that come in
/// several tensors, local and global ones (Pegasus-X) or blocks of them (BigBird), are copied beside each other, rather
/// than the scores. What is done to each part alike, factors and masks, is done to the whole.
void joinScores(mlir::RewriterBase &rewriter, SoftmaxOp softmax);

} // namespace attn

#endif // PASSES_GRAPH_ATTENTION_JOINSCORES_H
