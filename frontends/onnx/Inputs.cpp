#include "frontends/onnx/Inputs.h"
#include "dialects/attn/NodeLocation.h"
#include "frontends/onnx/Limits.h"
#include "frontends/onnx/NodeOrder.h"
#include "frontends/onnx/Payload.h"
#include "llvm/ADT/StringSet.h"
#include <set>

using namespace attn;
using namespace attn::onnx;

namespace {
class InputReader {
public:
  InputReader(const Graph &graph, const ImportOptions &options, Reporter &reporter)
      : graph(graph), options(options), reporter(reporter) {}

  bool read(int value, const proto::ValueInfoProto &info, std::vector<InputSpec> &specs);
  bool applyShape(InputSpec &spec, llvm::ArrayRef<int64_t> shape, bool declared);
  void separateMasks(std::vector<InputSpec> &specs);
  bool applyDims(std::vector<InputSpec> &specs);
  bool checkRanges(const std::vector<InputSpec> &specs);

private:
  bool readType(const proto::TypeProto &type, InputSpec &spec);
  bool readShape(const proto::TypeProto::Tensor &type, InputSpec &spec);

  /// "not supported", with the name of the first node that uses `value`.
  mlir::InFlightDiagnostic unsupported(const InputSpec &spec) {
    auto user =
        llvm::find_if(graph.nodes, [&](const GraphNode &node) { return llvm::is_contained(node.inputs, spec.value); });
    bool isUsed = user != graph.nodes.end();
    auto diagnostic = reporter.unsupported(isUsed ? reporter.nodeLoc(user->name, user->op) : reporter.fileLoc());
    diagnostic << "input '" << printableName(spec.name) << (isUsed ? "' " : "', which no node uses, ");
    return diagnostic;
  }
  std::string input(const InputSpec &spec) { return "input '" + printableName(spec.name) + "' "; }

  const Graph &graph;
  const ImportOptions &options;
  Reporter &reporter;
  std::map<std::string, int64_t> constants; // named dimensions with a size
};
} // namespace

bool InputReader::readType(const proto::TypeProto &info, InputSpec &spec) {
  if (!info.has_tensor_type()) {
    bool other = info.value_case() != proto::TypeProto::VALUE_NOT_SET;
    if (other)
      unsupported(spec) << "is neither a tensor nor a sequence of tensors; maps and sparse tensors are not supported";
    else
      reporter.invalid() << input(spec) << "has no type";
    return false;
  }
  int64_t type = info.tensor_type().elem_type();
  std::optional<DType> dtype = dtypeFromProto(type);
  if (dtype) {
    spec.dtype = *dtype;
    return true;
  }
  if (std::string name = dataTypeName(type); !name.empty())
    unsupported(spec) << "has element type " << name << ", which is not supported";
  else
    reporter.invalid() << input(spec) << "has the unknown element type " << type;
  return false;
}

bool InputReader::applyShape(InputSpec &spec, llvm::ArrayRef<int64_t> shape, bool declared) {
  if (!declared)
    spec.dims.resize(shape.size());
  if (spec.dims.empty() && llvm::all_of(shape, [](int64_t size) { return size == 1; }))
    return true; // a scalar, as the runtime takes one
  if (shape.size() != spec.dims.size()) {
    reporter.request() << input(spec) << "has " << spec.dims.size() << " dimensions, but --shape gives "
                       << shape.size();
    return false;
  }
  for (auto [n, size] : llvm::enumerate(shape)) {
    InputDim &dim = spec.dims[n];
    if (size == kOwnSize)
      dim.name.clear();
    if (size < 0) // as the model has it
      continue;
    if (dim.size && *dim.size != size) {
      reporter.request() << input(spec) << "has size " << *dim.size << " in dimension " << n << ", but --shape gives "
                         << size;
      return false;
    }
    dim.size = size;
    if (dim.name.empty())
      continue;
    auto [it, fresh] = constants.try_emplace(dim.name, size);
    if (!fresh && it->second != size) {
      reporter.request() << "dimension '" << printableName(dim.name) << "' is given two sizes, " << it->second
                         << " and " << size;
      return false;
    }
  }
  return true;
}

