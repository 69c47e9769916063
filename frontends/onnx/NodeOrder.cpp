#include "frontends/onnx/NodeOrder.h"

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringMap.h"

#include <functional>
#include <queue>

using namespace attn::onnx;

/// Calls `use` for each name that the node and the graphs in it use: names of values in those graphs, too.
static void forEachUse(const proto::NodeProto &node, llvm::function_ref<void(llvm::StringRef)> use) {
  for (const std::string &input : node.input())
    use(input);
  auto visit = [&](const proto::GraphProto &graph) {
    for (const proto::NodeProto &inner : graph.node())
      forEachUse(inner, use);
    for (const proto::ValueInfoProto &output : graph.output())
      use(output.name());
  };
  for (const proto::AttributeProto &attribute : node.attribute()) {
    if (attribute.has_g())
      visit(attribute.g());
    for (const proto::GraphProto &graph : attribute.graphs())
      visit(graph);
  }
}

std::vector<const proto::NodeProto *>
attn::onnx::inOrder(const google::protobuf::RepeatedPtrField<proto::NodeProto> &nodes) {
  llvm::StringMap<int> makers;
  for (int n = 0; n < nodes.size(); ++n)
    for (const std::string &output : nodes[n].output())
      if (!output.empty())
        makers.try_emplace(output, n);
  // Users of each node, and how many nodes each one still waits for.
  std::vector<llvm::SmallVector<int, 2>> users(size_t(nodes.size()));
  std::vector<int> waits(size_t(nodes.size()));
  for (int n = 0; n < nodes.size(); ++n)
    forEachUse(nodes[n], [&](llvm::StringRef name) {
      auto maker = makers.find(name);
      if (maker == makers.end() || maker->second == n)
        return;
      users[size_t(maker->second)].push_back(n);
      ++waits[size_t(n)];
    });

  std::vector<const proto::NodeProto *> order;
  std::priority_queue<int, std::vector<int>, std::greater<>> ready;
  for (int n = 0; n < nodes.size(); ++n)
    if (!waits[size_t(n)])
      ready.push(n);
  while (!ready.empty()) {
    int n = ready.top();
    ready.pop();
    order.push_back(&nodes[n]);
    for (int user : users[size_t(n)])
      if (!--waits[size_t(user)])
        ready.push(user);
  }
  for (int n = 0; n < nodes.size() && order.size() < size_t(nodes.size()); ++n)
    if (waits[size_t(n)])
      order.push_back(&nodes[n]);
  return order;
}

void attn::onnx::removeUnused(proto::GraphProto &graph) {
  llvm::StringMap<int> makers;
  for (int n = 0; n < graph.node_size(); ++n)
    for (const std::string &output : graph.node(n).output())
      makers.try_emplace(output, n);
  std::vector<bool> isNeeded(size_t(graph.node_size()));
  llvm::SmallVector<int> open;
  auto need = [&](llvm::StringRef name) {
    auto maker = makers.find(name);
    if (name.empty() || maker == makers.end() || isNeeded[size_t(maker->second)])
      return;
    isNeeded[size_t(maker->second)] = true;
    open.push_back(maker->second);
  };
  for (const proto::ValueInfoProto &output : graph.output())
    need(output.name());
  while (!open.empty())
    forEachUse(graph.node(open.pop_back_val()), need);
  int kept = 0;
  for (int n = 0; n < graph.node_size(); ++n)
    if (isNeeded[size_t(n)])
      graph.mutable_node()->SwapElements(kept++, n);
  graph.mutable_node()->DeleteSubrange(kept, graph.node_size() - kept);
}
