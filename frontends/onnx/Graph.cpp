#include "frontends/onnx/Graph.h"
#include "dialects/attn/NodeLocation.h"
#include "frontends/onnx/Functions.h"
#include "frontends/onnx/Limits.h"
#include "frontends/onnx/NodeOrder.h"
#include "frontends/onnx/OperatorSchema.h"
#include "llvm/ADT/StringSet.h"
#include <utility>

using namespace attn;
using namespace attn::onnx;

namespace {

using Attributes = llvm::StringMap<const proto::AttributeProto *>;

/// The names of one graph or function body.
struct Scope {
  llvm::StringMap<int> values;
  llvm::StringMap<std::string> makers;    // value -> node that makes it
  llvm::StringSet<> later;                // all that nodes here make
  const Attributes *attributes = nullptr; // of the function that is being inlined
  const OpsetImports *opsets = nullptr;
  std::string path;             // "call/" or "owner/branch/", in front of names that are there twice
  const Scope *outer = nullptr; // of the graph that a subgraph is in

  /// The number of the value `name`; nullopt where there is none.
  std::optional<int> find(llvm::StringRef name) const {
    for (const Scope *scope = this; scope; scope = scope->outer)
      if (auto it = scope->values.find(name); it != scope->values.end())
        return it->second;
    return std::nullopt;
  }
  bool isLater(llvm::StringRef name) const { return later.contains(name) || (outer && outer->isLater(name)); }
};

class Flattener {
public:
  Flattener(const Functions &functions, const OpRegistry &registry, Reporter &reporter, Graph &graph)
      : functions(functions), registry(registry), reporter(reporter), graph(graph), nodes(&graph.nodes) {}

  bool run(proto::ModelProto &model, const OpsetImports &opsets);
  /// Whether nodes stood before what they use.
  bool isReordered = false;

private:
  bool checkName(llvm::StringRef name, const char *what);
  bool addInitializers(proto::GraphProto &source, Scope &scope);
  bool addInputs(proto::GraphProto &source, Scope &scope);
  bool checkDefault(const proto::ValueInfoProto &input, const GraphInitializer &value);
  bool checkBranches(const GraphNode &node, mlir::Location loc);
  void noteRanks(const proto::GraphProto &source, const Scope &scope);
  bool addNodes(const google::protobuf::RepeatedPtrField<proto::NodeProto> &nodes, Scope &scope);
  bool addNode(const proto::NodeProto &node, const std::string &name, Scope &scope);
  bool addSubgraph(proto::GraphProto &source, const std::string &path, mlir::Location loc, const Scope &outer,
                   Subgraph &result);
  bool addCall(const Function &function, const GraphNode &call, mlir::Location loc);
  bool resolveInputs(const proto::NodeProto &node, mlir::Location loc, Scope &scope, GraphNode &result);
  bool resolveOutputs(const proto::NodeProto &node, mlir::Location loc, Scope &scope, GraphNode &result);
  bool resolveAttributes(const proto::NodeProto &node, mlir::Location loc, const Scope &scope, GraphNode &result);
  int newValue(llvm::StringRef name) {
    graph.values.push_back(name.str());
    return graph.values.size() - 1;
  }

  const Functions &functions;
  const OpRegistry &registry;
  Reporter &reporter;
  Graph &graph;
  std::vector<GraphNode> *nodes; // of the graph at hand
};

} // namespace

bool Flattener::checkName(llvm::StringRef name, const char *what) {
  if (name.empty())
    reporter.invalid() << "has an " << what << " without a name";
  else if (name.size() > kMaxNameBytes)
    reporter.invalid() << "has an " << what << " whose name has " << name.size() << " bytes, the limit is "
                       << kMaxNameBytes;
  else if (!isUtf8(name))
    reporter.invalid() << "has an " << what << " whose name is not UTF-8: '" << printableName(name) << "'";
  return !reporter.failed();
}