/// torch.export writes sizes that it knows as names, "8", where it names others. Some name dimensions by their places.
static std::optional<int64_t> sizeOfName(const std::string &name, size_t place) {
  uint32_t number = 0;
  bool isSize = !llvm::StringRef(name).getAsInteger(10, number) && std::to_string(number) == name && number > 1;
  return isSize && number != place ? std::optional<int64_t>(number) : std::nullopt;
}

bool InputReader::readShape(const proto::TypeProto::Tensor &type, InputSpec &spec) {
  auto given = options.shapes.find(spec.name);
  size_t rank = type.has_shape() ? type.shape().dim_size() : given != options.shapes.end() ? given->second.size() : 0;
  if (!type.has_shape() && given == options.shapes.end() && spec.part == InputSpec::Part::Stack) {
    unsupported(spec) << "is a sequence of tensors without a shape; give each, as in --shape="
                      << printableName(spec.name) << ".0:2x3";
    return false;
  }
  if (!type.has_shape() && given == options.shapes.end()) {
    reporter.invalid() << input(spec)
                       << "has no shape in the model; give one, as in --shape=" << printableName(spec.name) << ":2x3";
    return false;
  }
  if (type.has_shape() && spec.part == InputSpec::Part::Stack)
    ++rank;
  if (rank == 0 && spec.part == InputSpec::Part::Stack) {
    reporter.request() << input(spec) << "is a sequence of tensors, whose number --shape=" << printableName(spec.name)
                       << ":... gives before their sizes";
    return false;
  }
  if (rank > kMaxRank) {
    reporter.invalid() << input(spec) << "has " << rank << " dimensions, the limit is " << kMaxRank;
    return false;
  }
  if (spec.part == InputSpec::Part::Stack)
    spec.dims.emplace_back(); // how many tensors there are
  for (const auto &dim : type.shape().dim()) {
    InputDim &result = spec.dims.emplace_back();
    if (dim.has_dim_value() && dim.dim_value() < 0) {
      reporter.invalid() << input(spec) << "has a dimension of size " << dim.dim_value();
      return false;
    }
    if (dim.dim_param().size() > kMaxNameBytes) {
      reporter.invalid() << input(spec) << "has a dimension whose name has " << dim.dim_param().size()
                         << " bytes, the limit is " << kMaxNameBytes;
      return false;
    }
    if (!isUtf8(dim.dim_param())) {
      reporter.invalid() << input(spec) << "has a dimension whose name is not UTF-8: '"
                         << printableName(dim.dim_param()) << "'";
      return false;
    }
    if (spec.part != InputSpec::Part::Item) // the name says a size of each tensor, and not of all
      result.name = dim.dim_param();
    if (dim.has_dim_value())
      result.size = dim.dim_value();
    else if (given == options.shapes.end() && !options.dims.count(result.name) && !options.dimRanges.count(result.name))
      result.size = sizeOfName(result.name, spec.dims.size() - 1);
  }
  return given == options.shapes.end() || applyShape(spec, given->second, type.has_shape());
}

bool InputReader::read(int value, const proto::ValueInfoProto &info, std::vector<InputSpec> &specs) {
  const proto::TypeProto *type = &info.type();
  bool isOptional = type->has_optional_type();
  if (options.absent.count(info.name())) {
    if (!isOptional)
      reporter.request() << "input '" << printableName(info.name()) << "', which --absent names, is not optional";
    return isOptional;
  }
  if (isOptional)
    type = &type->optional_type().elem_type();
  auto add = [&](InputSpec::Part part, const std::string &name) {
    InputSpec &spec = specs.emplace_back();
    spec.value = value;
    spec.part = part;
    spec.name = name;
    return readType(*type, spec) && readShape(type->tensor_type(), spec);
  };
  if (!type->has_sequence_type())
    return add(InputSpec::Part::Whole, info.name());
  type = &type->sequence_type().elem_type();
  auto item = [&](size_t n) { return info.name() + "." + std::to_string(n); };
  if (!options.shapes.count(item(0)))
    return add(InputSpec::Part::Stack, info.name());
  for (size_t n = 0; options.shapes.count(item(n)); ++n)
    if (!add(InputSpec::Part::Item, item(n)))
      return false;
  return true;
}

