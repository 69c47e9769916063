#ifndef PASSES_LOWERING_BUFFERS_SPELLCONCATS_H
#define PASSES_LOWERING_BUFFERS_SPELLCONCATS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace attn {

/// A `tensor.concat` becomes insertions of its parts into one tensor, so that each can be computed in its place. Of
/// more than 32 parts it stays, and as many insertions that fill a tensor become one: upstream's analyses compare each
/// insertion with all others, each time along the whole chain (160 parts took 50 s, on Zen 4). Bufferisation copies the
/// parts of a concatenation.
void spellConcats(mlir::func::FuncOp function);

} // namespace attn

#endif // PASSES_LOWERING_BUFFERS_SPELLCONCATS_H
