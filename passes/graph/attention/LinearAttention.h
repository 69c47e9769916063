#ifndef PASSES_GRAPH_ATTENTION_LINEARATTENTION_H
#define PASSES_GRAPH_ATTENTION_LINEARATTENTION_H

#include "passes/graph/attention/AttentionMatch.h"

// Linear attention, softmax(q) (softmax(k)^T v): no weight is of a query and a key. The inner softmax, over positions,
// gathers values for each feature, and the outer one is over features. Two attentions in a row, co-attention's for
// instance, are written alike: only the dimensions tell them apart.

namespace attn {

/// What of a linear attention a softmax is: the inner one, which gathers values, or the outer one, over features.
enum class LinearPart { none, gathers, overFeatures };

/// Of `softmax`, whose weights are `weights`, an operand of a contraction.
LinearPart findLinearPart(mlir::OpOperand &weights, SoftmaxOp softmax);

/// Why `source` makes no scores of such a softmax; "" where it may.
llvm::StringRef whyNoScores(LinearPart part, const ScoreSource &source);

} // namespace attn

#endif // PASSES_GRAPH_ATTENTION_LINEARATTENTION_H
