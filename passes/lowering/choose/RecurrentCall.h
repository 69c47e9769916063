#ifndef PASSES_LOWERING_CHOOSE_RECURRENTCALL_H
#define PASSES_LOWERING_CHOOSE_RECURRENTCALL_H

#include "dialects/attn/RecurrentLayer.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/PatternMatch.h"

namespace attn {

// What kernels of recurrent layers have in common, on any machine.

/// Whether both directions of a layer, if it has two, have the same functions.
bool hasEqualDirections(const RecurrentLayer &layer);

/// input * weight^T + biases (but the one inside the reset of a GRU), in the order
/// of the input's dimensions, D x G*H for each: one contraction for all steps and
/// directions.
mlir::Value projectInput(mlir::OpBuilder &b, const RecurrentLayer &layer);

/// The operands of a kernel behind the recurrent weights: reset bias, peephole,
/// lengths and initial states, as far as the layer has them.
void appendRecurrentOperands(mlir::OpBuilder &b, const RecurrentLayer &layer,
                             llvm::SmallVectorImpl<mlir::Value> &operands);

/// Replaces the layer by a call of `kernel` on `inputs`, the results and, behind
/// these, scratch of the kernel's own types, in which the batch alone may be dynamic.
void callRecurrent(mlir::RewriterBase &b, const RecurrentLayer &layer, mlir::func::FuncOp kernel,
                   mlir::ValueRange inputs);

} // namespace attn

#endif // PASSES_LOWERING_CHOOSE_RECURRENTCALL_H
