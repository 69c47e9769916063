#include "frontends/onnx/Functions.h"
#include "dialects/attn/NodeLocation.h"
#include "frontends/onnx/Limits.h"

using namespace attn;
using namespace attn::onnx;

std::string attn::onnx::nodeDisplayName(const proto::NodeProto &node, const std::string &path) {
  std::string name = path + (node.name().empty() && node.output_size() ? node.output(0) : node.name());
  if (name.size() > kMaxNameBytes)
    name.resize(kMaxNameBytes);
  return name;
}

void Functions::countNames(const Nodes &nodes, unsigned uses, unsigned nesting) {
  if (nesting > kMaxNesting) // which check reports
    return;
  for (const proto::NodeProto &node : nodes) {
    names[nodeDisplayName(node, "")] += uses;
    for (const proto::AttributeProto &attribute : node.attribute()) {
      if (attribute.has_g())
        countNames(attribute.g().node(), uses, nesting + 1);
      for (const proto::GraphProto &graph : attribute.graphs())
        countNames(graph.node(), uses, nesting + 1);
    }
  }
}

std::string Functions::nameOf(const proto::NodeProto &node, const std::string &path) const {
  std::string own = nodeDisplayName(node, "");
  return names.lookup(own) == 1 ? own : nodeDisplayName(node, path);
}

bool Functions::read(const proto::ModelProto &model) {
  countNames(model.graph().node(), 1, 0);
  for (const proto::FunctionProto &proto : model.functions())
    countNames(proto.node(), 2, 0); // each call has one
  for (const proto::FunctionProto &proto : model.functions()) {
    auto [it, fresh] = functions.try_emplace({canonicalDomain(proto.domain()), proto.name(), proto.overload()});
    if (!fresh) {
      reporter.invalid() << "has two functions '" << printableName(proto.name()) << "' of domain '"
                         << printableName(proto.domain()) << "'";
      return false;
    }
    it->second.proto = &proto;
    if (!readOpsetImports(proto.opset_import(), reporter, it->second.opsets))
      return false;
  }
  return true;
}

const Function *Functions::find(const proto::NodeProto &node) const {
  auto it = functions.find({canonicalDomain(node.domain()), node.op_type(), node.overload()});
  return it == functions.end() ? nullptr : &it->second;
}

bool Functions::checkCall(Function &function, mlir::Location loc, unsigned nesting, Size &size) {
  const proto::FunctionProto &proto = *function.proto;
  if (function.state == Function::Active) {
    reporter.invalid(loc) << "function '" << printableName(proto.name()) << "' calls itself";
    return false;
  }
  if (function.state == Function::Unseen) {
    function.state = Function::Active;
    Size body;
    if (!checkNodes(proto.node(), function.opsets, printableName(proto.name()) + "/", nesting + 1, body))
      return false;
    function.nodes = body.nodes;
    function.depth = body.depth + 1;
    function.state = Function::Done;
  }
  if (nesting + function.depth > kMaxNesting) {
    reporter.invalid(loc) << "functions and subgraphs nest deeper than the limit of " << kMaxNesting;
    return false;
  }
  size.nodes += function.nodes + proto.output_size();
  size.depth = std::max(size.depth, function.depth);
  return true;
}

bool Functions::checkNames(const proto::NodeProto &node, mlir::Location loc) {
  for (llvm::StringRef text :
       {llvm::StringRef(node.name()), llvm::StringRef(node.op_type()), llvm::StringRef(node.domain())}) {
    if (!isUtf8(text)) {
      reporter.invalid(loc) << "has a name that is not UTF-8: '" << printableName(text) << "'";
      return false;
    }
    if (text.size() > kMaxNameBytes) {
      reporter.invalid() << "has a node with a name of " << text.size() << " bytes, the limit is " << kMaxNameBytes;
      return false;
    }
  }
  for (const auto *names : {&node.input(), &node.output()}) {
    if (size_t(names->size()) > kMaxOperands) {
      reporter.invalid(loc) << "has " << names->size() << " operands, the limit is " << kMaxOperands;
      return false;
    }
    for (const std::string &value : *names) {
      if (!isUtf8(value)) {
        reporter.invalid(loc) << "has an operand whose name is not UTF-8: '" << printableName(value) << "'";
        return false;
      }
      if (value.size() > kMaxNameBytes) {
        reporter.invalid(loc) << "has an operand whose name has " << value.size() << " bytes, the limit is "
                              << kMaxNameBytes;
        return false;
      }
    }
  }
  if (node.op_type().empty()) {
    reporter.invalid(loc) << "has no operator";
    return false;
  }
  return true;
}

