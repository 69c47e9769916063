#ifndef PASSES_GRAPH_COLLECT_H
#define PASSES_GRAPH_COLLECT_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace attn {

// Ops in the order of the IR: what a pass goes through that puts others in their places.

/// Those that `isWanted` takes before any is changed.
template <typename Op, typename Wanted> llvm::SmallVector<Op> collect(mlir::Operation *root, Wanted isWanted) {
  llvm::SmallVector<Op> ops;
  root->walk([&](Op op) {
    if (isWanted(op))
      ops.push_back(op);
  });
  return ops;
}

template <typename Op> llvm::SmallVector<Op> collect(mlir::Operation *root) {
  return collect<Op>(root, [](Op) { return true; });
}

inline llvm::SmallVector<mlir::linalg::LinalgOp> getContractions(mlir::Operation *root) {
  return collect<mlir::linalg::LinalgOp>(
      root, [](mlir::linalg::LinalgOp op) { return mlir::linalg::isaContractionOpInterface(op); });
}

} // namespace attn

#endif // PASSES_GRAPH_COLLECT_H
