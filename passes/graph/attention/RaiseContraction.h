#ifndef PASSES_GRAPH_ATTENTION_RAISECONTRACTION_H
#define PASSES_GRAPH_ATTENTION_RAISECONTRACTION_H

#include "dialects/attn/AttnOps.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/PatternMatch.h"

// What attn-raise-contraction makes of sums and products, a file each.

namespace attn {

/// The sum over the keys of (a x + b y), where x and y are softmaxes over these keys and the factors do not depend on
/// the key, is a + b: ConViT divides a mixture of weights by it. Gives whether `sum`, such a sum, was replaced.
bool sumWeights(mlir::RewriterBase &rewriter, mlir::linalg::LinalgOp sum);

/// Values weighed block by block of keys with a running maximum, as flash attention does (Dao et al. 2022, algorithm
/// 1), in the ops of a graph:
///
///     (exp(m1 - m2) exp(s1 - m1) v1 + exp(s2 - m2) v2) / (exp(m1 - m2) sum(exp(s1 - m1)) + sum(exp(s2 - m2)))
///
/// Where what is subtracted of the scores is the same of all, above and below, it cancels out, and `quotient` becomes
/// softmax([s1, s2]) [v1; v2]. Gives whether it did.
bool raiseRunningSoftmax(mlir::RewriterBase &rewriter, mlir::linalg::LinalgOp quotient);

/// w[:, :n] x + w[:, n:] y = w [x; y], where the slices are all of a softmax's keys: local and global keys (Pegasus-X),
/// or blocks of them (BigBird), are one attention's. Values that lack a dimension, those of global keys for instance,
/// are repeated along it, unless no part's have all (a pixel's row and its column). Gives whether `op`, the sum or a
/// part of it, was replaced.
bool joinSums(mlir::RewriterBase &rewriter, mlir::linalg::LinalgOp op);

/// [q k1, q k2] = q [k1, k2], where the first one's softmax weighs values: the keys of an attention that come in
/// several tensors, local and global ones (Pegasus-X) or blocks of them (BigBird), are copied beside each other, rather
/// than the scores. What is done to each part alike, factors and masks, is done to the whole.
void joinScores(mlir::RewriterBase &rewriter, SoftmaxOp softmax);

/// (a - w b) v = a v - w (b v), where a and b are the weights of two softmaxes: each is an attention then, and the
/// difference is one of their results. Where a and b are two places along a dimension of one softmax (differential
/// attention), the places are taken of its attention's result. The same holds of a sum or mean of one softmax over
/// heads, whose values they share, and of sums that are divided by what is the same for all keys. (x y) v, x and y both
/// weights, is x (y v). Gives whether `op` was replaced.
bool distributeSum(mlir::RewriterBase &rewriter, mlir::linalg::ContractOp op);

} // namespace attn

#endif // PASSES_GRAPH_ATTENTION_RAISECONTRACTION_H
