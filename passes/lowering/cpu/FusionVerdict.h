#ifndef PASSES_LOWERING_CPU_FUSIONVERDICT_H
#define PASSES_LOWERING_CPU_FUSIONVERDICT_H

#include "mlir/IR/BuiltinOps.h"

namespace attn {

/// Adds `fields` to the verdict on the fused attention at `node` in the fusion
/// report of `module`, if it has one: to the first that lacks the first of them.
void completeVerdict(mlir::ModuleOp module, llvm::StringRef node, llvm::ArrayRef<mlir::NamedAttribute> fields);

} // namespace attn

#endif // PASSES_LOWERING_CPU_FUSIONVERDICT_H