bool Flattener::addInitializers(proto::GraphProto &source, Scope &scope) {
  for (auto [count, what] : {std::pair(source.input_size(), "inputs"), std::pair(source.output_size(), "outputs"),
                             std::pair(source.initializer_size(), "initialisers"),
                             std::pair(source.sparse_initializer_size(), "sparse initialisers")})
    if (size_t(count) > kMaxTensors) {
      reporter.invalid() << "has " << count << " " << what << ", the limit is " << kMaxTensors;
      return false;
    }
  if (graph.initializers.size() + source.initializer_size() + source.sparse_initializer_size() > kMaxTensors) {
    reporter.invalid() << "has more than " << kMaxTensors << " initialisers with those of its subgraphs";
    return false;
  }
  auto add = [&](proto::TensorProto &tensor, proto::SparseTensorProto *sparse) {
    if (!checkName(tensor.name(), "initialiser"))
      return false;
    auto [it, fresh] = scope.values.try_emplace(tensor.name(), graph.values.size());
    if (!fresh) {
      reporter.invalid() << "has two initialisers '" << printableName(tensor.name()) << "'";
      return false;
    }
    scope.makers[tensor.name()] = "an initialiser";
    graph.initializers.push_back({newValue(tensor.name()), &tensor, scope.attributes != nullptr, sparse});
    return true;
  };
  return llvm::all_of(*source.mutable_initializer(), [&](auto &tensor) { return add(tensor, nullptr); }) &&
         llvm::all_of(*source.mutable_sparse_initializer(),
                      [&](auto &sparse) { return add(*sparse.mutable_values(), &sparse); });
}

/// An input with an initialiser has its type and shape, as far as they are declared.
bool Flattener::checkDefault(const proto::ValueInfoProto &input, const GraphInitializer &value) {
  if (!input.type().has_tensor_type())
    return true;
  const proto::TypeProto::Tensor &type = input.type().tensor_type();
  const auto &dims = value.sparse ? value.sparse->dims() : value.tensor->dims();
  bool fits = type.elem_type() == value.tensor->data_type();
  if (type.has_shape()) {
    fits &= type.shape().dim_size() == dims.size();
    for (int n = 0; fits && n < dims.size(); ++n)
      fits = !type.shape().dim(n).has_dim_value() || type.shape().dim(n).dim_value() == dims.Get(n);
  }
  if (!fits)
    reporter.invalid() << "input '" << printableName(input.name())
                       << "' has an initialiser of another type or shape than it declares";
  return fits;
}

bool Flattener::addInputs(proto::GraphProto &source, Scope &scope) {
  if (!addInitializers(source, scope))
    return false;
  llvm::StringSet<> inputs;
  llvm::StringMap<const GraphInitializer *> defaults;
  for (const GraphInitializer &initializer : graph.initializers)
    defaults[initializer.tensor->name()] = &initializer;
  for (const proto::ValueInfoProto &input : source.input()) {
    if (!checkName(input.name(), "input"))
      return false;
    if (!inputs.insert(input.name()).second) {
      reporter.invalid() << "has two inputs '" << printableName(input.name()) << "'";
      return false;
    }
    // An input with an initialiser is a constant: overriding it is not offered.
    auto [it, fresh] = scope.values.try_emplace(input.name(), graph.values.size());
    if (!fresh) {
      if (!checkDefault(input, *defaults[input.name()]))
        return false;
      continue;
    }
    scope.makers[input.name()] = "an input";
    graph.inputs.push_back({newValue(input.name()), &input});
  }
  return true;
}

bool Flattener::resolveInputs(const proto::NodeProto &node, mlir::Location loc, Scope &scope, GraphNode &result) {
  for (const std::string &input : node.input()) {
    if (input.empty()) {
      result.inputs.push_back(GraphNode::kNone);
      continue;
    }
    std::optional<int> value = scope.find(input);
    if (!value) {
      if (scope.isLater(input))
        reporter.invalid(loc) << "uses '" << printableName(input)
                              << "', which cannot be made: nodes on the way to it form a cycle";
      else
        reporter.invalid(loc) << "uses '" << printableName(input) << "', which no input, initialiser or node provides";
      return false;
    }
    result.inputs.push_back(*value);
  }
  return true;
}

