#include "tools/attn-run/Describe.h"

#include "tools/attn-run/runner/Inputs.h"
#include "tools/options/Console.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

using namespace llvm;
using attn::runner::Statistics;
using attn::runner::Tensor;

namespace attn::tools {
namespace {

constexpr uint64_t kFirst = 6;

/// The type of an optional input where it is given: the library itself names none of its dimensions.
std::string printGivenType(const attnrt_tensor_info &info, const json::Object *tensor) {
  const json::Array *shape = tensor ? tensor->getArray("shape") : nullptr;
  if (!shape)
    return runner::printType(info);
  std::vector<std::string> sizes;
  for (const json::Value &size : *shape) {
    std::optional<int64_t> number = size.getAsInteger();
    sizes.push_back(number ? std::to_string(*number) : size.getAsString().value_or("?").str());
  }
  return std::string(info.dtype_name) + " [" + join(sizes, ", ") + "]";
}

void describeTensors(raw_ostream &os, StringRef title, const attnrt_tensor_info *infos, int32_t count,
                     const uint8_t *areOptional = nullptr, const json::Array *tensors = nullptr) {
  if (count == 0)
    return;
  size_t width = 0;
  for (int32_t i = 0; i < count; ++i)
    width = std::max(width, StringRef(infos[i].name).size());
  os << "  " << title << '\n';
  for (int32_t i = 0; i < count; ++i) {
    bool isOptional = areOptional && areOptional[i], isListed = tensors && static_cast<size_t>(i) < tensors->size();
    std::string type =
        isOptional && isListed ? printGivenType(infos[i], (*tensors)[i].getAsObject()) : runner::printType(infos[i]);
    os << "    " << left_justify(printable(infos[i].name), static_cast<unsigned>(width)) << "  " << printable(type)
       << (isOptional ? ", optional\n" : "\n");
  }
}

/// The verdicts on attention.
void describeFusion(raw_ostream &os, const json::Object &manifest) {
  const json::Array *verdicts = manifest.getArray("fusion");
  if (!verdicts || verdicts->empty())
    return;
  size_t fused = count_if(*verdicts, [](const json::Value &verdict) {
    const json::Object *fields = verdict.getAsObject();
    return fields && fields->getBoolean("fused").value_or(false);
  });
  os << "attention: " << fused << " of " << verdicts->size() << (verdicts->size() == 1 ? " softmax" : " softmaxes")
     << " fused\n";
}

/// The architectures of the GPU code.
void describeGpu(raw_ostream &os, const json::Object &manifest) {
  const json::Array *images = manifest.getArray("gpu");
  for (size_t i = 0; images && i < images->size(); ++i)
    if (const json::Object *image = (*images)[i].getAsObject())
      os << (i ? ", " : "GPU:       ") << image->getString("arch").value_or("") << " ("
         << image->getString("form").value_or("") << ')' << (i + 1 == images->size() ? "\n" : "");
}

/// What was compiled into an entry beside its tensors: bounds, memory, states.
void describeLimits(raw_ostream &os, const attnrt_entry_info &entry, const json::Object &fields) {
  if (const json::Object *dims = fields.getObject("dims"); dims && !dims->empty()) {
    os << "  bounds\n";
    size_t width = 0;
    for (const auto &[name, range] : *dims)
      width = std::max(width, printable(name).size());
    for (const auto &[name, range] : *dims)
      if (const json::Object *bounds = range.getAsObject())
        os << "    " << left_justify(printable(name), static_cast<unsigned>(width)) << "  "
           << bounds->getInteger("min").value_or(0) << " to " << bounds->getInteger("max").value_or(0) << '\n';
  }
  if (std::optional<int64_t> bytes = fields.getInteger("max_workspace_bytes"); bytes && *bytes >= 0)
    os << "  a run needs at most " << formatBytes(static_cast<uint64_t>(*bytes)) << " beside inputs and outputs\n";
  for (int32_t i = 0; i < entry.num_states; ++i) {
    const attnrt_state_info &state = entry.states[i];
    os << (i ? "" : "  a state keeps\n") << "    " << printable(entry.inputs[state.input].name) << ", from "
       << printable(entry.outputs[state.output].name) << (state.dim >= 0 ? ", appended to in place" : "") << '\n';
  }
}

/// "15 tensors: float32, 12 of them in int8".
void describeWeights(raw_ostream &os, const attnrt_model_info &info) {
  std::map<std::string, std::set<StringRef>> narrow; // names by storage
  std::set<StringRef> names, types;
  for (uint32_t i = 0; i < info.num_weights; ++i) {
    const attnrt_weight_info &weight = info.weights[i];
    names.insert(weight.name);
    types.insert(attnrt_dtype_name(weight.dtype));
    StringRef layout = weight.layout;
    if (layout.consume_front("panels-") && !layout.starts_with("t:"))
      narrow[layout.split(':').first.str()].insert(weight.name);
  }
  os << "weights:   " << names.size() << (names.size() == 1 ? " tensor" : " tensors") << (types.empty() ? "" : " of ")
     << join(types, ", ");
  for (const auto &[storage, list] : narrow)
    os << ", " << list.size() << " stored in " << storage;
  os << '\n';
}

std::string printDigest(const attnrt_model_info &info) {
  std::string text;
  raw_string_ostream os(text);
  for (uint8_t byte : info.digest)
    os << format_hex_no_prefix(byte, 2);
  return text;
}

json::Object readManifest(const attnrt_model_info &info) {
  Expected<json::Value> value = json::parse(info.manifest_json);
  if (value && value->getAsObject())
    return std::move(*value->getAsObject());
  consumeError(value.takeError());
  return {};
}

} // namespace

std::string jsonNumber(double value) {
  return std::isfinite(value) ? formatv("{0}", json::Value(value)).str() : "null";
}

void describeModel(raw_ostream &os, StringRef name, const attnrt_model_info &info) {
  StringRef features = info.required_cpu_features;
  os << printable(name) << ": model library, " << formatBytes(info.file_size) << ", weights "
     << formatBytes(info.weights_size) << '\n'
     << "compiler:  " << info.compiler_version << '\n'
     << "target:    " << info.target << (features.empty() ? "" : ", needs ") << features << '\n'
     << "digest:    " << printDigest(info) << '\n';
  json::Object manifest = readManifest(info);
  describeGpu(os, manifest);
  describeFusion(os, manifest);
  const json::Array *entries = manifest.getArray("entries");
  for (uint32_t e = 0; e < info.num_entries; ++e) {
    const attnrt_entry_info &entry = *info.entries[e];
    os << "entry " << printable(entry.name) << '\n';
    const json::Object *fields = entries && e < entries->size() ? (*entries)[e].getAsObject() : nullptr;
    describeTensors(os, "inputs", entry.inputs, entry.num_inputs, entry.optional_inputs,
                    fields ? fields->getArray("inputs") : nullptr);
    describeTensors(os, "outputs", entry.outputs, entry.num_outputs);
    describeLimits(os, entry, fields ? *fields : json::Object());
  }
  describeWeights(os, info);
}

std::string modelJson(const attnrt_model_info &info) {
  json::Object manifest = readManifest(info);
  // What the compiler could not know while it wrote the manifest.
  manifest["digest"] = printDigest(info);
  manifest["file_size"] = info.file_size;
  return formatv("{0}", json::Value(std::move(manifest))).str();
}

void describeOutputs(raw_ostream &os, const attnrt_entry_info &entry, const std::vector<Tensor> &outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Tensor &tensor = outputs[i];
    os << printable(entry.outputs[i].name) << ": " << attnrt_dtype_name(tensor.dtype()) << ' '
       << runner::printShape(tensor.shape());
    Statistics numbers = runner::statistics(tensor);
    if (numbers.any)
      os << format(", min %.6g, max %.6g, mean %.6g", numbers.min, numbers.max, numbers.mean);
    if (numbers.nans)
      os << ", " << numbers.nans << " NaN";
    os << (tensor.elements() ? "\n  " : "\n");
    for (uint64_t e = 0; e < std::min(tensor.elements(), kFirst); ++e)
      os << (e ? ", " : "") << runner::printElement(tensor, e);
    if (tensor.elements())
      os << (tensor.elements() > kFirst ? ", ...\n" : "\n");
  }
}

std::string outputsJson(const attnrt_entry_info &entry, const std::vector<Tensor> &outputs) {
  std::string text;
  raw_string_ostream os(text);
  os << '[';
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Tensor &tensor = outputs[i];
    Statistics numbers = runner::statistics(tensor);
    os << (i ? "," : "") << "{\"name\":" << jsonString(entry.outputs[i].name) << ",\"dtype\":\""
       << attnrt_dtype_name(tensor.dtype()) << "\",\"shape\":[";
    for (size_t d = 0; d < tensor.shape().size(); ++d)
      os << (d ? "," : "") << tensor.shape()[d];
    os << ']';
    if (numbers.any)
      os << ",\"min\":" << jsonNumber(numbers.min) << ",\"max\":" << jsonNumber(numbers.max)
         << ",\"mean\":" << jsonNumber(numbers.mean);
    os << ",\"nans\":" << numbers.nans << ",\"values\":[";
    for (uint64_t e = 0; e < std::min(tensor.elements(), kFirst); ++e)
      os << (e ? "," : "") << (std::isfinite(tensor.at(e)) ? runner::printElement(tensor, e) : "null");
    os << "]}";
  }
  os << ']';
  return text;
}

} // namespace attn::tools