/// What may be meant instead of a dimension that no input has.
static std::string otherDims(const std::vector<InputSpec> &specs) {
  std::string names, nameless;
  std::set<std::string> listed;
  for (const InputSpec &spec : specs)
    for (auto [n, dim] : llvm::enumerate(spec.dims)) {
      if (dim.size || (!dim.name.empty() && (listed.size() == 8 || !listed.insert(dim.name).second)))
        continue;
      if (!dim.name.empty()) {
        names += (names.empty() ? "'" : ", '") + printableName(dim.name) + "'";
      } else if (nameless.empty()) {
        std::string shape;
        for (size_t i = 0; i < spec.dims.size(); ++i)
          shape += (i ? "x" : "") + std::string(i == n ? "N" : "?");
        nameless = ", and one without a name is set as in --shape=" + printableName(spec.name) + ":" + shape;
      }
    }
  if (names.empty())
    return nameless.empty() ? "; no dimension is open" : "; no open dimension has a name" + nameless;
  return (listed.size() == 1 ? "; its open dimension is " : "; its open dimensions are ") + names + nameless;
}

/// Ranges name dimensions that the model has; a size from elsewhere lies inside.
bool InputReader::checkRanges(const std::vector<InputSpec> &specs) {
  for (const auto &[name, range] : options.dimRanges) {
    bool known = false;
    for (const InputSpec &spec : specs)
      for (const InputDim &dim : spec.dims) {
        if (dim.name != name)
          continue;
        known = true;
        if (dim.size && (*dim.size < range.first || *dim.size > range.second)) {
          reporter.request() << "dimension '" << printableName(name) << "' has size " << *dim.size
                             << ", but --dim bounds it to " << range.first << ".." << range.second;
          return false;
        }
      }
    if (!known && !options.isOneOfSeveral) {
      reporter.request() << "has no dimension '" << printableName(name) << "', which --dim bounds to " << range.first
                         << ".." << range.second << otherDims(specs);
      return false;
    }
  }
  return true;
}

/// Takes the names of sizes away that exporters gave to the columns of masks by mistake.
void InputReader::separateMasks(std::vector<InputSpec> &specs) {
  for (InputSpec &mask : specs) {
    if (!options.masks.count(mask.name) || mask.dims.size() < 2)
      continue;
    std::string &name = mask.dims.back().name;
    bool isOther = llvm::any_of(specs, [&](const InputSpec &spec) {
      size_t rank = spec.dims.size();
      return llvm::any_of(llvm::enumerate(spec.dims), [&, rank](auto dim) {
        return &dim.value() != &mask.dims.back() && dim.value().name == name && (rank > 2 || dim.index() + 1 < rank);
      });
    });
    if (isOther)
      name.clear();
  }
}

bool InputReader::applyDims(std::vector<InputSpec> &specs) {
  for (const auto &[name, size] : options.dims) {
    bool known = llvm::any_of(specs, [&, name = name](const InputSpec &spec) {
      return llvm::any_of(spec.dims, [&](const InputDim &dim) { return dim.name == name; });
    });
    if (!known && options.isOneOfSeveral && size >= 0)
      continue;
    if (!known || size < 0) {
      if (!known)
        reporter.request() << "has no dimension '" << printableName(name) << "', which --dim sets to " << size
                           << otherDims(specs);
      else
        reporter.request() << "--dim gives dimension '" << printableName(name) << "' the size " << size;
      return false;
    }
    auto [it, fresh] = constants.try_emplace(name, size);
    if (!fresh && it->second != size) {
      reporter.request() << "dimension '" << printableName(name) << "' is given two sizes, " << it->second << " and "
                         << size;
      return false;
    }
  }
  for (InputSpec &spec : specs) {
    llvm::SmallVector<int64_t> known;
    if (options.singles.count(spec.name) && !spec.dims.empty() && !spec.dims.back().size)
      spec.dims.back().size = 1;
    for (InputDim &dim : spec.dims) {
      if (auto it = constants.find(dim.name); !dim.size && !dim.name.empty() && it != constants.end())
        dim.size = it->second;
      if (dim.size)
        known.push_back(*dim.size);
    }
    if (!checkedBytes(known, dtypeBytes(spec.dtype))) {
      reporter.invalid() << input(spec) << "of shape " << shapeText(known) << " is larger than the limit of "
                         << kMaxTensorBytes << " bytes";
      return false;
    }
  }
  return true;
}

