#ifndef PASSES_LOWERING_BUFFERS_TRANSPOSEDLOOPS_H
#define PASSES_LOWERING_BUFFERS_TRANSPOSEDLOOPS_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/Builders.h"
#include <optional>

namespace attn {

/// An elementwise linalg.generic whose operands lie along one dimension and whose output lies along another: a copy in
/// another order, say. Neither has lanes of its own; squares of both are computed along the first and transposed in
/// registers.
class TransposedLoops {
public:
  /// `op` as such loops for vectors of `lanes` elements of 32 bits, where it is one and its dimensions may be as large.
  static std::optional<TransposedLoops> match(mlir::linalg::GenericOp op, int64_t lanes);

  /// Writes the loops before `op`. `mostWork`: additions on one lane that do not pay for another thread.
  void emit(int64_t mostWork);

private:
  TransposedLoops(mlir::linalg::GenericOp op, int64_t lanes, unsigned along, unsigned across)
      : op(op), lanes(lanes), along(along), across(across) {}

  void emitStrip(mlir::OpBuilder &b, llvm::SmallVector<mlir::Value> indices, llvm::ArrayRef<mlir::Value> sizes);
  void emitSquare(mlir::OpBuilder &b, llvm::SmallVector<mlir::Value> indices);
  void emitPoints(mlir::OpBuilder &b, llvm::SmallVector<mlir::Value> indices, llvm::ArrayRef<mlir::Value> ends);

  mlir::linalg::GenericOp op;
  int64_t lanes;
  unsigned along, across; ///< the dimensions of operands, and of the output
};

} // namespace attn

#endif // PASSES_LOWERING_BUFFERS_TRANSPOSEDLOOPS_H
