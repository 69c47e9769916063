#include "frontends/onnx/Entry.h"

using namespace mlir;
using namespace attn;
using namespace attn::onnx;

static proto::AttributeProto toProto(const OpAttribute &attribute) {
  proto::AttributeProto result;
  result.set_name(attribute.name.str());
  if (const auto *integer = std::get_if<int64_t>(&attribute.value)) {
    result.set_type(proto::AttributeProto::INT);
    result.set_i(*integer);
  } else if (const auto *number = std::get_if<double>(&attribute.value)) {
    result.set_type(proto::AttributeProto::FLOAT);
    result.set_f(float(*number));
  } else if (const auto *text = std::get_if<std::string>(&attribute.value)) {
    result.set_type(proto::AttributeProto::STRING);
    result.set_s(*text);
  } else if (const auto *integers = std::get_if<SmallVector<int64_t>>(&attribute.value)) {
    result.set_type(proto::AttributeProto::INTS);
    for (int64_t value : *integers)
      result.add_ints(value);
  } else {
    result.set_type(proto::AttributeProto::STRINGS);
    for (const std::string &value : std::get<SmallVector<std::string>>(attribute.value))
      result.add_strings(value);
  }
  return result;
}

FailureOr<std::vector<Tensor>> Operators::apply(StringRef op, ArrayRef<std::optional<Tensor>> inputs,
                                                ArrayRef<OpAttribute> attributes, size_t numOutputs, StringRef name,
                                                Location loc) {
  GraphNode node;
  node.name = name.str();
  node.op = op.str();
  node.import = registry.lookup("", op, kOperatorOpset, node.version);
  assert(node.import && "a front end asks for operators there are");
  std::vector<proto::AttributeProto> protos;
  for (const OpAttribute &attribute : attributes)
    protos.push_back(toProto(attribute));
  for (const proto::AttributeProto &attribute : protos)
    node.attributes.push_back({attribute.name(), &attribute});
  // The operands are values of the state while the operator is imported.
  size_t first = state.values.size();
  for (const std::optional<Tensor> &input : inputs) {
    node.inputs.push_back(input ? int(state.values.size()) : GraphNode::kNone);
    if (input)
      state.values.push_back(input);
  }
  size_t outputs = state.values.size();
  for (size_t i = 0; i < numOutputs; ++i)
    node.outputs.push_back(outputs + i);
  state.values.resize(outputs + numOutputs);
  bool imported = state.importNode(node, loc);
  std::vector<Tensor> results;
  for (size_t i = 0; imported && i < numOutputs; ++i) {
    if (!state.values[outputs + i]) {
      state.reporter.invalid(loc) << "has no output " << i;
      imported = false;
      break;
    }
    results.push_back(std::move(*state.values[outputs + i]));
  }
  state.values.resize(first);
  if (!imported)
    return failure();
  return results;
}

LogicalResult Operators::with(StringRef op, StringRef name, Location loc,
                              llvm::function_ref<LogicalResult(Node &)> fn) {
  GraphNode node;
  node.name = name.str();
  node.op = op.str();
  Node::Impl impl{state, node, loc, {}, false};
  Node api(impl);
  bool done = succeeded(fn(api));
  if (state.symbols.takeOverflow())
    api.error() << "a size or an index is beyond 64 bits, or too long an expression";
  return success(done && !impl.failed);
}
