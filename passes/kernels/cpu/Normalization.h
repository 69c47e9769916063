#ifndef PASSES_KERNELS_CPU_NORMALIZATION_H
#define PASSES_KERNELS_CPU_NORMALIZATION_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "passes/kernels/spec/Rows.h"

namespace attn {

/// Emits the kernel `spec.symbol()` with the arguments (input, result). Maximum,
/// exponentials and their sum, quotient: three sweeps over a row that stays in
/// L1, or down columns, a register of which lie side by side. NaN and infinities
/// give what the formula gives. Reads an element before it writes the same one
/// and nothing afterwards: input and result may be one buffer. One scf.parallel
/// over the rows, or over registers of columns.
mlir::func::FuncOp buildSoftmax(mlir::OpBuilder &builder, mlir::Location loc, const SoftmaxSpec &spec);

/// Emits the kernel `spec.symbol()` with the arguments (input, scale, bias if
/// any, result). Mean, then the variance about it, then the result: the sum of
/// squares is never taken about 0, where it would cancel. Input and result may
/// be one buffer. One scf.parallel over the rows.
mlir::func::FuncOp buildLayerNorm(mlir::OpBuilder &builder, mlir::Location loc, const LayerNormSpec &spec);

} // namespace attn

#endif // PASSES_KERNELS_CPU_NORMALIZATION_H
