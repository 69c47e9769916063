#ifndef PASSES_LOWERING_GPU_GIVENRESHAPE_H
#define PASSES_LOWERING_GPU_GIVENRESHAPE_H

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"

namespace attn {

/// `op` on what `map` has of its operands, with the sizes that are given: what expands metadata in kernels would derive
/// them again, and cannot where two of one dimension are open. `map` gets the result.
mlir::Value reshapeAsGiven(mlir::memref::ExpandShapeOp op, mlir::OpBuilder &inside, mlir::IRMapping &map);

} // namespace attn

#endif // PASSES_LOWERING_GPU_GIVENRESHAPE_H
