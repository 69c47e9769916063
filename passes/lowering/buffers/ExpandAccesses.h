#ifndef PASSES_LOWERING_BUFFERS_EXPANDACCESSES_H
#define PASSES_LOWERING_BUFFERS_EXPANDACCESSES_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace attn {

/// Loads, stores and prefetches of `function` at addresses instead of in buffers. An address is a chain of steps, which
/// the accesses of a block share: loops are left by what does not change in them, and constants come last. Buffers of a
/// GPU, and elements that LLVM has no word for, are left.
void expandAccesses(mlir::func::FuncOp function);

} // namespace attn

#endif // PASSES_LOWERING_BUFFERS_EXPANDACCESSES_H
