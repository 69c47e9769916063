#ifndef FRONTENDS_ONNX_FUNCTIONS_H
#define FRONTENDS_ONNX_FUNCTIONS_H

#include "frontends/onnx/Importer.h"
#include "frontends/onnx/ModelFile.h"
#include "llvm/ADT/StringMap.h"
#include <set>

namespace attn::onnx {

struct Function {
  const proto::FunctionProto *proto = nullptr;
  OpsetImports opsets;

  // What check() found.
  enum { Unseen, Active, Done } state = Unseen;
  size_t nodes = 0;   // after inlining
  unsigned depth = 0; // calls and subgraphs inside one another
};

/// The model-local functions, and what can be said of nodes before any is
/// inlined: how many there will be, how deep they nest, which are unknown.
class Functions {
public:
  Functions(const OpRegistry &registry, Reporter &reporter) : registry(registry), reporter(reporter) {}

  bool read(const proto::ModelProto &model);
  /// Cycles of calls, nesting, number of nodes, sizes of names; then all
  /// unsupported operators in one diagnostic. False after a diagnostic.
  bool check(const proto::ModelProto &model, const OpsetImports &opsets);

  /// The function that `node` calls, or null.
  const Function *find(const proto::NodeProto &node) const;

  /// What messages call a node of a graph: its name, where the file has it once; else "path" and its name, as in a
  /// function's body.
  std::string nameOf(const proto::NodeProto &node, const std::string &path) const;

private:
  using Nodes = google::protobuf::RepeatedPtrField<proto::NodeProto>;
  struct Size {
    size_t nodes = 0;
    unsigned depth = 0;
  };
  void countNames(const Nodes &nodes, unsigned uses, unsigned nesting);
  bool checkNodes(const Nodes &nodes, const OpsetImports &opsets, const std::string &path, unsigned nesting,
                  Size &size);
  bool checkNames(const proto::NodeProto &node, mlir::Location loc);
  bool checkNode(const proto::NodeProto &node, const OpsetImports &opsets, const std::string &path, unsigned nesting,
                 Size &size);
  bool checkCall(Function &function, mlir::Location loc, unsigned nesting, Size &size);
  void reportUnsupported();

  const OpRegistry &registry;
  Reporter &reporter;
  std::map<std::tuple<std::string, std::string, std::string>, Function> functions;
  llvm::StringMap<unsigned> names; ///< how many nodes have them
  /// Unsupported operators and the nodes that are of it.
  std::map<std::string, std::vector<std::string>> unsupported;
};

/// "path" + its name, or its first output's, or "". Never longer than kMaxNameBytes.
std::string nodeDisplayName(const proto::NodeProto &node, const std::string &path);

} // namespace attn::onnx

#endif // FRONTENDS_ONNX_FUNCTIONS_H