/// "; inputs are 'a', 'b'", or as many of them as one reads.
static std::string listNames(llvm::StringRef what, const InputNames::Names &names) {
  constexpr size_t kMostListed = 32;
  std::string text;
  for (const std::string &name : names.getArrayRef().take_front(kMostListed))
    text += (text.empty() ? "'" : ", '") + printableName(name) + "'";
  if (names.size() > kMostListed)
    text += " and " + std::to_string(names.size() - kMostListed) + " more";
  return text.empty() ? ("; there are no " + what).str() : ("; " + what + " are " + text).str();
}

static std::string findUnknownOutput(const ImportOptions &options, const InputNames &names) {
  for (const std::string &name : options.outputs)
    if (!names.outputs.contains(name))
      return "output '" + printableName(name) + "', which --keep-output names" + listNames("outputs", names.outputs);
  return "";
}

static std::string findUnknownInput(const ImportOptions &options, const InputNames &names) {
  for (const auto &[name, shape] : options.shapes)
    if (!names.tensors.contains(name))
      return "input '" + printableName(name) + "', to which --shape gives " + shapeText(shape) +
             listNames("inputs", names.tensors);
  for (const std::string &name : options.absent)
    if (!names.inputs.contains(name))
      return "input '" + printableName(name) + "', which --absent names" + listNames("inputs", names.inputs);
  return "";
}

std::string attn::onnx::findUnknownName(const ImportOptions &options, const InputNames &names) {
  for (const auto &[name, size] : options.dims)
    if (!names.dims.contains(name))
      return "dimension '" + printableName(name) + "', which --dim sets to " + std::to_string(size) +
             listNames("named dimensions", names.dims);
  for (const auto &[name, range] : options.dimRanges)
    if (!names.dims.contains(name))
      return "dimension '" + printableName(name) + "', which --dim bounds to " + std::to_string(range.first) + ".." +
             std::to_string(range.second) + listNames("named dimensions", names.dims);
  std::string unknown = findUnknownOutput(options, names);
  return unknown.empty() ? findUnknownInput(options, names) : unknown;
}

bool attn::onnx::keepOutputs(proto::GraphProto &graph, const ImportOptions &options, Reporter &reporter) {
  if (options.outputs.empty())
    return true;
  InputNames own, &names = options.names ? *options.names : own;
  bool keepsAny = false;
  for (const proto::ValueInfoProto &output : graph.output()) {
    names.outputs.insert(output.name());
    keepsAny |= options.outputs.count(output.name()) != 0;
  }
  if (std::string unknown = options.isOneOfSeveral ? "" : findUnknownOutput(options, names); !unknown.empty()) {
    reporter.request() << "has no " << unknown;
    return false;
  }
  if (!keepsAny) // those of another model
    return true;
  auto &outputs = *graph.mutable_output();
  outputs.erase(std::remove_if(outputs.begin(), outputs.end(),
                               [&](const auto &output) { return options.outputs.count(output.name()) == 0; }),
                outputs.end());
  removeUnused(graph);
  return true;
}

std::optional<std::vector<InputSpec>> attn::onnx::readInputs(const Graph &graph, const ImportOptions &options,
                                                             Reporter &reporter) {
  InputReader reader(graph, options, reporter);
  std::vector<InputSpec> specs;
  for (auto [value, info] : graph.inputs)
    if (!reader.read(value, *info, specs))
      return std::nullopt;
  llvm::StringSet<> names;
  for (const InputSpec &spec : specs)
    if (!names.insert(spec.name).second) {
      reporter.request() << "has two inputs '" << printableName(spec.name) << "': one is a tensor of a sequence";
      return std::nullopt;
    }
  InputNames own, &found = options.names ? *options.names : own;
  for (const auto &input : graph.inputs)
    found.inputs.insert(input.second->name());
  for (const InputSpec &spec : specs) {
    found.tensors.insert(spec.name);
    for (const InputDim &dim : spec.dims)
      if (!dim.name.empty())
        found.dims.insert(dim.name);
  }
  if (std::string unknown = options.isOneOfSeveral ? "" : findUnknownInput(options, found); !unknown.empty()) {
    reporter.request() << "has no " << unknown;
    return std::nullopt;
  }
  reader.separateMasks(specs);
  if (!reader.applyDims(specs) || !reader.checkRanges(specs))
    return std::nullopt;
  return specs;
}
