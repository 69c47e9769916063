#ifndef PASSES_GRAPH_CONTRACTIONS_H
#define PASSES_GRAPH_CONTRACTIONS_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace attn {

/// The contractions in `root`, in the order of the IR: what a pass goes through that puts other ops in their places.
inline llvm::SmallVector<mlir::linalg::LinalgOp> getContractions(mlir::Operation *root) {
  llvm::SmallVector<mlir::linalg::LinalgOp> ops;
  root->walk([&](mlir::linalg::LinalgOp op) {
    if (mlir::linalg::isaContractionOpInterface(op))
      ops.push_back(op);
  });
  return ops;
}

} // namespace attn

#endif // PASSES_GRAPH_CONTRACTIONS_H
