// The model once more, with what the compiler made of each node.
#ifndef TOOLS_ATTNC_ANNOTATEDMODEL_H
#define TOOLS_ATTNC_ANNOTATEDMODEL_H

#include "compiler/Compiler.h"
#include "mlir/IR/MLIRContext.h"

#include <string>

namespace attn::tools {

/// Whether --annotate can write a file of this name: FILE.onnx for Netron, FILE.json for Model Explorer.
bool isAnnotatedName(llvm::StringRef path);

/// Writes the ONNX model `input` with the verdicts of `report` to `path`. False where that fails, which is reported.
bool writeAnnotatedModel(mlir::MLIRContext &context, llvm::StringRef input, const CompileReport &report,
                         llvm::StringRef path);

} // namespace attn::tools

#endif // TOOLS_ATTNC_ANNOTATEDMODEL_H
