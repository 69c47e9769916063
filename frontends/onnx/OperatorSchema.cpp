#include "frontends/onnx/OperatorSchema.h"
#include "dialects/attn/NodeLocation.h"
#include "llvm/ADT/StringExtras.h"

using namespace attn;
using namespace attn::onnx;

using AttributeType = proto::AttributeProto::AttributeType;
using Parameter = OperatorSchema::Parameter;

static const char *const kLines[] = {
#include "frontends/onnx/OperatorSchemas.inc"
};

//===----------------------------------------------------------------------===//
// Reading the table
//===----------------------------------------------------------------------===//

static uint64_t readMask(llvm::StringRef text) {
  uint64_t mask = 0;
  bool isWrong = text.getAsInteger(16, mask);
  assert(!isWrong && "the script writes numbers");
  (void)isWrong;
  return mask;
}

/// `name`, `name?`, `name*N` or `name+N`, and `:T` or `:=MASK` of an input.
static Parameter readParameter(llvm::StringRef text, const llvm::StringMap<uint64_t> &types) {
  Parameter result;
  auto [name, type] = text.split(':');
  if (type.consume_front("=")) {
    result.types = readMask(type);
  } else {
    result.type = type;
    result.types = types.lookup(type);
  }
  size_t end = name.find_first_of("?*+");
  result.name = name.take_front(end);
  llvm::StringRef option = name.substr(result.name.size());
  if (option.consume_front("?")) {
    result.option = OperatorSchema::Option::optional;
  } else if (!option.empty()) {
    result.option = option.front() == '*' ? OperatorSchema::Option::variadic : OperatorSchema::Option::mixed;
    option.drop_front().getAsInteger(10, result.least);
  }
  return result;
}

static AttributeType readKind(char letter) {
  using A = proto::AttributeProto;
  static constexpr std::pair<char, AttributeType> kinds[] = {
      {'f', A::FLOAT},      {'i', A::INT},         {'s', A::STRING},        {'t', A::TENSOR},        {'g', A::GRAPH},
      {'F', A::FLOATS},     {'I', A::INTS},        {'S', A::STRINGS},       {'T', A::TENSORS},       {'G', A::GRAPHS},
      {'p', A::TYPE_PROTO}, {'P', A::TYPE_PROTOS}, {'z', A::SPARSE_TENSOR}, {'Z', A::SPARSE_TENSORS}};
  return llvm::find_if(kinds, [&](const auto &kind) { return kind.first == letter; })->second;
}

static OperatorSchema readLine(llvm::StringRef line) {
  llvm::SmallVector<llvm::StringRef, 5> parts;
  line.split(parts, '|');
  OperatorSchema schema;
  auto [name, version] = parts[0].split(' ');
  schema.name = (name.rsplit('.').second + "-" + version).str();
  llvm::StringMap<uint64_t> types;
  for (llvm::StringRef type : llvm::split(parts[4], ' '))
    types[type.split('=').first] = type.empty() ? 0 : readMask(type.split('=').second);
  for (auto [part, parameters] : {std::pair(parts[1], &schema.inputs), std::pair(parts[2], &schema.outputs)})
    for (llvm::StringRef text : llvm::split(part, ' '))
      if (!text.empty())
        parameters->push_back(readParameter(text, types));
  for (llvm::StringRef text : llvm::split(parts[3], ' ')) {
    if (text.empty())
      continue;
    auto [attribute, kind] = text.split(':');
    schema.attributes.push_back({attribute, readKind(kind.front()), kind.ends_with("!")});
  }
  return schema;
}

const OperatorSchema *OperatorSchema::find(llvm::StringRef domain, llvm::StringRef op, int version) {
  static const llvm::StringMap<OperatorSchema> schemas = [] {
    llvm::StringMap<OperatorSchema> result;
    for (llvm::StringRef line : kLines)
      result[line.split('|').first] = readLine(line);
    return result;
  }();
  auto it = schemas.find((domain + "." + op + " " + llvm::Twine(version)).str());
  return it == schemas.end() ? nullptr : &it->second;
}

//===----------------------------------------------------------------------===//
// Checking nodes
//===----------------------------------------------------------------------===//

/// "2", "1 to 3" or "1 or more".
static std::string countText(llvm::ArrayRef<Parameter> parameters, size_t least) {
  std::string text = llvm::utostr(least);
  if (!parameters.empty() && parameters.back().isVariadic())
    return text + " or more";
  return parameters.size() == least ? text : text + " to " + llvm::utostr(parameters.size());
}

/// Whether `given` operands (without empty ones at the end) are as many as `parameters` ask for, none of which that has
/// to be there is "".
static bool checkCount(llvm::ArrayRef<int> given, llvm::ArrayRef<Parameter> parameters, const OperatorSchema &schema,
                       const char *what, mlir::Location loc, Reporter &reporter) {
  while (!given.empty() && given.back() == GraphNode::kNone)
    given = given.drop_back();
  bool isOpen = !parameters.empty() && parameters.back().isVariadic();
  size_t least = 0;
  for (auto [n, parameter] : llvm::enumerate(parameters))
    if (parameter.option == OperatorSchema::Option::single)
      least = n + 1;
    else if (parameter.isVariadic() && parameter.least)
      least = n + parameter.least;
  if (given.size() < least || (!isOpen && given.size() > parameters.size())) {
    reporter.invalid(loc) << "has " << given.size() << " " << what << (given.size() == 1 ? "" : "s") << ", "
                          << schema.name << " takes " << countText(parameters, least);
    return false;
  }
  for (auto [n, value] : llvm::enumerate(given)) {
    const Parameter &parameter = parameters[std::min(n, parameters.size() - 1)];
    if (value == GraphNode::kNone && parameter.option == OperatorSchema::Option::single) {
      reporter.invalid(loc) << "leaves out " << what << " " << n << " ('" << parameter.name << "'), without which "
                            << schema.name << " is not";
      return false;
    }
  }
  return true;
}

