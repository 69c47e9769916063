#ifndef PASSES_GRAPH_CELLS_CELLELEMENT_H
#define PASSES_GRAPH_CELLS_CELLELEMENT_H

#include "mlir/IR/Value.h"
#include "passes/graph/Structured.h"
#include <optional>

// What a cell computes for each of its units.

namespace attn {

/// Element [rows..., column + n] of a tensor, for each unit n; or what an
/// elementwise op computes from such elements, a scalar of its body.
struct CellElement {
  mlir::Value value;
  int64_t column = 0;
  bool operator==(const CellElement &other) const { return value == other.value && column == other.column; }
};

/// Where `element` comes from as far as rows are rows and columns follow each other: a scalar op in a body, or a tensor
/// that is no view and no elementwise op (`onlyViews`: no change of unit dimensions).
CellElement resolve(CellElement element, bool onlyViews = false);

/// The op of a body that computes `element`, if it is such.
template <typename Op> Op getOp(const CellElement &element) { return element.value.getDefiningOp<Op>(); }

/// Operand `n` of the op that computes `of`.
CellElement operand(const CellElement &of, unsigned n);

/// The number that `element` is for each unit.
inline std::optional<double> numberOf(const CellElement &element) { return numberOf(element.value); }

/// `value` without casts and changes of unit dimensions.
mlir::Value rootOf(mlir::Value value);

} // namespace attn

#endif // PASSES_GRAPH_CELLS_CELLELEMENT_H
