#ifndef PASSES_LOWERING_CHOOSE_CONTRACTIONMATCH_H
#define PASSES_LOWERING_CHOOSE_CONTRACTIONMATCH_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include <string>

namespace attn {

/// Numbers of loops.
using LoopDims = llvm::SmallVector<unsigned>;

/// The loops of a contraction, in their order, by the operands that have them.
struct ContractionLoops {
  LoopDims batch;   ///< all
  LoopDims rows;    ///< the left one and the result
  LoopDims columns; ///< the right one and the result
  LoopDims sums;    ///< the left and the right one
};

/// Sorts the loops of `op`, a contraction of two tensors onto zeros whose operand number `left` is on the left; else
/// `reason` says why it is none.
llvm::FailureOr<ContractionLoops> sortLoops(mlir::linalg::LinalgOp op, unsigned left, std::string &reason);

/// A contraction of an activation A and a right-hand side W, a weight or what
/// the run computes, its loops sorted into rows (A and result), columns (W and
/// result) and sums (A and W). The first `numBatch` rows are in W, too; a weight
/// has none.
struct Contraction {
  mlir::linalg::LinalgOp op;
  mlir::Value activation;
  mlir::TypedValue<mlir::RankedTensorType> right;
  mlir::FlatSymbolRefAttr global; ///< of the weight; null: the run packs W
  mlir::AffineMap activationMap, rightMap, resultMap;
  LoopDims rows, columns, sums;
  unsigned numBatch = 0;
  bool isTransposed = false; ///< the weight is columns x sums
};

/// Sorts the loops of `op`, a contraction of f32, where a kernel on packed panels can do it; else
/// `reason` says why not.
llvm::LogicalResult matchContraction(mlir::linalg::LinalgOp op, Contraction &match, std::string &reason);
/// The same of one by a weight, where factors may be f16 or bf16 and sums are f32; another one fails.
llvm::LogicalResult matchWeightProduct(mlir::linalg::LinalgOp op, Contraction &match, std::string &reason);

/// Why `match` is not of rows, in the order of their tensors, by a weight that is a matrix; "" where it is.
llvm::StringRef findRowsObstacle(const Contraction &match);

/// The loops that a projected permutation reads, in the order of its results.
LoopDims getDims(mlir::AffineMap map);
/// Where `map` reads loop `dim`.
int64_t getPosition(mlir::AffineMap map, unsigned dim);
template <typename... Others> LoopDims concat(const LoopDims &first, const Others &...others) {
  LoopDims all(first);
  (llvm::append_range(all, others), ...);
  return all;
}
/// The loops of `set` in the order that `order` has them.
LoopDims inOrder(const LoopDims &order, const LoopDims &set);

} // namespace attn

#endif // PASSES_LOWERING_CHOOSE_CONTRACTIONMATCH_H
