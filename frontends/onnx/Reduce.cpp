#include "frontends/onnx/Reduce.h"

#include "dialects/attn/NodeLocation.h"
#include "frontends/onnx/ModelFile.h"
#include "frontends/onnx/Payload.h"

#include "llvm/ADT/STLExtras.h"
#include <functional>

using namespace attn;
using namespace attn::onnx;

namespace {

using Names = std::set<std::string>;

void forEachGraph(proto::NodeProto &node, llvm::function_ref<void(proto::GraphProto &)> act) {
  for (proto::AttributeProto &attribute : *node.mutable_attribute()) {
    if (attribute.has_g())
      act(*attribute.mutable_g());
    for (proto::GraphProto &graph : *attribute.mutable_graphs())
      act(graph);
  }
}

/// All nodes of `graph` and of those inside of it.
void listNodes(proto::GraphProto &graph, std::vector<std::pair<proto::GraphProto *, proto::NodeProto *>> &list) {
  for (proto::NodeProto &node : *graph.mutable_node()) {
    list.emplace_back(&graph, &node);
    forEachGraph(node, [&](proto::GraphProto &inner) { listNodes(inner, list); });
  }
}

/// Adds the names that `node` reads, from within its graphs, too.
void addUses(proto::NodeProto &node, Names &uses) {
  uses.insert(node.input().begin(), node.input().end());
  forEachGraph(node, [&](proto::GraphProto &inner) {
    for (proto::NodeProto &other : *inner.mutable_node())
      addUses(other, uses);
    for (const proto::ValueInfoProto &output : inner.output())
      uses.insert(output.name());
  });
}

void rename(proto::GraphProto &graph, const std::string &from, const std::string &to) {
  for (proto::NodeProto &node : *graph.mutable_node()) {
    for (std::string &input : *node.mutable_input())
      if (input == from)
        input = to;
    forEachGraph(node, [&](proto::GraphProto &inner) { rename(inner, from, to); });
  }
  for (proto::ValueInfoProto &output : *graph.mutable_output())
    if (output.name() == from)
      output.set_name(to);
}

template <typename List, typename Predicate> void removeIf(List *list, Predicate isLeftOut) {
  int kept = 0;
  for (int i = 0; i < list->size(); ++i)
    if (!isLeftOut(list->Get(i)))
      list->SwapElements(kept++, i);
  list->DeleteSubrange(kept, list->size() - kept);
}

/// Leaves out what nothing in `graph` reads.
void trim(proto::GraphProto &graph) {
  Names uses;
  for (const proto::ValueInfoProto &output : graph.output())
    uses.insert(output.name());
  std::vector<bool> isNeeded(graph.node_size());
  for (int n = graph.node_size(); n-- > 0;) {
    proto::NodeProto &node = *graph.mutable_node(n);
    isNeeded[n] = llvm::any_of(node.output(), [&](const std::string &name) { return uses.count(name); });
    if (isNeeded[n])
      addUses(node, uses);
  }
  int place = 0;
  removeIf(graph.mutable_node(), [&](const proto::NodeProto &) { return !isNeeded[place++]; });
  auto isUnused = [&](const auto &value) { return !uses.count(value.name()); };
  removeIf(graph.mutable_initializer(), isUnused);
  removeIf(graph.mutable_sparse_initializer(),
           [&](const proto::SparseTensorProto &tensor) { return isUnused(tensor.values()); });
  removeIf(graph.mutable_input(), isUnused);
  Names declared;
  for (const auto *list : {&graph.input(), &graph.output()})
    for (const proto::ValueInfoProto &value : *list)
      declared.insert(value.name());
  removeIf(graph.mutable_value_info(), [&](const proto::ValueInfoProto &value) {
    return isUnused(value) || !declared.insert(value.name()).second;
  });
}

void removeComments(proto::GraphProto &graph) {
  graph.clear_doc_string();
  graph.clear_metadata_props();
  for (proto::NodeProto &node : *graph.mutable_node()) {
    node.clear_doc_string();
    node.clear_metadata_props();
    forEachGraph(node, removeComments);
  }
}

bool embedSparse(proto::SparseTensorProto &sparse, ExternalFiles &files, std::string &error) {
  for (proto::TensorProto *part : {sparse.mutable_values(), sparse.mutable_indices()})
    if (part->data_location() == proto::TensorProto::EXTERNAL && !embedExternal(*part, files, error))
      return false;
  return true;
}

bool embedWeights(proto::GraphProto &graph, ExternalFiles &files, std::string &error);

/// Attributes of nodes hold weights, and so do bodies of control flow.
bool embedWeights(google::protobuf::RepeatedPtrField<proto::NodeProto> &nodes, ExternalFiles &files,
                  std::string &error) {
  bool isWhole = true;
  for (proto::NodeProto &node : nodes) {
    for (proto::AttributeProto &attribute : *node.mutable_attribute())
      if (attribute.has_t() && attribute.t().data_location() == proto::TensorProto::EXTERNAL)
        isWhole = isWhole && embedExternal(*attribute.mutable_t(), files, error);
      else if (attribute.has_sparse_tensor())
        isWhole = isWhole && embedSparse(*attribute.mutable_sparse_tensor(), files, error);
    forEachGraph(node, [&](proto::GraphProto &inner) { isWhole = isWhole && embedWeights(inner, files, error); });
  }
  return isWhole;
}

bool embedWeights(proto::GraphProto &graph, ExternalFiles &files, std::string &error) {
  for (proto::TensorProto &tensor : *graph.mutable_initializer())
    if (tensor.data_location() == proto::TensorProto::EXTERNAL && !embedExternal(tensor, files, error)) {
      error = "initialiser '" + printableName(tensor.name()) + "' " + error;
      return false;
    }
  for (proto::SparseTensorProto &sparse : *graph.mutable_sparse_initializer())
    if (!embedSparse(sparse, files, error)) {
      error = "initialiser '" + printableName(sparse.values().name()) + "' " + error;
      return false;
    }
  return embedWeights(*graph.mutable_node(), files, error);
}

bool embedWeights(proto::ModelProto &model, ExternalFiles &files, std::string &error) {
  for (proto::FunctionProto &function : *model.mutable_functions())
    if (!embedWeights(*function.mutable_node(), files, error))
      return false;
  return embedWeights(*model.mutable_graph(), files, error);
}

} // namespace

