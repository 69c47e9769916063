#ifndef PASSES_LOWERING_BUFFERS_TASKSCRATCH_H
#define PASSES_LOWERING_BUFFERS_TASKSCRATCH_H

#include "passes/lowering/buffers/RuntimeFunction.h"

#include "mlir/IR/SymbolTable.h"

namespace attn {

/// Scratch of kernels (attn-assign-scratch), in three places: an entry asks for as much as the kernels that it calls
/// need at most, a kernel passes part of it on with each parallel loop, and a task takes a slot of that.
///
/// The part of a loop, for `slots` tasks at a time:
///
///     [ slots x 64 bytes, the first of which is 1 where the slot is taken ][ slots x scratch of a task ]
///
/// The runtime promises no more than num_threads tasks at a time (abi.h), but not which thread runs what.
constexpr int64_t kSlotFlagBytes = 64;

/// Bytes that `kernel` declares for a call, and for a task.
std::pair<int64_t, int64_t> scratchOf(mlir::func::FuncOp kernel);

/// Fields that a task with scratch finds behind its captures: the loop's part, slots, iterations of a piece.
llvm::SmallVector<mlir::Type> taskScratchFields(mlir::MLIRContext *context);

/// Makes of a lowered task with `bytes` of scratch one that takes a slot, calls what the task was, and frees the slot.
/// The latter gets the pieces of scratch at `places` as its last arguments: LLVM knows that they overlap nothing.
void takeSlot(mlir::func::FuncOp task, int64_t bytes, mlir::LLVM::LLVMStructType captures,
              llvm::ArrayRef<int64_t> places, mlir::SymbolTable &symbols);

} // namespace attn

#endif // PASSES_LOWERING_BUFFERS_TASKSCRATCH_H
