#ifndef PASSES_GRAPH_CELLS_CELLMATCH_H
#define PASSES_GRAPH_CELLS_CELLMATCH_H

#include "dialects/attn/RecurrentLayer.h"
#include "passes/graph/cells/CellElement.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "llvm/ADT/SmallVector.h"
#include <optional>

// One step of a recurrent layer, spelled out: found from the op that makes the
// new state back to the products and biases of each gate. Names, the order of
// gates and where sums are split do not matter: an element is followed through
// slices of columns, unit dimensions and elementwise ops.

namespace attn {

/// A summand of a gate: `input` times a part of a constant matrix; or (no weight) columns of `input` as they are.
struct GateTerm {
  mlir::Operation *product;
  mlir::Value input;              ///< [rows..., depth]
  mlir::Value weight;             ///< of attn.weight or a constant, a matrix; or null
  unsigned unitDim;               ///< the dimension of `weight` that runs over units; the other over the input
  int64_t firstUnit, first, size; ///< of the units; of the input, and how many (0 without a weight)

  /// Whether it is the same part of the same matrix.
  bool hasWeightOf(const GateTerm &other) const;
};

/// A constant summand of a gate: elements of a vector, or (null) a number.
struct GateBias {
  mlir::Value vector;
  int64_t first = 0;
  double number = 0;
};

struct Gate {
  llvm::SmallVector<GateTerm, 2> terms;
  llvm::SmallVector<GateBias, 2> biases;
};

struct CellMatch {
  RecurrentLayer::Cell cell;
  int64_t units;
  mlir::linalg::LinalgOp result; ///< makes the new state
  mlir::linalg::LinalgOp memory; ///< of an LSTM: makes the new cell
  mlir::Value before;            ///< of an LSTM the old cell, of a GRU the old state
  llvm::SmallVector<ActivationAttr> activations;
  llvm::SmallVector<Gate> gates; ///< in the order of attn.lstm, attn.gru
  bool mirrored = false;         ///< of a GRU
  /// Of a GRU: what the reset gate is multiplied with, a product inside it (`reset`,
  /// linear_before_reset), or the old state (`resetState`, the input of a product).
  std::optional<Gate> reset;
  mlir::Value resetState;
};

/// The cell whose new state `op` makes. With `splitInputs`, a product of a concatenation is one of each part.
/// Changes nothing.
std::optional<CellMatch> matchCell(mlir::linalg::LinalgOp op, bool splitInputs);

/// Whether `value` is computed from results of `source`, an op of its block or of one around it.
bool dependsOn(mlir::Value value, mlir::Operation *source);

} // namespace attn

#endif // PASSES_GRAPH_CELLS_CELLMATCH_H
