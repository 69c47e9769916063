#ifndef PASSES_GRAPH_PRODUCTS_BLOCKS_H
#define PASSES_GRAPH_PRODUCTS_BLOCKS_H

#include "dialects/attn/BlockProductOps.h"
#include "mlir/IR/Builders.h"

namespace attn {

/// The element of the result of `op` at the indices `at`, from its code, scale and zero point.
mlir::Value emitDequantized(mlir::OpBuilder &b, mlir::Location loc, DequantizeBlocksOp op, mlir::ValueRange at);

} // namespace attn

#endif // PASSES_GRAPH_PRODUCTS_BLOCKS_H