bool attn::onnx::checkSignature(const GraphNode &node, mlir::Location loc, Reporter &reporter) {
  const OperatorSchema &schema = *node.schema;
  if (!checkCount(node.inputs, schema.inputs, schema, "input", loc, reporter) ||
      !checkCount(node.outputs, schema.outputs, schema, "output", loc, reporter))
    return false;
  for (const auto &given : node.attributes) {
    llvm::StringRef name = given.first;
    const proto::AttributeProto *attribute = given.second;
    const auto *known = llvm::find_if(schema.attributes, [&](const auto &one) { return one.name == name; });
    if (known == schema.attributes.end()) {
      if (name.starts_with("__")) // a note of some tool
        continue;
      std::string names = llvm::join(
          llvm::map_range(schema.attributes, [](const auto &one) { return "'" + one.name.str() + "'"; }), ", ");
      reporter.invalid(loc) << "has an attribute '" << printableName(name) << "', " << schema.name << " has "
                            << (names.empty() ? "none" : names);
      return false;
    }
    if (attribute->type() != known->type) {
      reporter.invalid(loc) << "attribute '" << name << "' is "
                            << proto::AttributeProto::AttributeType_Name(attribute->type()) << ", expected "
                            << proto::AttributeProto::AttributeType_Name(known->type);
      return false;
    }
  }
  for (const OperatorSchema::Attribute &attribute : schema.attributes)
    if (attribute.isRequired &&
        llvm::none_of(node.attributes, [&](const auto &given) { return given.first == attribute.name; })) {
      reporter.invalid(loc) << "has no attribute '" << attribute.name << "', without which " << schema.name
                            << " is not";
      return false;
    }
  return true;
}

/// The data type's number in TensorProto.
static unsigned dataTypeNumber(DType dtype) {
  for (unsigned n = 1; n != 32; ++n)
    if (dtypeFromProto(n) == dtype)
      return n;
  llvm_unreachable("every DType is read from a file");
}

static std::string typeText(const Tensor &t) {
  return (t.sequence ? "a sequence of " + dtypeName(t.sequence->dtype) : dtypeName(t.dtype)).str();
}

/// The types of `parameter`, of whose operator exporters of bf16 models write more than the standard has: where it has
/// f32 and f16, bf16 is taken, too.
static uint64_t takenTypes(const Parameter &parameter) {
  constexpr uint64_t halfAndSingle = uint64_t(1) << proto::TensorProto::FLOAT16 | uint64_t(1)
                                                                                      << proto::TensorProto::FLOAT;
  bool takesBoth = (parameter.types & halfAndSingle) == halfAndSingle;
  return takesBoth ? parameter.types | uint64_t(1) << proto::TensorProto::BFLOAT16 : parameter.types;
}

/// The types of `mask` that the importer knows.
static std::string typesText(uint64_t mask) {
  std::string text;
  for (auto [offset, what] : {std::pair(0u, ""), std::pair(32u, "a sequence of ")})
    for (unsigned n = 1; n != 32; ++n)
      if (std::optional<DType> dtype = dtypeFromProto(n); dtype && mask >> (offset + n) & 1)
        text += (text.empty() ? "" : ", ") + (what + dtypeName(*dtype)).str();
  return text;
}

bool attn::onnx::checkTypes(const OperatorSchema &schema, llvm::ArrayRef<const Tensor *> inputs, mlir::Location loc,
                            Reporter &reporter) {
  llvm::StringMap<size_t> first; // input of a type parameter
  for (auto [n, input] : llvm::enumerate(inputs)) {
    if (!input)
      continue;
    const Parameter &parameter = schema.inputs[std::min(n, schema.inputs.size() - 1)];
    unsigned bit = input->sequence ? 32 + dataTypeNumber(input->sequence->dtype) : dataTypeNumber(input->dtype);
    if (!(takenTypes(parameter) >> bit & 1)) {
      reporter.invalid(loc) << "input " << n << " ('" << parameter.name << "') is " << typeText(*input) << ", "
                            << schema.name << " takes " << typesText(takenTypes(parameter));
      return false;
    }
    if (parameter.type.empty() || parameter.option == OperatorSchema::Option::mixed)
      continue;
    auto [it, fresh] = first.try_emplace(parameter.type, n);
    const Tensor &other = *inputs[it->second];
    if (!fresh && typeText(other) != typeText(*input)) {
      reporter.invalid(loc) << "input " << n << " ('" << parameter.name << "') is " << typeText(*input)
                            << ", but input " << it->second << ", of the same type in " << schema.name << ", is "
                            << typeText(other);
      return false;
    }
  }
  return true;
}
