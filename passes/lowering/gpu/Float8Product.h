#ifndef PASSES_LOWERING_GPU_FLOAT8PRODUCT_H
#define PASSES_LOWERING_GPU_FLOAT8PRODUCT_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/PatternMatch.h"

namespace attn {

/// A contraction by a matrix of e4m3 whose columns have a scale each.
struct Float8Product {
  mlir::linalg::LinalgOp op;
  mlir::OpOperand *left = nullptr; ///< of `op`
  unsigned column = 0, sum = 0;    ///< the loops of `op` that the matrix has
  bool isTransposed = false;       ///< it is N x K
  mlir::Value scales;              ///< a tensor
  mlir::AffineMap scaleMap;        ///< from the loops of `op`: constants and the column
};

/// What `value` is behind ops that only move its elements; `map` then gives its indices.
mlir::Value readThroughMoves(mlir::Value value, mlir::AffineMap &map);

/// Sets all of `product` but its scales for `op`, a contraction onto zeros, and the matrix that is behind its input
/// number `side` at `map`. Why there is no such product, or "".
llvm::StringRef matchFloat8Product(mlir::linalg::LinalgOp op, unsigned side, mlir::AffineMap map,
                                   Float8Product &product);

/// Replaces the contraction by one with `weight`, N x K of f8E4M3FN. The scale comes behind the sum, in the elementwise
/// op that alone reads it, if there is one.
void replaceByFloat8Product(mlir::RewriterBase &rewriter, const Float8Product &product, mlir::Value weight);

} // namespace attn

#endif // PASSES_LOWERING_GPU_FLOAT8PRODUCT_H
