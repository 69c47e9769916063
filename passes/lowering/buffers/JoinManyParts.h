#ifndef PASSES_LOWERING_BUFFERS_JOINMANYPARTS_H
#define PASSES_LOWERING_BUFFERS_JOINMANYPARTS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace attn {

/// Many insertions that put parts side by side in a tensor become one `tensor.concat`. Insertions let each part be
/// computed in its place, but upstream's analyses compare each one with all others, each time along the whole chain: of
/// 160 parts they took 50 s (Zen 4). Bufferisation copies the parts of a concatenation instead.
void joinManyParts(mlir::func::FuncOp function);

} // namespace attn

#endif // PASSES_LOWERING_BUFFERS_JOINMANYPARTS_H
