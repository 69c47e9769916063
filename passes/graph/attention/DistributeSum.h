#ifndef PASSES_GRAPH_ATTENTION_DISTRIBUTESUM_H
#define PASSES_GRAPH_ATTENTION_DISTRIBUTESUM_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/PatternMatch.h"

namespace attn {

/// (a - w b) v = a v - w (b v), where a and b are the weights of two softmaxes: each is an attention then, and the
/// difference is one of their results. Where a and b are two places along a dimension of one softmax (differential
/// attention), the places are taken of its attention's result. The same holds of a sum or mean of one softmax over
/// heads, whose values they share, and of sums that are divided by what is the same for all keys. (x y) v, x and y both
/// weights, is x (y v). Gives whether `op` was replaced.
bool distributeSum(mlir::RewriterBase &rewriter, mlir::linalg::ContractOp op);

} // namespace attn

#endif // PASSES_GRAPH_ATTENTION_DISTRIBUTESUM_H
