#include "frontends/graph/ImportGraph.h"
#include "dialects/attn/NodeLocation.h"
#include "frontends/graph/Layer.h"
#include "frontends/graph/Limits.h"
#include "frontends/graph/Schema.h"
#include "frontends/graph/Search.h"
#include "frontends/graph/SizeText.h"
#include "llvm/ADT/ScopeExit.h"
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace mlir;
using namespace attn;
using namespace attn::graph;

namespace {
/// One entry of a graph: inputs, layers, outputs.
class Entry {
public:
  Entry(onnx::Reporter &reporter, const Json &file, const Json &entry, Safetensors &weights, bool hasWeights)
      : reporter(reporter), file(file), entry(entry), weights(weights), hasWeights(hasWeights) {}

  bool build(onnx::ImportOptions options, OwningOpRef<ModuleOp> &module, WeightStore &store);

private:
  InFlightDiagnostic error(Position at) { return reporter.invalid(GraphBuilder::location(reporter, at)); }
  bool declareInputs(onnx::ImportOptions &options);
  bool declareDimension(StringRef name, const Json &at, onnx::proto::TensorShapeProto::Dimension &dim,
                        onnx::ImportOptions &options);
  bool declareOutputs();
  bool buildLayers(onnx::ImportState &state);

  onnx::Reporter &reporter;
  const Json &file, &entry;
  Safetensors &weights;
  bool hasWeights;
  onnx::Graph graph;
  std::vector<std::unique_ptr<onnx::proto::ValueInfoProto>> infos;
  std::vector<std::pair<std::string, const Json *>> outputs; // name, reference
};
} // namespace

/// A dimension of the file is a size, or bounds that the options may narrow.
bool Entry::declareDimension(StringRef name, const Json &at, onnx::proto::TensorShapeProto::Dimension &dim,
                             onnx::ImportOptions &options) {
  const Json *dimensions = file.find("dimensions");
  const Json *known = dimensions ? dimensions->find(name) : nullptr;
  if (!known && name.find_first_of("+-* ") != StringRef::npos) { // a size made of constants
    llvm::StringMap<Expr> constants;
    for (const Json::Member &member :
         dimensions ? llvm::ArrayRef<Json::Member>(dimensions->members) : llvm::ArrayRef<Json::Member>())
      if (member.value.is(Json::Integer))
        constants[member.key] = Expr(member.value.integer);
    std::string what;
    std::optional<Expr> size = readSize(name, constants, what);
    if (!size || size->constant().value_or(-1) < 0) {
      error(at.at) << "an input's size is an integer, a dimension or made of dimensions of constant size; " << what;
      return false;
    }
    dim.set_dim_value(*size->constant());
    return true;
  }
  if (!known) {
    error(at.at) << "dimension '" << printableName(name) << "' is not declared in 'dimensions'";
    return false;
  }
  if (known->is(Json::Integer)) {
    dim.set_dim_value(known->integer);
    return true;
  }
  dim.set_dim_param(name.str());
  const Json *least = known->find("min"), *most = known->find("max");
  if (!least && !most)
    return true;
  int64_t lower = least ? least->integer : 0, upper = most ? most->integer : INT64_MAX;
  if (lower > upper) {
    error(known->at) << "dimension '" << printableName(name) << "' is at least " << lower << " and at most " << upper;
    return false;
  }
  if (auto fixed = options.dims.find(name.str()); fixed != options.dims.end()) {
    if (fixed->second >= lower && fixed->second <= upper)
      return true;
    error(known->at) << "dimension '" << printableName(name) << "' is " << lower << " to " << upper
                     << ", but --dim sets it to " << fixed->second;
    return false;
  }
  auto [range, isNew] = options.dimRanges.try_emplace(name.str(), lower, upper);
  if (isNew)
    return true;
  range->second = {std::max(range->second.first, lower), std::min(range->second.second, upper)};
  if (range->second.first <= range->second.second)
    return true;
  error(known->at) << "dimension '" << printableName(name) << "' is " << lower << " to " << upper
                   << ", and --dim bounds it to sizes outside";
  return false;
}

bool Entry::declareInputs(onnx::ImportOptions &options) {
  for (const Json::Member &input : entry.find("inputs")->members) {
    auto &info = *infos.emplace_back(std::make_unique<onnx::proto::ValueInfoProto>());
    info.set_name(input.key);
    auto *tensor = info.mutable_type()->mutable_tensor_type();
    const Json *dtype = input.value.find("dtype");
    tensor->set_elem_type(int(protoOf(dtypeFromName(dtype ? dtype->text : "float32"))));
    tensor->mutable_shape();
    for (const Json &size : input.value.find("shape")->items) {
      auto &dim = *tensor->mutable_shape()->add_dim();
      if (size.is(Json::Integer))
        dim.set_dim_value(size.integer);
      else if (!declareDimension(size.text, size, dim, options))
        return false;
    }
    graph.inputs.push_back({int(graph.values.size()), &info});
    graph.values.push_back(input.key);
  }
  return true;
}

bool Entry::declareOutputs() {
  const Json &field = *entry.find("outputs");
  for (const Json &item : field.items)
    outputs.push_back({item.text, &item});
  for (const Json::Member &member : field.members)
    outputs.push_back({member.key, &member.value});
  for (auto &[name, reference] : outputs) {
    for (const auto &other : graph.outputs)
      if (other.second->name() == name) {
        error(reference->at) << "output '" << printableName(name) << "' is listed twice";
        return false;
      }
    auto &info = *infos.emplace_back(std::make_unique<onnx::proto::ValueInfoProto>());
    info.set_name(name);
    graph.outputs.push_back({int(graph.values.size()), &info});
    graph.values.push_back(name);
  }
  return true;
}