bool Flattener::resolveOutputs(const proto::NodeProto &node, mlir::Location loc, Scope &scope, GraphNode &result) {
  for (const std::string &output : node.output()) {
    if (output.empty()) {
      result.outputs.push_back(GraphNode::kNone);
      continue;
    }
    auto [it, fresh] = scope.values.try_emplace(output, graph.values.size());
    if (!fresh) {
      reporter.invalid(loc) << "makes '" << printableName(output) << "', which " << scope.makers[output]
                            << " makes already";
      return false;
    }
    scope.makers[output] = "node '" + printableName(result.name) + "'";
    result.outputs.push_back(newValue(output));
  }
  return true;
}

/// Where an attribute's value must be, for its declared type.
static bool hasDeclaredValue(const proto::AttributeProto &attribute) {
  using A = proto::AttributeProto;
  bool scalars = attribute.has_f() + attribute.has_i() + attribute.has_s() + attribute.has_t() + attribute.has_g();
  switch (attribute.type()) {
  case A::FLOAT:
    return !attribute.has_i() && !attribute.has_s() && !attribute.has_t() && !attribute.has_g();
  case A::INT:
    return !attribute.has_f() && !attribute.has_s() && !attribute.has_t() && !attribute.has_g();
  case A::STRING:
    return !attribute.has_f() && !attribute.has_i() && !attribute.has_t() && !attribute.has_g();
  case A::TENSOR:
    return attribute.has_t();
  case A::GRAPH:
    return attribute.has_g();
  case A::SPARSE_TENSOR:
    return attribute.has_sparse_tensor();
  case A::FLOATS:
  case A::INTS:
  case A::STRINGS:
    return !scalars;
  default:
    return true;
  }
}

bool Flattener::resolveAttributes(const proto::NodeProto &node, mlir::Location loc, const Scope &scope,
                                  GraphNode &result) {
  llvm::StringSet<> seen;
  for (const proto::AttributeProto &attribute : node.attribute()) {
    if (!checkName(attribute.name(), "attribute"))
      return false;
    if (!seen.insert(attribute.name()).second) {
      reporter.invalid(loc) << "has attribute '" << printableName(attribute.name()) << "' twice";
      return false;
    }
    if (!attribute.ref_attr_name().empty()) {
      if (!scope.attributes) {
        reporter.invalid(loc) << "refers to the attribute '" << printableName(attribute.ref_attr_name())
                              << "' of a function, but is in none";
        return false;
      }
      auto it = scope.attributes->find(attribute.ref_attr_name());
      if (it != scope.attributes->end()) // else: not given, and it has no default
        result.attributes.push_back({attribute.name(), it->second});
      continue;
    }
    if (!hasDeclaredValue(attribute)) {
      reporter.invalid(loc) << "attribute '" << printableName(attribute.name())
                            << "' does not hold the type that it declares ("
                            << proto::AttributeProto::AttributeType_Name(attribute.type()) << ")";
      return false;
    }
    result.attributes.push_back({attribute.name(), &attribute});
  }
  return true;
}

/// Both branches of an If have the same outputs, also where only one of them is ever taken.
bool Flattener::checkBranches(const GraphNode &node, mlir::Location loc) {
  llvm::SmallVector<const proto::GraphProto *, 2> branches;
  for (auto [key, attribute] : node.attributes)
    if (attribute->type() == proto::AttributeProto::GRAPH)
      branches.push_back(&attribute->g());
  if (branches.size() != 2)
    return true; // reported with the schema
  for (const proto::GraphProto *branch : branches)
    if (branch->output_size() != branches[0]->output_size()) {
      reporter.invalid(loc) << "has " << branches[0]->output_size() << " outputs in one branch, "
                            << branch->output_size() << " in the other";
      return false;
    }
  for (auto [a, b] : llvm::zip_equal(branches[0]->output(), branches[1]->output())) {
    int64_t first = a.type().tensor_type().elem_type(), second = b.type().tensor_type().elem_type();
    if (first && second && first != second) {
      reporter.invalid(loc) << "output '" << printableName(a.name()) << "' of one branch declares element type "
                            << first << ", '" << printableName(b.name()) << "' of the other " << second;
      return false;
    }
  }
  return true;
}

