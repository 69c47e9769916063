#ifndef PASSES_LOWERING_BUFFERS_LANEREDUCTIONS_H
#define PASSES_LOWERING_BUFFERS_LANEREDUCTIONS_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include <optional>

namespace attn {

/// The one op that folds an element into output `number`, or null.
mlir::Operation *combinerOf(mlir::linalg::GenericOp op, unsigned number);
/// How the lanes of a vector are folded by such an op, if they can be.
std::optional<mlir::vector::CombiningKind> kindOf(mlir::Operation *combiner);
/// Whether lanes may have sums of their own for each output.
bool canReduceAcrossLanes(mlir::linalg::GenericOp op);

} // namespace attn

#endif // PASSES_LOWERING_BUFFERS_LANEREDUCTIONS_H
