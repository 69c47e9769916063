#ifndef PASSES_GRAPH_ATTENTION_UNCONTRACTED_H
#define PASSES_GRAPH_ATTENTION_UNCONTRACTED_H

#include "passes/graph/attention/AttentionMatch.h"
#include "passes/graph/attention/Normalization.h"

namespace attn {

/// What a softmax is whose weights reach no contraction through elementwise ops
/// and views: a miss if they reach one in another way, a gate over features if
/// they are multiplied by values, a choice if the position of the largest is made ones and zeros that are contracted,
/// otherwise a classifier.
Miss whyNotContracted(const Normalization &softmax);

/// Whether `weights` are taken off something and added again, and else only compared with each other: the value of
/// hard - weights + weights is `hard`, and the weights give it a gradient (straight-through, Jang et al. 2017).
bool cancelOut(mlir::Value weights);

} // namespace attn

#endif // PASSES_GRAPH_ATTENTION_UNCONTRACTED_H