bool Flattener::addNode(const proto::NodeProto &node, const std::string &name, Scope &scope) {
  mlir::Location loc = reporter.nodeLoc(name, node.op_type());
  GraphNode result;
  result.name = name;
  result.op = node.op_type();
  if (!resolveInputs(node, loc, scope, result) || !resolveAttributes(node, loc, scope, result))
    return false;

  if (const Function *function = functions.find(node)) {
    // The call's outputs are values of this scope; the body makes them.
    if (!resolveOutputs(node, loc, scope, result))
      return false;
    return addCall(*function, result, loc);
  }
  for (auto [key, attribute] : result.attributes) {
    if (attribute->type() != proto::AttributeProto::GRAPH)
      continue;
    auto subgraph = std::make_shared<Subgraph>();
    // Initialisers are moved out of the file's message, as the model's are.
    auto &source = const_cast<proto::GraphProto &>(attribute->g());
    if (!addSubgraph(source, name + "/" + key.str() + "/", loc, scope, *subgraph))
      return false;
    result.subgraphs.push_back({key, std::move(subgraph)});
  }
  if (node.op_type() == "If" && canonicalDomain(node.domain()).empty() && !checkBranches(result, loc))
    return false;
  std::string domain = canonicalDomain(node.domain());
  result.import = registry.lookup(domain, node.op_type(), *opsetOf(*scope.opsets, domain), result.version);
  assert(result.import && "unsupported operators are reported before");
  result.schema = OperatorSchema::find(domain, node.op_type(), result.version);
  if (!resolveOutputs(node, loc, scope, result) || (result.schema && !checkSignature(result, loc, reporter)))
    return false;
  nodes->push_back(std::move(result));
  return true;
}

/// What outputs and value_info say of the number of dimensions; names that
/// nothing has are let pass, as other readers do.
void Flattener::noteRanks(const proto::GraphProto &source, const Scope &scope) {
  for (const auto *infos : {&source.value_info(), &source.output()})
    for (const proto::ValueInfoProto &info : *infos) {
      auto it = scope.values.find(info.name());
      if (it == scope.values.end() || it->second == GraphNode::kNone || !info.type().tensor_type().has_shape())
        continue;
      int64_t rank = info.type().tensor_type().shape().dim_size();
      if (rank <= int64_t(kMaxRank))
        graph.ranks[it->second] = rank;
    }
}

bool Flattener::addSubgraph(proto::GraphProto &source, const std::string &path, mlir::Location loc, const Scope &outer,
                            Subgraph &result) {
  Scope scope;
  scope.attributes = outer.attributes;
  scope.opsets = outer.opsets;
  scope.path = path;
  scope.outer = &outer;
  if (!addInitializers(source, scope))
    return false;
  for (const proto::ValueInfoProto &input : source.input()) {
    if (!checkName(input.name(), "input"))
      return false;
    if (!scope.values.try_emplace(input.name(), graph.values.size()).second) {
      reporter.invalid(loc) << "has a subgraph with two values '" << printableName(input.name()) << "'";
      return false;
    }
    scope.makers[input.name()] = "an input";
    result.inputs.push_back(newValue(input.name()));
  }
  std::vector<GraphNode> *saved = std::exchange(nodes, &result.nodes);
  bool added = addNodes(source.node(), scope);
  nodes = saved;
  if (!added)
    return false;
  noteRanks(source, scope);
  for (const proto::ValueInfoProto &output : source.output()) {
    std::optional<int> value = scope.find(output.name());
    if (!value || *value == GraphNode::kNone) {
      reporter.invalid(loc) << "has a subgraph whose output '" << printableName(output.name())
                            << "' nothing in it makes";
      return false;
    }
    result.outputs.push_back(*value);
  }
  return true;
}