struct ReducibleModel::State {
  proto::ModelProto model, candidate;

  /// The declared types of values, by name.
  static std::map<std::string, const proto::ValueInfoProto *> typesOf(const proto::GraphProto &graph) {
    std::map<std::string, const proto::ValueInfoProto *> types;
    for (const auto *list : {&graph.value_info(), &graph.output(), &graph.input()})
      for (const proto::ValueInfoProto &value : *list)
        if (value.has_type())
          types[value.name()] = &value;
    return types;
  }

  bool leaveOutNodes(size_t first, size_t last);
  bool leaveOutOutputs(size_t first, size_t last);
  bool takeBranch(size_t number);
  bool leaveOutDetours(size_t first, size_t last);
  bool leaveOutDetails(size_t first, size_t last);
  void tidy();
};

bool ReducibleModel::State::leaveOutNodes(size_t first, size_t last) {
  proto::GraphProto &graph = *candidate.mutable_graph();
  auto types = typesOf(model.graph());
  Names made, needed, kept, uses;
  for (auto [n, node] : llvm::enumerate(*graph.mutable_node())) {
    bool isLeftOut = n >= first && n < last;
    (isLeftOut ? made : kept).insert(node.output().begin(), node.output().end());
    addUses(node, isLeftOut ? needed : uses);
  }
  graph.mutable_node()->DeleteSubrange(static_cast<int>(first), static_cast<int>(last - first));
  removeIf(graph.mutable_output(), [&](const proto::ValueInfoProto &output) { return made.count(output.name()); });
  for (const std::string &name : made) {
    if (name.empty() || !uses.count(name))
      continue;
    auto type = types.find(name);
    if (type == types.end())
      return false;
    *graph.add_input() = *type->second;
  }
  for (const proto::ValueInfoProto &output : graph.output())
    uses.insert(output.name());
  for (const std::string &name : needed) {
    if (name.empty() || !kept.count(name) || uses.count(name))
      continue;
    proto::ValueInfoProto &output = *graph.add_output();
    output.set_name(name);
    if (auto type = types.find(name); type != types.end())
      output = *type->second;
  }
  return graph.output_size() > 0;
}

