#ifndef FRONTENDS_ONNX_ANNOTATE_H
#define FRONTENDS_ONNX_ANNOTATE_H

#include "frontends/onnx/ImportOnnx.h"
#include <optional>
#include <utility>

namespace attn::onnx {

/// What is to be said of the nodes of a model.
struct Annotations {
  using Facts = std::vector<std::pair<std::string, std::string>>; ///< keys and texts
  std::map<std::string, Facts> facts;        ///< by what messages call the node: "node 'NAME' (OPERATOR)"
  std::map<std::string, std::string> groups; ///< the node of the attention that it became part of
};

/// The model at `path` with `annotations`, as bytes of an ONNX file: each fact is an entry "attnc.KEY" of its node's
/// `metadata_props` and a line of its `doc_string`, both of which Netron shows. All else is as it was; external data
/// stays where the file says, beside it. Nodes inside of model-local functions are left as they are. Nothing after a
/// diagnostic.
std::optional<std::string> annotateModel(mlir::MLIRContext *context, llvm::StringRef path,
                                         const Annotations &annotations);

/// The same model as a list of graphs for Model Explorer, JSON (graph_builder.py of google-ai-edge/model-explorer): its
/// main graph and one for each subgraph. Parts of names between slashes are layers, and what became one attention is a
/// layer of its own.
std::optional<std::string> exploreModel(mlir::MLIRContext *context, llvm::StringRef path,
                                        const Annotations &annotations);

} // namespace attn::onnx

#endif // FRONTENDS_ONNX_ANNOTATE_H
