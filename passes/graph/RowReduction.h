#ifndef PASSES_GRAPH_ROWREDUCTION_H
#define PASSES_GRAPH_ROWREDUCTION_H

#include "passes/graph/Access.h"
#include "passes/graph/Structured.h"

// Elementwise ops beside a reduction of their own rows: x / sum(x), x - max(x).

namespace attn {

/// A tensor and how it is read at a point of the loops of the op at hand.
struct Read {
  mlir::Value value;
  Access access;
};

/// The scalar op that computes the element of an elementwise op from elements
/// of its inputs, conversions between float types aside; null for other ops.
mlir::Operation *getScalarOp(mlir::linalg::LinalgOp op);

/// The input of `op` whose element `scalar` is, or null.
mlir::OpOperand *getInput(mlir::linalg::LinalgOp op, mlir::Value scalar);

/// Whether `operand` is read element for element: at the place that is written.
bool isAligned(mlir::linalg::LinalgOp op, mlir::OpOperand *operand);

/// An elementwise op as x / y or x * (1 / y), x read element for element.
struct Quotient {
  mlir::OpOperand *numerator;
  Read denominator;
  Access result;
};

/// `op` as a quotient whose numerator is operand `side` of its division (0) or
/// multiplication (0, 1). The atoms of the result are new ones of `space`.
std::optional<Quotient> readQuotient(mlir::linalg::LinalgOp op, unsigned side, AtomSpace &space);

/// The atoms of `rows` over which `reduced` combines its elements: `reduced` is
/// that reduction, and both are read at one point. A dimension of size 1 has no
/// atoms: `unitDim` is set to it then.
std::optional<Atoms> findReducedAtoms(AtomSpace &space, Read reduced, Read rows, Combiner combiner,
                                      std::optional<unsigned> &unitDim);

} // namespace attn

#endif // PASSES_GRAPH_ROWREDUCTION_H
