#ifndef PASSES_GRAPH_COLLECT_H
#define PASSES_GRAPH_COLLECT_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace attn {

// Ops in the order of the IR: what a pass goes through that puts others in their places.

template <typename Op> llvm::SmallVector<Op> collect(mlir::Operation *root) {
  llvm::SmallVector<Op> ops;
  root->walk([&](Op op) { ops.push_back(op); });
  return ops;
}

inline llvm::SmallVector<mlir::linalg::LinalgOp> getContractions(mlir::Operation *root) {
  llvm::SmallVector<mlir::linalg::LinalgOp> ops = collect<mlir::linalg::LinalgOp>(root);
  llvm::erase_if(ops, [](mlir::linalg::LinalgOp op) { return !mlir::linalg::isaContractionOpInterface(op); });
  return ops;
}

} // namespace attn

#endif // PASSES_GRAPH_COLLECT_H
