#ifndef PASSES_GRAPH_FUSIONVERDICT_H
#define PASSES_GRAPH_FUSIONVERDICT_H

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace attn {

/// Changes a verdict on a fused attention at `node` in the fusion report of `module`, if it has one: the first that
/// `isMeant` takes, called with each one's place in the report.
void editVerdict(mlir::ModuleOp module, llvm::StringRef node,
                 llvm::function_ref<bool(mlir::DictionaryAttr, size_t)> isMeant,
                 llvm::function_ref<void(mlir::NamedAttrList &)> edit);

/// Adds `fields` to the first verdict at `node` that lacks the first of them.
void completeVerdict(mlir::ModuleOp module, llvm::StringRef node, llvm::ArrayRef<mlir::NamedAttribute> fields);

} // namespace attn

#endif // PASSES_GRAPH_FUSIONVERDICT_H
