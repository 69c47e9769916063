#ifndef COMPILER_REPORT_H
#define COMPILER_REPORT_H

#include "compiler/Compiler.h"
#include "compiler/emit/cpu/LibraryTable.h"

namespace attn {

/// The entries and messages of a lowered module, in the order of its functions.
/// Fails, with a diagnostic, for an element type that the ABI lacks.
mlir::FailureOr<std::vector<EntryDescription>> describeEntries(mlir::ModuleOp module);

/// Fills the fusion fields of `report` from `attn.fusion_report` of the module,
/// an array of dictionaries, one a softmax, with a boolean `fused`.
void reportFusion(mlir::ModuleOp module, CompileReport &report);

} // namespace attn

#endif // COMPILER_REPORT_H
