#ifndef PASSES_LOWERING_BUFFERS_LOWERARITHMETIC_H
#define PASSES_LOWERING_BUFFERS_LOWERARITHMETIC_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace attn {

/// Arithmetic of `function` on values that LLVM has as they are becomes LLVM's: floats, vectors of them and masks, most
/// of a kernel. convert-to-llvm, which has indices left to do, looks for a pattern for each op, maps its operands and
/// keeps what it replaces until the end: several times as much as to write the one op that there is for it.
void lowerArithmetic(mlir::func::FuncOp function);

} // namespace attn

#endif // PASSES_LOWERING_BUFFERS_LOWERARITHMETIC_H
