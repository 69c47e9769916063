// The models of a generation as entries: what begins and what is one step.
#ifndef TOOLS_ATTNC_GENERATIONPARTS_H
#define TOOLS_ATTNC_GENERATIONPARTS_H

#include "frontends/onnx/ImportOnnx.h"
#include "tools/attnc/HubFolder.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace attn::tools {

/// Imports one model; an exit code.
using ImportPart = llvm::function_ref<int(llvm::StringRef path, const onnx::ImportOptions &options)>;

/// Imports the models of `folder` by the names that `search` gets to call them by.
int importGeneration(const HubFolder &folder, const onnx::ImportOptions &options,
                     mlir::OwningOpRef<mlir::ModuleOp> &module, SearchOptions &search, ImportPart import);

/// Where the step of `search` is a decoder with and without its cache in one (use_cache_branch), it becomes two
/// entries: one that begins, and one that goes on. `pathOf` names the file of an entry.
int splitMerged(const onnx::ImportOptions &options, mlir::OwningOpRef<mlir::ModuleOp> &module, SearchOptions &search,
                llvm::function_ref<std::string(llvm::StringRef entry)> pathOf, ImportPart import);

} // namespace attn::tools

#endif // TOOLS_ATTNC_GENERATIONPARTS_H
