#include "frontends/onnx/State.h"

using namespace mlir;
using namespace attn;
using namespace attn::onnx;

const Subgraph *Node::subgraph(StringRef name) {
  for (const auto &[key, graph] : impl.node.subgraphs)
    if (key == name)
      return graph.get();
  if (hasAttr(name))
    error() << "attribute '" << name << "' is no graph";
  else
    error() << "has no attribute '" << name << "'";
  return nullptr;
}

Operation *Node::enterRegion() { return impl.state.enterRegion(impl.loc); }
void Node::leaveRegion(Operation *region) { impl.state.leaveRegion(region); }
int64_t Node::maxLoopIterations() const { return impl.state.maxLoopIterations; }

FailureOr<std::vector<Tensor>> Node::importSubgraph(const Subgraph &graph, ArrayRef<Tensor> inputs) {
  if (graph.inputs.size() != inputs.size())
    return error() << "has a subgraph of " << graph.inputs.size() << " inputs, expected " << inputs.size(), failure();
  ImportState &state = impl.state;
  for (auto [number, input] : llvm::zip_equal(graph.inputs, inputs))
    state.values[number] = input;
  if (!state.importNodes(graph.nodes))
    return failure();
  std::vector<Tensor> outputs;
  for (auto [n, number] : llvm::enumerate(graph.outputs)) {
    if (!state.values[number]) {
      auto it = state.unusable.find(number);
      std::string why = it == state.unusable.end() ? "its operator does not make it" : it->second;
      return unsupported() << "output " << n << " of a subgraph: " << why, failure();
    }
    outputs.push_back(*state.values[number]);
  }
  return outputs;
}
