#ifndef COMPILER_REPORT_H
#define COMPILER_REPORT_H

#include "compiler/Compiler.h"
#include "compiler/emit/cpu/LibraryTable.h"

namespace attn {

/// The entries and messages of a lowered module, in the order of its functions.
/// Fails, with a diagnostic, for an element type that the ABI lacks.
mlir::FailureOr<std::vector<EntryDescription>> describeEntries(mlir::ModuleOp module);

/// The module's `attn.regions`, if it has any.
std::vector<RegionDescription> describeRegions(mlir::ModuleOp module);

/// Fills `states` of `report`.
void reportStates(llvm::ArrayRef<EntryDescription> entries, CompileReport &report);

/// Fills `caches` of `report` from the module's `attn.cache_report`.
void reportCaches(mlir::ModuleOp module, CompileReport &report);

/// Fills `hostOps` of `report` from the kernels that a module for the GPU runs on the CPU.
void reportHostOps(mlir::ModuleOp module, CompileReport &report);

/// Where no pass looked for attentions, writes the verdicts that say so to the
/// module's `attn.fusion_report`: one a softmax.
void noteUnrecognized(mlir::ModuleOp module, unsigned optLevel);

/// Fills the fusion fields of `report` from `attn.fusion_report` of the module,
/// an array of dictionaries, one a softmax: `fused` (bool), `node`, `kind`, `mask`,
/// `reason`, `reason_node` (strings), where they apply `assumes`, `copies`
/// (lists of strings), after the lowering `form`, `kernel` (bool) and `kernel_reason`. Adds
/// `verdict`: "fused", "missed", "not an attention" or "no contraction".
void reportFusion(mlir::ModuleOp module, CompileReport &report);

/// Fills `productsJson` of `report` from `attn.product_report` of the module.
void reportProducts(mlir::ModuleOp module, CompileReport &report);

} // namespace attn

#endif // COMPILER_REPORT_H
