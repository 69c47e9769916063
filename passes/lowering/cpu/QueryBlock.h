#ifndef PASSES_LOWERING_CPU_QUERYBLOCK_H
#define PASSES_LOWERING_CPU_QUERYBLOCK_H

#include "dialects/attn/AttnOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/PatternMatch.h"
#include <optional>
#include <string>

namespace attn {

/// `rows` queries from `offset` on: ops on all queries, written for these.
class QueryBlockOps {
public:
  QueryBlockOps(mlir::OpBuilder &b, mlir::Location loc, mlir::Value offset, mlir::OpFoldResult rows)
      : b(b), loc(loc), offset(offset), rows(rows) {}

  /// Whether an attention can be cut into blocks of `block` queries.
  static bool canTake(AttentionOp op, int64_t block, std::string &reason);

  /// Of `tensor`, whose dimension `dim` holds the queries; in units of `divisor` queries.
  mlir::Value slice(mlir::Value tensor, int64_t dim, int64_t divisor = 1);
  /// `into` with these queries replaced by `part`.
  mlir::Value insert(mlir::Value part, mlir::Value into, int64_t dim);

  /// The results of `op` for these queries. Positions stay what they were: bounds
  /// that move with the query, and the query's index in regions.
  llvm::SmallVector<mlir::Value> attention(AttentionOp op);
  /// `op` on `operands`, its loop `loop` over these queries.
  llvm::SmallVector<mlir::Value> linalg(mlir::linalg::LinalgOp op, llvm::ArrayRef<mlir::Value> operands,
                                        std::optional<unsigned> loop);
  /// Any other op; `from` and `dims` are where queries are in its operand and its results.
  llvm::SmallVector<mlir::Value> shaped(mlir::Operation *op, llvm::ArrayRef<mlir::Value> operands, int64_t from,
                                        llvm::ArrayRef<int64_t> dims);

private:
  /// `type` with as many queries as the block has in dimension `dim`, if any.
  mlir::RankedTensorType typeOf(mlir::Type type, int64_t dim);
  mlir::Value scalar(mlir::Value value);
  mlir::Value shifted(mlir::Value operand);
  void moveMask(AttentionOp op, AttentionParts &parts, llvm::SmallVectorImpl<mlir::AffineMap> &maps);

  mlir::OpBuilder &b;
  mlir::Location loc;
  mlir::Value offset;
  mlir::OpFoldResult rows;
};

} // namespace attn

#endif // PASSES_LOWERING_CPU_QUERYBLOCK_H
