#ifndef PASSES_GRAPH_ATTENTION_SEGMENTSOFTMAX_H
#define PASSES_GRAPH_ATTENTION_SEGMENTSOFTMAX_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace attn {

/// Whether `op` divides exponentials, one for each edge of a graph, by their sum over the edges of a node: a loop has
/// added them up at computed places, and the sums are read at such, as PyTorch Geometric writes a softmax over
/// segments.
bool isSegmentSoftmax(mlir::linalg::LinalgOp op);

} // namespace attn

#endif // PASSES_GRAPH_ATTENTION_SEGMENTSOFTMAX_H
