#ifndef PASSES_GRAPH_MASKS_RAISEEDGES_H
#define PASSES_GRAPH_MASKS_RAISEEDGES_H

#include "mlir/IR/SymbolTable.h"

namespace attn {

class WeightStore;

/// Matrices in which loops put one number at computed places, and which a softmax or an attention reads through
/// elementwise ops, views and slices, become bytes, 1 at these places, and what is selected by them. So do vectors of
/// n * n entries that become a matrix, and matrices of sums where all that is asked of an entry is whether it is 0.
void raiseEdges(mlir::Operation *root, const mlir::SymbolTable &symbols, const WeightStore *weights);

} // namespace attn

#endif // PASSES_GRAPH_MASKS_RAISEEDGES_H
