#ifndef PASSES_LOWERING_BUFFERS_COLLAPSELOOPS_H
#define PASSES_LOWERING_BUFFERS_COLLAPSELOOPS_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/PatternMatch.h"

namespace attn {

/// Loops of an op on buffers that no operand tells apart become one, so that rows are long. Returns the op, or the one
/// that takes its place.
mlir::linalg::GenericOp collapseLoops(mlir::RewriterBase &rewriter, mlir::linalg::GenericOp op);

} // namespace attn

#endif // PASSES_LOWERING_BUFFERS_COLLAPSELOOPS_H
