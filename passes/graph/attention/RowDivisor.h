#ifndef PASSES_GRAPH_ATTENTION_ROWDIVISOR_H
#define PASSES_GRAPH_ATTENTION_ROWDIVISOR_H

#include "dialects/attn/AttnOps.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include <optional>

namespace attn {

/// What the rows of an attention's result are divided by behind it, computed from its further results: an attention
/// sink, or a function of the sum of each row's weights (AttentionRows.cpp makes both).
class RowDivisor {
public:
  static std::optional<RowDivisor> find(AttentionOp op);

  /// The op in front of which all is there.
  mlir::Operation *place() const { return scaling; }
  /// `weights` with the rows divided. Its dimensions are `dims` of the attention, and `added` more behind them.
  mlir::Value divide(mlir::OpBuilder &b, mlir::Location loc, mlir::Value weights, llvm::ArrayRef<unsigned> dims,
                     unsigned added) const;

private:
  explicit RowDivisor(mlir::linalg::GenericOp scaling) : scaling(scaling) {}

  mlir::linalg::GenericOp scaling;           ///< the op that divides, perhaps among other things
  llvm::SmallVector<mlir::Value> divisors;   ///< in its body, in order
  llvm::SmallVector<mlir::OpOperand *> read; ///< the inputs that they need
  llvm::SmallVector<unsigned> dimOfLoop;     ///< the dimension of the attention that each of its loops is
};

} // namespace attn

#endif // PASSES_GRAPH_ATTENTION_ROWDIVISOR_H
