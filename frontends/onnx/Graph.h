#ifndef FRONTENDS_ONNX_GRAPH_H
#define FRONTENDS_ONNX_GRAPH_H

#include "frontends/onnx/Importer.h"
#include "frontends/onnx/ModelFile.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringMap.h"
#include <memory>

namespace attn::onnx {

struct OperatorSchema;
struct Subgraph;

/// One node after inlining. Values are numbers, so a function's names need no
/// prefix, and attributes that refer to a function's are resolved.
struct GraphNode {
  std::string name; // for messages (Functions::nameOf)
  std::string op;
  ImportFn import = nullptr;
  int version = 0;                           // since_version of `import`
  const OperatorSchema *schema = nullptr;    // null for an operator of another domain
  llvm::SmallVector<int, 4> inputs, outputs; // kNone for ""
  llvm::SmallVector<std::pair<llvm::StringRef, const proto::AttributeProto *>, 4> attributes;
  llvm::SmallVector<std::pair<llvm::StringRef, std::shared_ptr<const Subgraph>>, 2> subgraphs; // graph attributes

  static constexpr int kNone = -1;
};

/// A branch or the body of a loop. Its values are numbered with those of the
/// model, so a node in it may use any value that is made before it outside.
struct Subgraph {
  std::vector<int> inputs;
  std::vector<GraphNode> nodes;
  std::vector<int> outputs;
};

struct GraphInitializer {
  int value;
  proto::TensorProto *tensor;
  bool isShared;                              // of a function's subgraph: read once a call
  proto::SparseTensorProto *sparse = nullptr; // whose values `tensor` is
};

/// A model as one list of nodes in an order in which each value is made before
/// it is used, once. Initialisers are those of subgraphs, too.
struct Graph {
  std::vector<GraphNode> nodes;
  std::vector<std::string> values;                                   // names, for messages
  std::vector<std::pair<int, const proto::ValueInfoProto *>> inputs; // without those that an initialiser sets
  std::vector<GraphInitializer> initializers;
  std::vector<std::pair<int, const proto::ValueInfoProto *>> outputs;
  llvm::DenseMap<int, int64_t> ranks; // that the model declares, at most kMaxRank
};

/// Checks the structure of a model (names, order, nesting, functions, numbers of
/// nodes), inlines functions and finds each node's importer. All operators
/// without one are listed in one diagnostic. False after a diagnostic.
bool flatten(proto::ModelProto &model, const OpsetImports &opsets, const OpRegistry &registry, Reporter &reporter,
             Graph &graph);

} // namespace attn::onnx

#endif // FRONTENDS_ONNX_GRAPH_H