bool ReducibleModel::State::leaveOutOutputs(size_t first, size_t last) {
  auto *outputs = candidate.mutable_graph()->mutable_output();
  if (last - first >= static_cast<size_t>(outputs->size()))
    return false;
  outputs->DeleteSubrange(static_cast<int>(first), static_cast<int>(last - first));
  return true;
}

/// Branch `number` % 2 of the If `number` / 2 stands in its place.
bool ReducibleModel::State::takeBranch(size_t number) {
  proto::GraphProto &graph = *candidate.mutable_graph(), old = graph;
  graph.clear_node();
  size_t conditionals = 0;
  for (proto::NodeProto &node : *old.mutable_node()) {
    if (node.op_type() != "If" || conditionals++ != number / 2) {
      *graph.add_node() = std::move(node);
      continue;
    }
    for (proto::AttributeProto &attribute : *node.mutable_attribute()) {
      if (attribute.name() != (number % 2 ? "else_branch" : "then_branch"))
        continue;
      proto::GraphProto &branch = *attribute.mutable_g();
      if (branch.output_size() != node.output_size())
        return false;
      for (proto::TensorProto &tensor : *branch.mutable_initializer())
        *graph.add_initializer() = std::move(tensor);
      for (proto::SparseTensorProto &tensor : *branch.mutable_sparse_initializer())
        *graph.add_sparse_initializer() = std::move(tensor);
      for (proto::NodeProto &inner : *branch.mutable_node())
        *graph.add_node() = std::move(inner);
      // Where nothing makes it in the branch, an Identity has the name that the graph knows.
      for (const auto &[output, name] : llvm::zip(branch.output(), node.output())) {
        proto::NodeProto &identity = *graph.add_node();
        identity.set_op_type("Identity");
        identity.add_input(output.name());
        identity.add_output(name);
      }
    }
  }
  return true;
}

/// The types of values and initialisers, as texts that are equal where they are.
static std::map<std::string, std::string> typeTexts(const proto::GraphProto &graph) {
  std::map<std::string, std::string> texts;
  for (const proto::TensorProto &tensor : graph.initializer()) {
    proto::TypeProto type;
    type.mutable_tensor_type()->set_elem_type(tensor.data_type());
    for (int64_t size : tensor.dims())
      type.mutable_tensor_type()->mutable_shape()->add_dim()->set_dim_value(size);
    texts[tensor.name()] = type.SerializeAsString();
  }
  for (const auto &[name, value] : ReducibleModel::State::typesOf(graph))
    texts[name] = value->type().SerializeAsString();
  return texts;
}

bool ReducibleModel::State::leaveOutDetours(size_t first, size_t last) {
  std::vector<std::pair<proto::GraphProto *, proto::NodeProto *>> nodes;
  listNodes(*candidate.mutable_graph(), nodes);
  std::map<std::string, std::string> main = typeTexts(model.graph());
  auto typeIn = [&](const std::map<std::string, std::string> &inner, const std::string &name) {
    auto type = inner.find(name);
    if (type == inner.end() && (type = main.find(name)) == main.end())
      return std::string();
    return type->second;
  };
  bool isAnyLeft = false;
  for (size_t n = first; n < last; ++n) {
    auto [graph, node] = nodes[n];
    if (!node->output_size())
      continue;
    auto types = graph == candidate.mutable_graph() ? std::map<std::string, std::string>() : typeTexts(*graph);
    std::string result = typeIn(types, node->output(0));
    auto same = llvm::find_if(
        node->input(), [&](const std::string &input) { return !result.empty() && typeIn(types, input) == result; });
    if (same == node->input().end())
      continue;
    rename(*graph, node->output(0), std::string(*same));
    isAnyLeft = true;
  }
  return isAnyLeft;
}

bool ReducibleModel::State::leaveOutDetails(size_t first, size_t last) {
  std::vector<std::pair<proto::GraphProto *, proto::NodeProto *>> nodes;
  listNodes(*candidate.mutable_graph(), nodes);
  size_t place = 0;
  auto isLeftOut = [&] { return place++ >= first && place <= last; };
  for (auto [graph, node] : nodes) {
    removeIf(node->mutable_attribute(), [&](const proto::AttributeProto &attribute) {
      return isLeftOut() && !attribute.has_g() && !attribute.graphs_size();
    });
    if (node->input_size() && isLeftOut())
      node->mutable_input()->RemoveLast();
  }
  return true;
}