bool Functions::checkNode(const proto::NodeProto &node, const OpsetImports &opsets, const std::string &path,
                          unsigned nesting, Size &size) {
  std::string name = nameOf(node, path);
  mlir::Location loc = reporter.nodeLoc(name, node.op_type());
  if (!checkNames(node, loc))
    return false;
  ++size.nodes;
  auto called = functions.find({canonicalDomain(node.domain()), node.op_type(), node.overload()});
  if (called != functions.end()) {
    if (!checkCall(called->second, loc, nesting, size))
      return false;
  } else {
    std::string domain = canonicalDomain(node.domain());
    std::optional<int> opset = opsetOf(opsets, domain);
    int version;
    if (!opset) {
      reporter.invalid(loc) << "is of the default domain, of which the model imports no version";
      return false;
    }
    if (!registry.lookup(domain, node.op_type(), *opset, version)) {
      std::string op = (domain.empty() ? "" : printableName(domain) + ".") + printableName(node.op_type());
      unsupported[op].push_back(printableName(name));
    }
  }
  // Subgraphs are part of the nesting and the count, and their operators are
  // listed with the others.
  for (const proto::AttributeProto &attribute : node.attribute()) {
    auto visit = [&](const proto::GraphProto &graph) {
      if (nesting + 1 > kMaxNesting) {
        reporter.invalid(loc) << "functions and subgraphs nest deeper than the limit of " << kMaxNesting;
        return false;
      }
      Size inner;
      if (!checkNodes(graph.node(), opsets, name + "/" + attribute.name() + "/", nesting + 1, inner))
        return false;
      size.nodes += inner.nodes;
      size.depth = std::max(size.depth, inner.depth + 1);
      return true;
    };
    if (attribute.has_g() && !visit(attribute.g()))
      return false;
    for (const proto::GraphProto &graph : attribute.graphs())
      if (!visit(graph))
        return false;
  }
  if (size.nodes > kMaxNodes) {
    reporter.invalid() << "has more than " << kMaxNodes << " nodes with its functions inlined";
    return false;
  }
  return true;
}

bool Functions::checkNodes(const Nodes &nodes, const OpsetImports &opsets, const std::string &path, unsigned nesting,
                           Size &size) {
  if (nesting > kMaxNesting) {
    reporter.invalid() << "functions and subgraphs nest deeper than the limit of " << kMaxNesting;
    return false;
  }
  for (const proto::NodeProto &node : nodes)
    if (!checkNode(node, opsets, path, nesting, size))
      return false;
  return true;
}

/// The supported operator that is spelled most like `name`, as a user would write it, or "". Far guesses confuse more
/// than they help.
static std::string nearestOperator(const OpRegistry &registry, llvm::StringRef name) {
  std::string nearest;
  size_t length = name.size() - (name.rfind('.') + 1); // npos + 1 is 0
  unsigned best = std::min<size_t>(2, length / 3);
  for (const auto &[key, versions] : registry.entries()) {
    std::string known = (key.first.empty() ? "" : key.first + ".") + key.second;
    unsigned distance = name.edit_distance(known, /*AllowReplacements=*/true, best);
    if (distance > best || (distance == best && !nearest.empty()) || name == known)
      continue;
    best = distance;
    nearest = known;
  }
  return nearest;
}

void Functions::reportUnsupported() {
  // Names of at most this many nodes an operator.
  static constexpr size_t kMaxListed = 8;
  std::string text;
  for (const auto &[op, nodes] : unsupported) {
    text += (text.empty() ? "" : "; ") + op + (nodes.size() == 1 ? " (node" : " (nodes");
    for (size_t i = 0; i < std::min(nodes.size(), kMaxListed); ++i)
      text += (i ? ", '" : " '") + nodes[i] + "'";
    if (nodes.size() > kMaxListed)
      text += " and " + std::to_string(nodes.size() - kMaxListed) + " more";
    text += ")";
  }
  mlir::InFlightDiagnostic error = reporter.unsupported();
  error << "uses " << unsupported.size() << (unsupported.size() == 1 ? " operator that is" : " operators that are")
        << " not supported: " << text;
  if (llvm::any_of(unsupported,
                   [](const auto &row) { return llvm::StringRef(row.first).starts_with("com.microsoft.nchwc."); }))
    error.attachNote()
        << "ONNX Runtime laid it out for the processor on which it was saved (ORT_ENABLE_ALL), and the "
           "file does not say which; save it with ORT_ENABLE_EXTENDED at most, which is opt_level=2 of its "
           "transformer optimiser";
  else
    error.attachNote() << "docs/operators.md lists what is supported; a function of the operator's name in the model "
                          "(ModelProto.functions) can define it by these operators";
  for (const auto &[op, nodes] : unsupported)
    if (std::string known = nearestOperator(registry, op); !known.empty())
      error.attachNote() << "'" << op << "': did you mean '" << known << "'?";
}

bool Functions::check(const proto::ModelProto &model, const OpsetImports &opsets) {
  Size size;
  if (!checkNodes(model.graph().node(), opsets, "", 0, size))
    return false;
  if (!unsupported.empty())
    reportUnsupported();
  return unsupported.empty();
}
