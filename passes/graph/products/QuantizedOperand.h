#ifndef PASSES_GRAPH_PRODUCTS_QUANTIZEDOPERAND_H
#define PASSES_GRAPH_PRODUCTS_QUANTIZEDOPERAND_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include <optional>
#include <string>

namespace attn {

/// A tensor as the loops of a contraction read it: `map` gives its indices.
struct LoopRead {
  mlir::Value tensor;
  mlir::AffineMap map;
};

/// A number that is a constant, or an element of a tensor.
struct Parameter {
  std::optional<LoopRead> read;
  mlir::TypedAttr constant; ///< where `read` is empty
};

/// An operand of a contraction that is computed as scales * (stored - zero),
/// elements of i8 widened to i32 or to f32, in any number of elementwise ops.
struct QuantizedOperand {
  LoopRead stored;
  bool isUnsigned = false;
  std::optional<Parameter> zero;
  bool zeroIsUnsigned = false;
  llvm::SmallVector<Parameter, 1> scales;
};

/// `value`, read at `map`, as such an operand; nothing where it is computed otherwise.
std::optional<QuantizedOperand> readQuantized(mlir::Value value, mlir::AffineMap map);

/// The zero point of `operand`, 0 where it has none; nothing where it is no constant, or no number of the type of what
/// it belongs to.
std::optional<int64_t> constantZero(const QuantizedOperand &operand);

/// The loops of a product of rows by a matrix.
struct RowLoops {
  unsigned depth = 0;  ///< is summed
  unsigned column = 0; ///< of the right-hand side alone
};

/// The loops of `op`, of whose operands one is read at `rows`: the last dimension is summed, alone, the others stand as
/// in the result. Nothing where it is no such product, and `reason` says why.
std::optional<RowLoops> matchRows(mlir::linalg::LinalgOp op, mlir::AffineMap rows, std::string &reason);

/// Whether the other operand, read at `matrix`, is columns x depth and not depth x columns. Nothing where it is
/// neither, and `reason` says why.
std::optional<bool> matchTransposed(mlir::AffineMap matrix, const RowLoops &loops, std::string &reason);

/// Goes from `read` to what its tensor is a view of, as far as its indices stay loops and constants.
void followViews(LoopRead &read);

} // namespace attn

#endif // PASSES_GRAPH_PRODUCTS_QUANTIZEDOPERAND_H
