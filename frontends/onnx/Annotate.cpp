#include "frontends/onnx/Annotate.h"
#include "dialects/attn/NodeLocation.h"
#include "frontends/onnx/Functions.h"
#include "frontends/onnx/ModelFile.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/Path.h"

using namespace attn;
using namespace attn::onnx;
namespace json = llvm::json;

namespace {

class Annotator {
public:
  Annotator(Reporter &reporter, const Annotations &annotations) : reporter(reporter), annotations(annotations) {}

  /// Writes what is said of the nodes of `graph` into them.
  void annotate(proto::GraphProto &graph) {
    for (proto::NodeProto &node : *graph.mutable_node()) {
      for (proto::AttributeProto &attribute : *node.mutable_attribute()) {
        if (attribute.has_g())
          annotate(*attribute.mutable_g());
        for (proto::GraphProto &inner : *attribute.mutable_graphs())
          annotate(inner);
      }
      for (const auto &[key, text] : factsOf(node)) {
        proto::StringStringEntryProto &entry = *node.add_metadata_props();
        entry.set_key("attnc." + key);
        entry.set_value(text);
        *node.mutable_doc_string() += (node.doc_string().empty() ? "" : "\n") + key + ": " + text;
      }
    }
  }

  /// Adds `graph`, and those inside of it, to `graphs`; the first one's name is `id`.
  void explore(const proto::GraphProto &graph, const std::string &id, json::Array &graphs) {
    size_t place = graphs.size();
    graphs.push_back(nullptr);
    std::map<std::string, std::pair<std::string, int>> makers; // of values: the node and which output
    json::Array nodes;
    readTypes(graph);
    for (const proto::ValueInfoProto &input : graph.input())
      if (makers.try_emplace(input.name(), "input " + input.name(), 0).second)
        nodes.push_back(json::Object{{"id", json::fixUTF8("input " + input.name())},
                                     {"label", json::fixUTF8(input.name())},
                                     {"namespace", ""},
                                     {"outputsMetadata", json::Array{output(0, input.name())}}});
    for (const auto &[n, node] : llvm::enumerate(graph.node()))
      for (const auto &[place, name] : llvm::enumerate(node.output()))
        makers[name] = {"node " + std::to_string(n), static_cast<int>(place)};
    for (const auto &[n, node] : llvm::enumerate(graph.node()))
      nodes.push_back(describe(node, "node " + std::to_string(n), id, makers, graphs));
    for (const proto::ValueInfoProto &result : graph.output())
      nodes.push_back(json::Object{{"id", json::fixUTF8("output " + result.name())},
                                   {"label", json::fixUTF8(result.name())},
                                   {"namespace", ""},
                                   {"incomingEdges", edges({result.name()}, makers)}});
    graphs[place] = json::Object{{"id", json::fixUTF8(id)}, {"nodes", std::move(nodes)}};
  }

private:
  std::string callOf(const proto::NodeProto &node) const {
    return nodeName(reporter.nodeLoc(nodeDisplayName(node, ""), node.op_type())).str();
  }

  const Annotations::Facts &factsOf(const proto::NodeProto &node) const {
    static const Annotations::Facts none;
    auto it = annotations.facts.find(callOf(node));
    return it == annotations.facts.end() ? none : it->second;
  }

  /// "a/b" of a node called "/a/b/Softmax".
  static std::string layerOf(llvm::StringRef name) {
    llvm::StringRef layer = name.rsplit('/').first;
    return layer == name ? "" : layer.ltrim('/').str();
  }

  std::string namespaceOf(const proto::NodeProto &node) const {
    auto group = annotations.groups.find(callOf(node));
    if (group == annotations.groups.end())
      return layerOf(node.name());
    // "node '/a/b/Softmax' (Softmax)"
    llvm::StringRef name = llvm::StringRef(group->second).split('\'').second.rsplit('\'').first;
    std::string layer = layerOf(name);
    return layer + (layer.empty() ? "" : "/") + "fused attention of " + name.rsplit('/').second.str() +
           (layer.empty() ? name.str() : "");
  }

  static json::Object entry(llvm::StringRef key, llvm::StringRef text) {
    return json::Object{{"key", json::fixUTF8(key)}, {"value", json::fixUTF8(text)}};
  }

  /// What `attribute` holds, where it is short enough to read.
  static std::string textOf(const proto::AttributeProto &attribute) {
    std::string text;
    llvm::raw_string_ostream os(text);
    constexpr int kMost = 64;
    auto list = [&](const auto &values) {
      if (values.size() > kMost)
        os << values.size() << " numbers";
      else
        llvm::interleaveComma(values, os);
    };
    switch (attribute.type()) {
    case proto::AttributeProto::FLOAT:
      os << attribute.f();
      break;
    case proto::AttributeProto::INT:
      os << attribute.i();
      break;
    case proto::AttributeProto::STRING:
      os << printableName(attribute.s());
      break;
    case proto::AttributeProto::FLOATS:
      list(attribute.floats());
      break;
    case proto::AttributeProto::INTS:
      list(attribute.ints());
      break;
    default:
      break;
    }
    return text;
  }

