#ifndef PASSES_GRAPH_ELEMENT_ROWREDUCTION_H
#define PASSES_GRAPH_ELEMENT_ROWREDUCTION_H

#include "passes/graph/Structured.h"
#include "passes/graph/element/Access.h"

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

/// The constant by which an elementwise op multiplies its one tensor, f32.
std::optional<double> constantFactor(mlir::linalg::LinalgOp op);

/// An elementwise op as x / y or x * (1 / y), x read element for element.
struct Quotient {
  mlir::OpOperand *numerator;
  Read denominator;
  Access result;
};

/// `op` as a quotient whose numerator is operand `side` of its division (0) or
/// multiplication (0, 1). The atoms of the result are new ones of `space`.
std::optional<Quotient> readQuotient(mlir::linalg::LinalgOp op, unsigned side, AtomSpace &space);

/// A number in the body of an elementwise op at a point of its loops, or (`op` is null) an element of a tensor that no
/// such op makes, or a number that stands outside of all.
struct Scalar {
  mlir::Value value;
  mlir::linalg::LinalgOp op;
  Access at; ///< the op's loops, or how the tensor is read
};

/// The element of `read`, through views.
Scalar readScalar(AtomSpace &space, Read read);
/// Operand `n` of the op that computes `scalar`.
Scalar readOperand(AtomSpace &space, const Scalar &scalar, unsigned n);
/// Whether two scalars are one.
bool isSame(AtomSpace &space, Scalar a, Scalar b);
/// What computes `scalar`, if it is an `Op`.
template <typename Op> Op getAs(const Scalar &scalar) {
  return scalar.op ? llvm::dyn_cast_or_null<Op>(scalar.value.getDefiningOp()) : Op();
}

/// The atoms of `rows` over which `logs` is the log of the sum of its exponentials (taken with the maximum
/// subtracted, so that none overflows), both read at one point.
std::optional<Atoms> findLogSumExpAtoms(AtomSpace &space, Read logs, Read rows);

/// What `reduced`, a reduction by `combiner`, reads; `summed` gets the atoms of what it reduces.
std::optional<Read> readReduced(AtomSpace &space, Read reduced, Combiner combiner, Atoms &summed);

/// The atoms of `rows` over which `reduced` combines its elements: `reduced` is
/// that reduction, and both are read at one point. A dimension of size 1 has no
/// atoms: `unitDim` is set to it then.
std::optional<Atoms> findReducedAtoms(AtomSpace &space, Read reduced, Read rows, Combiner combiner,
                                      std::optional<unsigned> &unitDim);

/// Whether `shift` is the maximum of `rows` over `keys` where that is finite; both are read at one point.
bool isFiniteMaximum(AtomSpace &space, Read shift, Read rows, Atoms keys);

/// The operand of `shift`, `side` of its difference, that is x where the other is the maximum of x along `dim`; or
/// null.
mlir::OpOperand *findUnshifted(mlir::linalg::LinalgOp shift, unsigned side, int64_t dim);

/// `operand` of the elementwise `op` where its result is read at `access`.
std::optional<Read> readOperand(AtomSpace &space, mlir::linalg::LinalgOp op, mlir::OpOperand *operand, Access access);

/// The sum of the row of `terms` from which elementwise ops compute `value`, and the atoms of the row; both are read
/// at one point.
std::optional<std::pair<mlir::Value, Atoms>> findTotal(AtomSpace &space, const Read &value, const Read &terms,
                                                       std::optional<unsigned> &unitDim);

} // namespace attn

#endif // PASSES_GRAPH_ELEMENT_ROWREDUCTION_H
