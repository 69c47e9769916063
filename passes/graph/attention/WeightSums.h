#ifndef PASSES_GRAPH_ATTENTION_WEIGHTSUMS_H
#define PASSES_GRAPH_ATTENTION_WEIGHTSUMS_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/PatternMatch.h"

namespace attn {

/// The sum over the keys of (a x + b y), where x and y are softmaxes over these keys and the factors do not depend on
/// the key, is a + b: ConViT divides a mixture of weights by it. Gives whether `sum`, such a sum, was replaced.
bool sumWeights(mlir::RewriterBase &rewriter, mlir::linalg::LinalgOp sum);

} // namespace attn

#endif // PASSES_GRAPH_ATTENTION_WEIGHTSUMS_H
