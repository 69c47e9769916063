#include "tools/attn-run/Describe.h"

#include "tools/attn-run/runner/Inputs.h"
#include "tools/options/Console.h"

#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"
#include <algorithm>
#include <cmath>

using namespace llvm;
using attn::runner::Statistics;
using attn::runner::Tensor;

namespace attn::tools {
namespace {

constexpr uint64_t kFirst = 6;

void describeTensors(raw_ostream &os, StringRef title, const attnrt_tensor_info *infos, int32_t count) {
  if (count == 0)
    return;
  size_t width = 0;
  for (int32_t i = 0; i < count; ++i)
    width = std::max(width, StringRef(infos[i].name).size());
  os << "  " << title << '\n';
  for (int32_t i = 0; i < count; ++i)
    os << "    " << left_justify(printable(infos[i].name), static_cast<unsigned>(width)) << "  "
       << printable(runner::printType(infos[i])) << '\n';
}

/// The verdicts on attention, from the manifest.
void describeFusion(raw_ostream &os, StringRef manifest) {
  Expected<json::Value> value = json::parse(manifest);
  if (!value)
    return consumeError(value.takeError());
  const json::Object *object = value->getAsObject();
  const json::Array *verdicts = object ? object->getArray("fusion") : nullptr;
  if (!verdicts || verdicts->empty())
    return;
  size_t fused = count_if(*verdicts, [](const json::Value &verdict) {
    const json::Object *fields = verdict.getAsObject();
    return fields && fields->getBoolean("fused").value_or(false);
  });
  os << "attention: " << fused << " of " << verdicts->size() << " softmaxes fused\n";
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
     << "digest:    ";
  for (uint8_t byte : info.digest)
    os << format_hex_no_prefix(byte, 2);
  os << '\n';
  describeFusion(os, info.manifest_json);
  for (uint32_t e = 0; e < info.num_entries; ++e) {
    const attnrt_entry_info &entry = *info.entries[e];
    os << "entry " << printable(entry.name) << '\n';
    describeTensors(os, "inputs", entry.inputs, entry.num_inputs);
    describeTensors(os, "outputs", entry.outputs, entry.num_outputs);
  }
  os << "weights:   " << info.num_weights << " tensors\n";
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
    os << "\n  ";
    for (uint64_t e = 0; e < std::min(tensor.elements(), kFirst); ++e)
      os << (e ? ", " : "") << runner::printElement(tensor, e);
    os << (tensor.elements() > kFirst ? ", ..." : "") << '\n';
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