  void readTypes(const proto::GraphProto &graph) {
    auto note = [&](const std::string &name, llvm::ArrayRef<std::string> sizes) {
      types[name] = "[" + llvm::join(sizes, ", ") + "]";
    };
    for (const auto *list : {&graph.input(), &graph.output(), &graph.value_info()})
      for (const proto::ValueInfoProto &value : *list) {
        if (!value.type().has_tensor_type() || !value.type().tensor_type().has_shape())
          continue;
        std::vector<std::string> sizes;
        for (const auto &dim : value.type().tensor_type().shape().dim())
          sizes.push_back(dim.has_dim_value()       ? std::to_string(dim.dim_value())
                          : dim.dim_param().empty() ? "?"
                                                    : printableName(dim.dim_param()));
        note(value.name(), sizes);
      }
    for (const proto::TensorProto &tensor : graph.initializer()) {
      std::vector<std::string> sizes;
      for (int64_t size : tensor.dims())
        sizes.push_back(std::to_string(size));
      note(tensor.name(), sizes);
    }
  }

  json::Object output(int number, const std::string &name) const {
    json::Array attrs{entry("name", name)};
    if (auto type = types.find(name); type != types.end())
      attrs.push_back(entry("shape", type->second));
    return json::Object{{"id", std::to_string(number)}, {"attrs", std::move(attrs)}};
  }

  static json::Array edges(const std::vector<std::string> &inputs,
                           const std::map<std::string, std::pair<std::string, int>> &makers) {
    json::Array list;
    for (const auto &[n, name] : llvm::enumerate(inputs))
      if (auto maker = makers.find(name); maker != makers.end())
        list.push_back(json::Object{{"sourceNodeId", json::fixUTF8(maker->second.first)},
                                    {"sourceNodeOutputId", std::to_string(maker->second.second)},
                                    {"targetNodeInputId", std::to_string(n)}});
    return list;
  }

  json::Object describe(const proto::NodeProto &node, const std::string &id, const std::string &graphId,
                        const std::map<std::string, std::pair<std::string, int>> &makers, json::Array &graphs) {
    json::Array attrs{entry("name", nodeDisplayName(node, ""))}, outputs, subgraphs;
    for (const auto &[key, text] : factsOf(node))
      attrs.push_back(entry("attnc: " + key, text));
    for (const proto::AttributeProto &attribute : node.attribute()) {
      if (std::string text = textOf(attribute); !text.empty())
        attrs.push_back(entry(attribute.name(), text));
      if (!attribute.has_g())
        continue;
      std::string inner = graphId + "/" + nodeDisplayName(node, "") + "/" + attribute.name();
      subgraphs.push_back(json::fixUTF8(inner));
      explore(attribute.g(), inner, graphs);
    }
    for (const std::string &name : node.input())
      if (auto type = types.find(name); type != types.end() && !makers.count(name))
        attrs.push_back(entry("stored", name + " " + type->second));
    for (const auto &[n, name] : llvm::enumerate(node.output()))
      outputs.push_back(output(static_cast<int>(n), name));
    json::Object object{{"id", id},
                        {"label", json::fixUTF8(node.op_type())},
                        {"namespace", json::fixUTF8(namespaceOf(node))},
                        {"attrs", std::move(attrs)},
                        {"incomingEdges", edges({node.input().begin(), node.input().end()}, makers)},
                        {"outputsMetadata", std::move(outputs)}};
    if (!subgraphs.empty())
      object["subgraphIds"] = std::move(subgraphs);
    if (annotations.groups.count(callOf(node)))
      object["style"] = json::Object{{"backgroundColor", "#d7f0dd"}};
    return object;
  }

  Reporter &reporter;
  const Annotations &annotations;
  std::map<std::string, std::string> types; ///< shapes of values
};

} // namespace

std::optional<std::string> attn::onnx::annotateModel(mlir::MLIRContext *context, llvm::StringRef path,
                                                     const Annotations &annotations) {
  Reporter reporter(context, path);
  std::unique_ptr<proto::ModelProto> model = readModelFile(reporter);
  if (!model)
    return std::nullopt;
  Annotator(reporter, annotations).annotate(*model->mutable_graph());
  std::string bytes;
  if (!model->SerializeToString(&bytes)) {
    reporter.request() << "is too large to be written once more (2 GiB)";
    return std::nullopt;
  }
  return bytes;
}

std::optional<std::string> attn::onnx::exploreModel(mlir::MLIRContext *context, llvm::StringRef path,
                                                    const Annotations &annotations) {
  Reporter reporter(context, path);
  std::unique_ptr<proto::ModelProto> model = readModelFile(reporter);
  if (!model)
    return std::nullopt;
  json::Array graphs;
  std::string name = model->graph().name();
  Annotator(reporter, annotations).explore(model->graph(), name.empty() ? "model" : name, graphs);
  std::string text;
  llvm::raw_string_ostream(text) << json::Value(std::move(graphs)) << '\n';
  return text;
}
