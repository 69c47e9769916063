#ifndef PASSES_GRAPH_FUSIONVERDICT_H
#define PASSES_GRAPH_FUSIONVERDICT_H

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace attn {

/// What an attention is called in the fusion report. Entries may have nodes of one name.
struct VerdictName {
  explicit VerdictName(mlir::Operation *attention);
  llvm::StringRef node, entry; ///< live as long as the context
  bool isReported = true;      ///< not in a form of another entry
};

/// Changes a verdict on a fused attention of `name` in the fusion report of `module`, if it has one: the first that
/// `isMeant` takes, called with each one's place in the report.
void editVerdict(mlir::ModuleOp module, VerdictName name,
                 llvm::function_ref<bool(mlir::DictionaryAttr, size_t)> isMeant,
                 llvm::function_ref<void(mlir::NamedAttrList &)> edit);

/// Adds `fields` to the first verdict of `name` that lacks the first of them.
void completeVerdict(mlir::ModuleOp module, VerdictName name, llvm::ArrayRef<mlir::NamedAttribute> fields);

} // namespace attn

#endif // PASSES_GRAPH_FUSIONVERDICT_H
