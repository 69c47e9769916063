#ifndef PASSES_LOWERING_CPU_ROUNDROWS_H
#define PASSES_LOWERING_CPU_ROUNDROWS_H

#include "mlir/IR/BuiltinOps.h"

namespace attn {

/// What attn-round-rows does where `multipliesBytes`; else each product is reported with that reason.
void roundRows(mlir::ModuleOp module, bool multipliesBytes);

} // namespace attn

#endif // PASSES_LOWERING_CPU_ROUNDROWS_H
