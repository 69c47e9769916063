#ifndef FRONTENDS_GRAPH_SEARCH_H
#define FRONTENDS_GRAPH_SEARCH_H

#include "frontends/graph/Json.h"
#include "frontends/onnx/ModelFile.h"
#include "mlir/IR/BuiltinOps.h"

namespace attn::graph {

/// Adds the entry that `search`, which fits the schema, asks for to a module
/// with the entries of the file. False after a diagnostic.
bool addSearch(const Json &search, onnx::Reporter &reporter, mlir::ModuleOp module, int64_t maxLoopIterations);

} // namespace attn::graph

#endif // FRONTENDS_GRAPH_SEARCH_H
