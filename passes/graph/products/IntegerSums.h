#ifndef PASSES_GRAPH_PRODUCTS_INTEGERSUMS_H
#define PASSES_GRAPH_PRODUCTS_INTEGERSUMS_H

#include "passes/graph/products/QuantizedOperand.h"

namespace attn {

/// The bytes of an operand as numbers from 0 to 255: of signed ones, each with 128 added.
mlir::Value unsignedBytes(mlir::OpBuilder &b, mlir::Location loc, const QuantizedOperand &operand);
/// Its one zero point as such a number, in rank 0; null for 0.
mlir::Value unsignedZero(mlir::OpBuilder &b, mlir::Location loc, const QuantizedOperand &operand);
/// The zero point of an operand that is taken as it is stored, in rank 0, or 1 where it goes by column; null for none.
mlir::Value storedZero(mlir::OpBuilder &b, mlir::Location loc, const QuantizedOperand &operand);

/// A contraction of quantised operands, with one loop that is summed and one that is the right-hand side's own.
struct QuantizedProduct {
  mlir::linalg::LinalgOp op;
  QuantizedOperand lhs, rhs;
  RowLoops loops;
  bool transposed = false; ///< where the right-hand side is a weight
};

/// The sums of `product` in i32 and in the order of its result: an attn.integer_product of copies whose dimensions
/// stand as it has them, where they do not already.
mlir::Value sumPair(mlir::OpBuilder &b, const QuantizedProduct &product);

} // namespace attn

#endif // PASSES_GRAPH_PRODUCTS_INTEGERSUMS_H