bool Entry::buildLayers(onnx::ImportState &state) {
  onnx::OpRegistry registry;
  registerAllOps(registry);
  onnx::Operators operators(state, registry);
  GraphBuilder builder(reporter, operators, weights);
  builder.hasWeights = hasWeights;
  if (const Json *dimensions = file.find("dimensions"))
    for (const Json::Member &dim : dimensions->members)
      if (dim.value.is(Json::Integer))
        builder.dimensions[dim.key] = Expr(dim.value.integer);
  Scope scope;
  for (auto [number, info] : graph.inputs) {
    const Tensor &t = *state.values[number];
    const Json &shape = *entry.find("inputs")->find(info->name())->find("shape");
    for (auto [size, extent] : llvm::zip_equal(shape.items, t.shape))
      if (size.is(Json::String) && file.find("dimensions") && file.find("dimensions")->find(size.text))
        builder.dimensions[size.text] = extent;
    scope.values[info->name()] = t;
  }
  if (!builder.build(*entry.find("layers"), scope))
    return false;
  for (auto [output, reference] : llvm::zip_equal(graph.outputs, outputs)) {
    const Tensor *found = scope.find(reference.second->text);
    if (!found) {
      error(reference.second->at) << "there is no value '" << printableName(reference.second->text) << "' here";
      return false;
    }
    state.values[output.first] = *found;
  }
  return true;
}

bool Entry::build(onnx::ImportOptions options, OwningOpRef<ModuleOp> &module, WeightStore &store) {
  return declareInputs(options) && declareOutputs() &&
         onnx::buildEntry(reporter, options, graph, module, store,
                          [&](onnx::ImportState &state) { return buildLayers(state); });
}

/// The text of a regular file of at most kMaxJsonBytes; nullopt after a diagnostic.
static std::optional<std::string> readText(onnx::Reporter &reporter) {
  // A fifo must not make the open wait.
  int fd = ::open(reporter.getPath().str().c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0)
    return reporter.request() << "cannot be opened: " << strerror(errno), std::nullopt;
  llvm::scope_exit closeFile([&] { ::close(fd); });
  struct stat info;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
    return reporter.request() << (S_ISDIR(info.st_mode) ? "is a folder, not a file" : "is not a regular file"),
           std::nullopt;
  if (uint64_t(info.st_size) > kMaxJsonBytes)
    return reporter.invalid() << "has " << int64_t(info.st_size) << " bytes, the limit is " << kMaxJsonBytes,
           std::nullopt;
  std::string text(info.st_size, '\0');
  for (size_t done = 0; done < text.size();) {
    ssize_t got = ::read(fd, text.data() + done, text.size() - done);
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      return reporter.invalid() << "cannot be read, or became shorter while it was read", std::nullopt;
    done += got;
  }
  return text;
}

onnx::ImportStatus attn::graph::importGraph(MLIRContext *context, StringRef path, const onnx::ImportOptions &options,
                                            OwningOpRef<ModuleOp> &module, WeightStore &store) {
  onnx::loadImportDialects(context);
  onnx::Reporter reporter(context, path);
  auto fail = [&](Position at, const Json *layer, StringRef message) {
    reporter.invalid(GraphBuilder::location(reporter, at, layer)) << message;
    return reporter.getStatus();
  };
  std::optional<std::string> text = readText(reporter);
  if (!text)
    return reporter.getStatus();
  JsonError problem;
  std::optional<Json> file = parseJson(*text, problem);
  if (!file)
    return fail(problem.at, nullptr, problem.message);
  if (std::optional<SchemaError> wrong = checkSchema(*file))
    return fail(wrong->at, wrong->layer, wrong->message);
  const Json *entries = file->find("entries");
  for (StringRef key : {"inputs", "layers", "outputs"})
    if (bool(file->find(key)) == bool(entries))
      return fail(file->at, nullptr,
                  entries ? "'" + key.str() + "' stands beside 'entries'; it belongs into one of them"
                          : "needs the key '" + key.str() + "', or 'entries'");

  const Json *search = file->find("search");
  if (search && !entries)
    return fail(search->at, nullptr, "'search' needs 'entries', of which it calls one again and again");

  Safetensors weights;
  onnx::ExternalFiles files(reporter.getPath());
  const Json *location = file->find("weights");
  if (std::string what; location && !weights.open(files, location->text, what))
    return fail(location->at, nullptr, "weights '" + printableName(location->text) + "': " + what);
  OwningOpRef<ModuleOp> fresh;
  OwningOpRef<ModuleOp> &target = module ? module : fresh;
  onnx::ImportOptions each = options;
  each.servesBroadcasts = false;
  if (!entries) {
    Entry(reporter, *file, *file, weights, location).build(each, target, store);
  } else {
    if (options.isOneOfSeveral)
      return fail(entries->at, nullptr, "has entries of its own, and is to be the entry '" + options.entry + "'");
    onnx::InputNames names;
    each.isOneOfSeveral = true;
    each.names = &names;
    for (const Json::Member &entry : entries->members) {
      each.entry = entry.key;
      if (!Entry(reporter, *file, entry.value, weights, location).build(each, target, store))
        break;
    }
    if (std::string unknown = reporter.failed() ? "" : findUnknownName(options, names); !unknown.empty())
      reporter.request() << "none of its entries has the " << unknown;
    if (search && !reporter.failed())
      addSearch(*search, reporter, *target, options.maxLoopIterations);
  }
  if (!reporter.failed() && fresh)
    module = std::move(fresh);
  return reporter.getStatus();
}
