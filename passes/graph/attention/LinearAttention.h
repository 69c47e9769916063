#ifndef PASSES_GRAPH_ATTENTION_LINEARATTENTION_H
#define PASSES_GRAPH_ATTENTION_LINEARATTENTION_H

#include "dialects/attn/AttnOps.h"

// Linear attention, softmax(q) (softmax(k)^T v): both softmaxes normalise features, and no weight is of a query and a
// key. Two attentions in a row, co-attention's for instance, are written alike: only the dimensions tell them apart.

namespace attn {

/// Whether `softmax` is one of the two of a linear attention; its weights are `weights`, an operand of a contraction.
bool isLinearAttention(mlir::OpOperand &weights, SoftmaxOp softmax);

} // namespace attn

#endif // PASSES_GRAPH_ATTENTION_LINEARATTENTION_H
