#ifndef FRONTENDS_GRAPH_IMPORTGRAPH_H
#define FRONTENDS_GRAPH_IMPORTGRAPH_H

#include "frontends/onnx/ImportOnnx.h"

namespace attn::graph {

/// Reads the graph at `path` (JSON; docs/graphs.md) into `module` as importOnnx
/// reads a model: weights from the safetensors file it names into `weights`,
/// diagnostics to the context's handler, each with line and column. A file with
/// several entries makes several; `options.entry` then names none.
onnx::ImportStatus importGraph(mlir::MLIRContext *context, llvm::StringRef path, const onnx::ImportOptions &options,
                               mlir::OwningOpRef<mlir::ModuleOp> &module, WeightStore &weights);

} // namespace attn::graph

#endif // FRONTENDS_GRAPH_IMPORTGRAPH_H
