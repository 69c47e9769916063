#ifndef PASSES_GRAPH_WIDENBODY_H
#define PASSES_GRAPH_WIDENBODY_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/IRMapping.h"

// Bodies of elementwise ops and reductions on f16 and bf16, written again in f32.

namespace attn {

/// Whether `type` is f16 or bf16, or a tensor of one.
bool isHalf(mlir::Type type);

/// `type`, or the tensor of it, with f32 in place of f16 and bf16.
mlir::Type widenType(mlir::Type type);

/// Whether each op of `body` on a half has a twin on f32: arithmetic, conversions, reads of tensors.
bool canWidenBody(mlir::Block &body);

/// Whether `body` computes nothing on halves: what it yields in one it has read or chosen.
bool onlyMoves(mlir::Block &body);

/// Whether what `body` yields in floats is one of the floats that it reads.
bool onlyChooses(mlir::Block &body);

/// Emits the ops of `body` at the builder's insertion point, halves as f32 and conversions between both gone.
/// `twins` has the arguments' twins. `readWide(tensor)` gives the f32 tensor to read a scalar from, or null where
/// it is read as it is stored.
void widenBody(mlir::OpBuilder &b, mlir::Block &body, mlir::IRMapping &twins,
               llvm::function_ref<mlir::Value(mlir::Value)> readWide);

} // namespace attn

#endif // PASSES_GRAPH_WIDENBODY_H
