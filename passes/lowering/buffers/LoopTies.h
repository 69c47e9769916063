#ifndef PASSES_LOWERING_BUFFERS_LOOPTIES_H
#define PASSES_LOWERING_BUFFERS_LOOPTIES_H

#include "mlir/IR/Value.h"
#include "llvm/ADT/STLFunctionalExtras.h"

// How a tensor that a loop carries is written from an iteration to the next.

namespace attn {

/// One tensor that an scf.for or scf.while carries.
struct LoopTie {
  mlir::OpOperand *init;    // of the loop
  mlir::OpOperand *yielded; // of the body's terminator
  mlir::Value argument;     // in the body
  mlir::Value result;       // null: none
};

/// Calls `fn` for each tensor that `loop` carries through its body; nothing for
/// an op that is no such loop.
void forEachTie(mlir::Operation *loop, llvm::function_ref<void(LoopTie)> fn);

/// The tensor that `value` was written over, through all that writes in place
/// (destinations, insertions, growth, loops), until `end` or as far as it goes.
/// `step` is called with each op on the way, if given.
mlir::Value writtenOver(mlir::Value value, mlir::Value end, llvm::function_ref<void(mlir::Operation *)> step = nullptr);

/// Makes what each loop in `function` yields be written over the argument that
/// it replaces: bufferisation takes a loop only so. A tensor that is not made by
/// writing into its argument is written to it at the end of the body, which
/// costs a copy only where both are needed at once. Shapes agree: what changes
/// its shape is carried through attn.grow.
void tieLoops(mlir::Operation *function);

/// Copies what loops in `function` read of a place after it is written: states
/// that a body permutes, yields twice or as views of each other, and the old
/// contents of one that is written in place. For right before bufferisation,
/// since equal copies are one value to CSE. A loop whose states are independent
/// stays as it is.
void separateStates(mlir::Operation *function);

} // namespace attn

#endif // PASSES_LOWERING_BUFFERS_LOOPTIES_H