/// Leaves out what the candidate no longer needs.
void ReducibleModel::State::tidy() {
  trim(*candidate.mutable_graph());
  std::vector<std::pair<proto::GraphProto *, proto::NodeProto *>> nodes;
  listNodes(*candidate.mutable_graph(), nodes);
  std::set<std::pair<std::string, std::string>> called;
  for (auto [graph, node] : nodes)
    called.emplace(canonicalDomain(node->domain()), node->op_type());
  for (size_t before = 0; before != called.size();) { // a function may call another one
    before = called.size();
    for (const proto::FunctionProto &function : candidate.functions())
      if (called.count({canonicalDomain(function.domain()), function.name()}))
        for (const proto::NodeProto &node : function.node())
          called.emplace(canonicalDomain(node.domain()), node.op_type());
  }
  removeIf(candidate.mutable_functions(), [&](const proto::FunctionProto &function) {
    return !called.count({canonicalDomain(function.domain()), function.name()});
  });
}

ReducibleModel::ReducibleModel(std::unique_ptr<State> state) : state(std::move(state)) {}
ReducibleModel::~ReducibleModel() = default;

std::unique_ptr<ReducibleModel> ReducibleModel::read(mlir::MLIRContext *context, llvm::StringRef path,
                                                     ImportStatus &status) {
  Reporter reporter(context, path);
  std::unique_ptr<proto::ModelProto> model = readModelFile(reporter);
  ExternalFiles files(path);
  std::string error;
  if (model && !embedWeights(*model, files, error))
    reporter.invalid() << error;
  else if (model && model->ByteSizeLong() > INT32_MAX)
    reporter.unsupported() << "has " << model->ByteSizeLong() << " bytes with its weights; one file holds "
                           << INT32_MAX;
  status = reporter.getStatus();
  if (reporter.failed())
    return nullptr;
  removeComments(*model->mutable_graph());
  auto state = std::make_unique<State>();
  state->model = std::move(*model);
  state->candidate = state->model;
  return std::unique_ptr<ReducibleModel>(new ReducibleModel(std::move(state)));
}

size_t ReducibleModel::count(unsigned part) const {
  proto::GraphProto &graph = *state->model.mutable_graph();
  std::vector<std::pair<proto::GraphProto *, proto::NodeProto *>> nodes;
  listNodes(graph, nodes);
  switch (part) {
  case Nodes:
    return graph.node_size();
  case Outputs:
    return graph.output_size();
  case Branches:
    return 2 * llvm::count_if(graph.node(), [](const proto::NodeProto &node) { return node.op_type() == "If"; });
  case Detours:
    return nodes.size();
  default: {
    size_t details = 0;
    for (auto [inner, node] : nodes)
      details += node->attribute_size() + (node->input_size() > 0);
    return details;
  }
  }
}

bool ReducibleModel::leaveOut(unsigned part, size_t first, size_t last) {
  state->candidate = state->model;
  bool isModel = part == Nodes      ? state->leaveOutNodes(first, last)
                 : part == Outputs  ? state->leaveOutOutputs(first, last)
                 : part == Branches ? last == first + 1 && state->takeBranch(first)
                 : part == Detours  ? state->leaveOutDetours(first, last)
                                    : state->leaveOutDetails(first, last);
  if (isModel)
    state->tidy();
  return isModel;
}

std::string ReducibleModel::candidate() const { return state->candidate.SerializeAsString(); }
void ReducibleModel::accept() { state->model = state->candidate; }

static std::pair<size_t, size_t> sizeOf(proto::ModelProto &model) {
  std::vector<std::pair<proto::GraphProto *, proto::NodeProto *>> nodes;
  listNodes(*model.mutable_graph(), nodes);
  return {nodes.size(), model.ByteSizeLong()};
}

std::pair<size_t, size_t> ReducibleModel::size() const { return sizeOf(state->model); }
std::pair<size_t, size_t> ReducibleModel::candidateSize() const { return sizeOf(state->candidate); }

size_t ReducibleModel::countUntyped() const {
  auto types = State::typesOf(state->model.graph());
  size_t untyped = 0;
  for (const proto::NodeProto &node : state->model.graph().node())
    untyped +=
        llvm::count_if(node.output(), [&](const std::string &name) { return !name.empty() && !types.count(name); });
  return untyped;
}
