#ifndef PASSES_LOWERING_BUFFERS_REWRITECHOSEN_H
#define PASSES_LOWERING_BUFFERS_REWRITECHOSEN_H

#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

namespace attn {

/// Applies `patterns` to the ops inside of `root` that `isChosen`, and to what becomes of them. All others are left
/// alone: a driver that folds each op of a kernel, of which a pass means a few, costs more than the pass.
template <typename IsChosen>
mlir::LogicalResult rewriteChosen(mlir::Operation *root, const mlir::FrozenRewritePatternSet &patterns,
                                  IsChosen isChosen) {
  llvm::SmallVector<mlir::Operation *> ops;
  root->walk([&](mlir::Operation *op) {
    if (isChosen(op))
      ops.push_back(op);
  });
  return ops.empty() ? mlir::success() : mlir::applyOpPatternsGreedily(ops, patterns);
}

} // namespace attn

#endif // PASSES_LOWERING_BUFFERS_REWRITECHOSEN_H
