#ifndef PASSES_GRAPH_ATTENTION_RUNNINGSOFTMAX_H
#define PASSES_GRAPH_ATTENTION_RUNNINGSOFTMAX_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/PatternMatch.h"

namespace attn {

/// Values weighed block by block of keys with a running maximum, as flash attention does (Dao et al. 2022, algorithm 1),
/// in the ops of a graph:
///
///     (exp(m1 - m2) exp(s1 - m1) v1 + exp(s2 - m2) v2) / (exp(m1 - m2) sum(exp(s1 - m1)) + sum(exp(s2 - m2)))
///
/// Where what is subtracted of the scores is the same of all, above and below, it cancels out, and `quotient` becomes
/// softmax([s1, s2]) [v1; v2]. Gives whether it did.
bool raiseRunningSoftmax(mlir::RewriterBase &rewriter, mlir::linalg::LinalgOp quotient);

} // namespace attn

#endif // PASSES_GRAPH_ATTENTION_RUNNINGSOFTMAX_H