bool Flattener::addCall(const Function &function, const GraphNode &call, mlir::Location loc) {
  const proto::FunctionProto &body = *function.proto;
  if (call.inputs.size() > size_t(body.input_size()) || call.outputs.size() > size_t(body.output_size())) {
    reporter.invalid(loc) << "calls a function of " << body.input_size() << " inputs and " << body.output_size()
                          << " outputs with " << call.inputs.size() << " and " << call.outputs.size();
    return false;
  }
  Attributes attributes;
  for (const proto::AttributeProto &fallback : body.attribute_proto())
    attributes[fallback.name()] = &fallback;
  for (auto [name, attribute] : call.attributes)
    attributes[name] = attribute;

  Scope scope;
  scope.attributes = &attributes;
  scope.opsets = &function.opsets;
  scope.path = call.name + "/";
  for (int i = 0; i < body.input_size(); ++i) {
    // A missing optional input: the name means "" within the body.
    int value = size_t(i) < call.inputs.size() ? call.inputs[i] : GraphNode::kNone;
    if (!scope.values.try_emplace(body.input(i), value).second) {
      reporter.invalid(loc) << "calls a function with two inputs '" << printableName(body.input(i)) << "'";
      return false;
    }
    scope.makers[body.input(i)] = "an input";
  }
  if (!addNodes(body.node(), scope))
    return false;

  // Outputs of the body are other numbers than the call's: a copy would be a
  // node, so the call's numbers are replaced wherever the body made them.
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    if (call.outputs[i] == GraphNode::kNone)
      continue;
    auto it = scope.values.find(body.output(i));
    if (it == scope.values.end() || it->second == GraphNode::kNone) {
      reporter.invalid(loc) << "calls a function whose output '" << printableName(body.output(i))
                            << "' nothing in it makes";
      return false;
    }
    GraphNode copy;
    copy.name = call.name;
    copy.op = call.op;
    copy.inputs = {it->second};
    copy.outputs = {call.outputs[i]};
    nodes->push_back(std::move(copy)); // without an importer: the same value
  }
  return true;
}

bool Flattener::addNodes(const google::protobuf::RepeatedPtrField<proto::NodeProto> &nodes, Scope &scope) {
  for (const proto::NodeProto &node : nodes)
    for (const std::string &output : node.output())
      scope.later.insert(output);
  std::vector<const proto::NodeProto *> order = inOrder(nodes);
  for (const proto::NodeProto *node : order)
    if (!addNode(*node, functions.nameOf(*node, scope.path), scope))
      return false;
  for (int n = 0; n < nodes.size() && !isReordered; ++n)
    isReordered = order[size_t(n)] != &nodes[n];
  return true;
}

bool Flattener::run(proto::ModelProto &model, const OpsetImports &opsets) {
  Scope scope;
  scope.opsets = &opsets;
  if (!addInputs(*model.mutable_graph(), scope) || !addNodes(model.graph().node(), scope))
    return false;
  noteRanks(model.graph(), scope);
  llvm::StringSet<> seen;
  for (const proto::ValueInfoProto &output : model.graph().output()) {
    if (!seen.insert(output.name()).second) {
      reporter.invalid() << "has two outputs '" << printableName(output.name()) << "'";
      return false;
    }
    auto it = scope.values.find(output.name());
    if (it == scope.values.end()) {
      reporter.invalid() << "output '" << printableName(output.name())
                         << "' is made by no node, and is no input or initialiser";
      return false;
    }
    graph.outputs.push_back({it->second, &output});
  }
  if (graph.outputs.empty()) {
    reporter.invalid() << "has no outputs";
    return false;
  }
  return true;
}

bool attn::onnx::flatten(proto::ModelProto &model, const OpsetImports &opsets, const OpRegistry &registry,
                         Reporter &reporter, Graph &graph) {
  Functions functions(registry, reporter);
  if (!functions.read(model) || !functions.check(model, opsets))
    return false;
  Flattener flattener(functions, registry, reporter, graph);
  if (!flattener.run(model, opsets))
    return false;
  if (flattener.isReordered) {
    mlir::Diagnostic note(reporter.fileLoc(), mlir::DiagnosticSeverity::Note);
    note << "nodes stand before what they use, which ONNX forbids; they were sorted";
    reporter.getContext()->getDiagEngine().emit(std::move(note));
  }
  return true;
}
