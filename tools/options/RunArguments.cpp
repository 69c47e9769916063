#include "tools/options/RunArguments.h"

#include "tools/attn-run/runner/Npy.h"
#include "tools/options/Console.h"
#include "tools/options/DrawnSizes.h"
#include "tools/options/FusionReport.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"
#include <algorithm>

using namespace llvm;

namespace attn::tools {

runner::InputOptions inputOptions(CommandLine &line) {
  runner::InputOptions options;
  for (StringRef input : line.all(OPT_input))
    options.inputs.push_back(input.str());
  // Of a range, the size that an open dimension has anyway, or the next to it.
  for (auto &[name, range] : line.dims())
    options.dims.emplace(name, std::clamp(runner::InputOptions::kOpenDim, range.lower, range.upper));
  for (auto &[name, shape] : line.shapes())
    options.shapes.emplace(name, shape);
  options.seed = line.number(OPT_seed, 0);
  return options;
}

void keepBounds(const attnrt_model_info &info, StringRef entry, runner::InputOptions &options) {
  Expected<json::Value> manifest = json::parse(info.manifest_json);
  const json::Object *fields = manifest ? manifest->getAsObject() : nullptr;
  const json::Array *entries = fields ? fields->getArray("entries") : nullptr;
  for (const json::Value &each : entries ? ArrayRef<json::Value>(*entries) : ArrayRef<json::Value>()) {
    const json::Object *described = each.getAsObject();
    const json::Object *dims =
        described && described->getString("name") == entry ? described->getObject("dims") : nullptr;
    for (const auto &[name, range] : dims ? *dims : json::Object())
      if (const json::Object *bounds = range.getAsObject()) {
        int64_t least = bounds->getInteger("min").value_or(0);
        options.openDims.emplace(name.str(), std::clamp(runner::InputOptions::kOpenDim, least,
                                                        std::max(least, bounds->getInteger("max").value_or(least))));
      }
  }
  if (!manifest)
    consumeError(manifest.takeError());
}

bool hasMemory(runner::Model &model, runner::InputOptions options, runner::Failure &failure) {
  if (!options.inputs.empty()) // they would be read twice
    return true;
  constexpr uint64_t kLarge = uint64_t(2) << 30; // what is filled in seconds need not be tried
  std::vector<runner::Tensor> inputs, outputs;
  std::string error;
  options.areUntouched = true;
  if (runner::makeInputs(model.entry(), options, inputs, error) != runner::Fault::None)
    return true; // which the caller will find, too
  uint64_t bytes = 0;
  for (const runner::Tensor &input : inputs)
    bytes += input.bytes();
  return bytes < kLarge || model.run(inputs, outputs, failure) || failure.status != ATTNRT_OUT_OF_MEMORY;
}

static runner::InputOptions withDrawn(const runner::InputOptions &options, const runner::InputOptions &drawn) {
  runner::InputOptions result = options;
  for (const auto &[name, size] : drawn.dims)
    result.openDims[name] = size;
  for (const auto &[name, sizes] : drawn.shapes) {
    std::vector<int64_t> &shape = result.shapes.emplace(name, sizes).first->second;
    for (size_t d = 0; d < std::min(shape.size(), sizes.size()); ++d)
      shape[d] = shape[d] < 0 ? sizes[d] : shape[d];
  }
  return result;
}

/// Sizes of the open dimensions of `entry`, of which `options` decide some.
static std::optional<DrawnSizes> drawSizes(const attnrt_entry_info &entry, const runner::InputOptions &options) {
  std::string error;
  DrawnSizes::Map decided;
  if (runner::decidedSizes(entry, options, decided, error) != runner::Fault::None)
    return std::nullopt;
  return DrawnSizes(entry, std::move(decided), options.openDims);
}

bool relateSizes(runner::Model &model, const runner::Failure &failure, runner::InputOptions &options) {
  const attnrt_entry_info &entry = model.entry();
  std::optional<DrawnSizes> sizes = drawSizes(entry, options);
  if (!sizes || (failure.status != ATTNRT_INVALID_ARGUMENT && failure.status != ATTNRT_OUT_OF_RANGE))
    return false;
  sizes->relate([&](const runner::InputOptions &drawn) {
    std::vector<runner::Tensor> inputs, outputs;
    std::string error;
    runner::Failure why;
    return runner::makeInputs(entry, withDrawn(options, drawn), inputs, error) == runner::Fault::None &&
           model.run(inputs, outputs, why);
  });
  std::string relation = sizes->printRelation();
  if (relation.empty())
    return false;
  runner::InputOptions drawn;
  sizes->draw(Sizes::Even, drawn);
  options = withDrawn(options, drawn);
  reportNote("of the sizes made up, " + printable(relation) + ", as no run ends well otherwise; --dim=NAME:N gives " +
             "another");
  return true;
}

void reportMadeUp(const attnrt_entry_info &entry, const runner::InputOptions &options,
                  const std::vector<std::string> &madeUp, int exitCode) {
  if (madeUp.empty() || exitCode == ExitInternal)
    return;
  std::optional<DrawnSizes> sizes = drawSizes(entry, options);
  std::string open = sizes ? printable(sizes->list()) : "";
  if (options.inputs.empty())
    reportNote("the inputs were made up: --input=NAME=@FILE.npy gives real ones, --dim=NAME:N another size" +
               (open.empty() ? "" : " of " + open));
  else if (!open.empty())
    reportNote("sizes were made up: --dim=NAME:N gives another one of " + open);
}

int reportFault(runner::Fault fault, StringRef error) {
  reportError(error);
  if (fault == runner::Fault::Memory)
    return ExitInternal;
  return fault == runner::Fault::File ? ExitInvalid : ExitUsage;
}

int reportFailure(StringRef model, const runner::Failure &failure) {
  StringRef message = failure.message;
  reportError(message.contains(model) ? message.str() : (model + ": " + message).str());
  if (message.contains("no NVIDIA driver"))
    reportNote("a library of --target=cuda runs where an NVIDIA driver (libcuda.so.1) is; without --target=cuda attnc "
               "compiles for the CPU");
  switch (failure.status) {
  case ATTNRT_OK:
  case ATTNRT_NOT_FOUND:
  case ATTNRT_IO:
    return ExitUsage;
  case ATTNRT_INCOMPATIBLE:
  case ATTNRT_UNSUPPORTED:
    return ExitUnsupported;
  case ATTNRT_INVALID_ARGUMENT:
  case ATTNRT_OUT_OF_RANGE:
  case ATTNRT_CORRUPT_FILE:
    return ExitInvalid;
  case ATTNRT_OUT_OF_MEMORY:
  case ATTNRT_CANCELLED:
  case ATTNRT_DEADLINE_EXCEEDED:
  case ATTNRT_INTERNAL:
  case ATTNRT_DEVICE:
    break;
  }
  return ExitInternal;
}

bool outputArguments(const CommandLine &line, OptionId id, const attnrt_entry_info &entry, bool files,
                     std::vector<OutputArgument> &arguments) {
  for (StringRef text : line.all(id)) {
    std::string value, error;
    int index = runner::findNamed(text.str(), entry.outputs, entry.num_outputs, "output", value, error);
    if (index < 0) {
      reportError(error);
      return false;
    }
    StringRef name = entry.outputs[index].name;
    if (files && value == "@-") {
      reportError("output '" + name + "': '" + name + "=-' prints it; the file '-' is @./-");
      return false;
    }
    if (files && value != "-" && (value.size() < 2 || value[0] != '@')) {
      reportError("output '" + name + "' needs a file, as @y.npy, or - to be printed, not '" + value + "'");
      return false;
    }
    if (files && value == "-" && line.has(OPT_json)) {
      reportError("--json and --output=" + name + "=- would both write to standard output");
      return false;
    }
    arguments.push_back({static_cast<size_t>(index), std::move(value)});
  }
  return true;
}

bool writeOutputs(const std::vector<OutputArgument> &arguments, const attnrt_entry_info &entry,
                  const std::vector<runner::Tensor> &outputs) {
  for (const OutputArgument &argument : arguments) {
    if (argument.value == "-") {
      const runner::Tensor &tensor = outputs[argument.index];
      outs() << printable(entry.outputs[argument.index].name) << ": " << attnrt_dtype_name(tensor.dtype()) << ' '
             << runner::printShape(tensor.shape()) << '\n'
             << runner::printTensor(tensor) << '\n';
      continue;
    }
    std::string error;
    if (!runner::writeNpy(argument.value.substr(1), outputs[argument.index], error)) {
      reportError(error);
      return false;
    }
  }
  return true;
}

int reportGivenFusion(CommandLine &line, const LibraryArgument &library, const attnrt_model_info &info) {
  if (!library.isGiven())
    return ExitSuccess;
  Expected<json::Value> manifest = json::parse(info.manifest_json);
  const json::Object *fields = manifest ? manifest->getAsObject() : nullptr;
  const json::Value *verdicts = fields ? fields->get("fusion") : nullptr;
  const json::Value *products = fields ? fields->get("products") : nullptr;
  int code = reportFusion(library.name(), verdicts ? formatv("{0}", *verdicts).str() : "[]",
                          products ? formatv("{0}", *products).str() : "[]", line.files(OPT_fusion_report),
                          line.number(OPT_require_fused, 0, 0, UINT32_MAX));
  if (!manifest)
    consumeError(manifest.takeError());
  return code;
}

} // namespace attn::tools
