#ifndef PASSES_GRAPH_ATTENTION_JOINSUMS_H
#define PASSES_GRAPH_ATTENTION_JOINSUMS_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/PatternMatch.h"

namespace attn {

/// w[:, :n] x + w[:, n:] y = w [x; y], where the slices are all of a softmax's keys: local and global keys (Pegasus-X),
/// or blocks of them (BigBird), are one attention's. Values that lack a dimension, those of global keys for instance,
/// are repeated along it, unless no part's have all (a pixel's row and its column). Gives whether `op`, the sum or a
/// part of it, was replaced.
bool joinSums(mlir::RewriterBase &rewriter, mlir::linalg::LinalgOp op);

} // namespace attn

#endif // PASSES_GRAPH_ATTENTION_JOINSUMS_H
