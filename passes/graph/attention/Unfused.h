#ifndef PASSES_GRAPH_ATTENTION_UNFUSED_H
#define PASSES_GRAPH_ATTENTION_UNFUSED_H

#include "passes/graph/attention/AttentionMatch.h"

// Softmaxes that are no attention, or one of another form: what the report calls them.

namespace attn {

/// What of a linear attention a softmax is: the inner one, which gathers values, or the outer one, over features.
enum class LinearPart { none, gathers, overFeatures };

/// Of `softmax`, whose weights are `weights`, an operand of a contraction.
LinearPart findLinearPart(mlir::OpOperand &weights, SoftmaxOp softmax);

/// Why `source` makes no scores of such a softmax; "" where it may.
llvm::StringRef whyNoScores(LinearPart part, const ScoreSource &source);

/// Whether `op` divides exponentials, one for each edge of a graph, by their sum over the edges of a node: a loop has
/// added them up at computed places, and the sums are read at such, as PyTorch Geometric writes a softmax over
/// segments.
bool isSegmentSoftmax(mlir::linalg::LinalgOp op);

/// What a softmax is whose weights reach no contraction through elementwise ops
/// and views: a miss if they reach one in another way, a gate over features if
/// they are multiplied by values, a choice if the position of the largest is made ones and zeros that are contracted,
/// otherwise a classifier.
Miss whyNotContracted(const Normalization &softmax);

/// Whether `weights` are taken off something and added again, and else only compared with each other: the value of
/// hard - weights + weights is `hard`, and the weights give it a gradient (straight-through, Jang et al. 2017).
bool cancelOut(mlir::Value weights);

} // namespace attn

#endif // PASSES_GRAPH_ATTENTION_UNFUSED_H
