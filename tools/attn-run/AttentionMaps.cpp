#include "tools/attn-run/AttentionMaps.h"
#include "tools/attn-run/runner/Npy.h"
#include "tools/options/Console.h"
#include "tools/options/Page.h"
#include "tools/options/StagedOutput.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Base64.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include <cmath>

using namespace llvm;
using attn::runner::Tensor;

namespace attn::tools {
namespace {

constexpr const char kPage[] =
#include "tools/pages/attention.inc"
    ;

/// The output of a search that has the weights of each step: [batch, hypothesis, step, key].
constexpr StringRef kAlignment = "alignment";

/// An output that shows the weights of an attention.
struct Exposed {
  std::string output; ///< "NODE.weights"
  const Tensor *tensor;

  /// Whether it has all weights, [batch, head, query, key].
  bool isWhole() const {
    StringRef name = output;
    auto [front, back] = name.rsplit('.');
    if (all_of(back, isDigit)) // of a node that became several attentions
      name = front;
    return (name.ends_with(".weights") || name == kAlignment) && tensor->shape().size() == 4;
  }
};

/// In the order of the fusion report.
std::vector<Exposed> findExposed(const attnrt_model_info &info, const attnrt_entry_info &entry,
                                 ArrayRef<Tensor> outputs) {
  std::vector<Exposed> found;
  Expected<json::Value> manifest = json::parse(info.manifest_json);
  if (!manifest) {
    consumeError(manifest.takeError());
    return found;
  }
  const json::Object *fields = manifest->getAsObject();
  const json::Array *verdicts = fields ? fields->getArray("fusion") : nullptr;
  for (const json::Value &verdict : verdicts ? *verdicts : json::Array()) {
    const json::Object *one = verdict.getAsObject();
    const json::Array *names = one ? one->getArray("exposed") : nullptr;
    for (const json::Value &name : names ? *names : json::Array())
      for (int32_t n = 0; n != entry.num_outputs; ++n)
        if (name.getAsString() == StringRef(entry.outputs[n].name))
          found.push_back({entry.outputs[n].name, &outputs[n]});
  }
  bool isSearch = entry.num_outputs && entry.outputs[0].name == StringRef("tokens");
  for (int32_t n = 1; isSearch && n < entry.num_outputs; ++n)
    if (entry.outputs[n].name == kAlignment)
      found.push_back({entry.outputs[n].name, &outputs[n]});
  return found;
}

/// Two bytes a weight, 65535 being 1.
std::string encodeWeights(const Tensor &tensor) {
  std::string bytes;
  bytes.reserve(2 * tensor.elements());
  for (uint64_t n = 0; n != tensor.elements(); ++n) {
    double weight = tensor.at(n);
    auto word = static_cast<uint16_t>(weight > 0 ? std::lround(65535 * std::min(weight, 1.0)) : 0);
    bytes.push_back(static_cast<char>(word & 255));
    bytes.push_back(static_cast<char>(word >> 8));
  }
  return encodeBase64(bytes);
}

json::Object describeLayer(const Exposed &exposed, const AttentionMapsOptions &options) {
  const std::vector<int64_t> &shape = exposed.tensor->shape();
  json::Object layer{{"name", json::fixUTF8(StringRef(exposed.output).rsplit(".weights").first)},
                     {"shape", json::Array(shape)},
                     {"weights", encodeWeights(*exposed.tensor)}};
  for (auto [key, labels, size] : {std::tuple("queryLabels", &options.queryLabels, shape[2]),
                                   std::tuple("keyLabels", &options.keyLabels, shape[3])}) {
    json::Array texts;
    for (const std::string &label : *labels)
      texts.push_back(json::fixUTF8(label));
    if (!texts.empty() && static_cast<size_t>(size) == texts.size())
      layer[key] = std::move(texts);
  }
  return layer;
}

/// A file's name of what a node is called.
std::string fileName(size_t number, StringRef output) {
  std::string name = utostr(number) + "-";
  for (char c : output)
    name += isAlnum(c) || c == '.' || c == '-' ? c : '_';
  return name.substr(0, 200) + ".npy";
}

/// Reads a label from each line of `path`.
bool readLabels(StringRef path, std::vector<std::string> &labels) {
  ErrorOr<std::unique_ptr<MemoryBuffer>> buffer = MemoryBuffer::getFile(path, /*IsText=*/true);
  if (!buffer) {
    reportError("--attention-labels: cannot read " + path + ": " + buffer.getError().message());
    return false;
  }
  StringRef text = (*buffer)->getBuffer();
  text.consume_back("\n");
  for (StringRef label : split(text, '\n'))
    labels.push_back(label.rtrim('\r').str());
  return true;
}

/// A picture as a page holds it.
bool readImage(StringRef path, std::string &image) {
  ErrorOr<std::unique_ptr<MemoryBuffer>> buffer = MemoryBuffer::getFile(path);
  if (!buffer) {
    reportError("--attention-image: cannot read " + path + ": " + buffer.getError().message());
    return false;
  }
  StringRef bytes = (*buffer)->getBuffer();
  bool isPng = bytes.starts_with("\x89PNG"), isJpeg = bytes.starts_with("\xff\xd8\xff");
  if (!isPng && !isJpeg) {
    reportError("--attention-image: " + path + " is neither a PNG nor a JPEG file");
    return false;
  }
  image = (isPng ? "data:image/png;base64," : "data:image/jpeg;base64,") + encodeBase64(bytes);
  return true;
}

} // namespace

int readMapsOptions(CommandLine &line, AttentionMapsOptions &options) {
  options.folder = line.text(OPT_attention_maps).str();
  std::vector<StringRef> labels = line.all(OPT_attention_labels);
  for (auto [id, flag] :
       {std::pair(OPT_attention_labels, "--attention-labels"), std::pair(OPT_attention_image, "--attention-image")})
    if (line.has(id) && options.folder.empty())
      line.fail(Twine(flag) + " belongs to --attention-maps");
  if (labels.size() > 2)
    line.fail("--attention-labels expects a file for queries and one for keys, not " + Twine(labels.size()) + " files");
  if (line.failed())
    return ExitUsage;
  if (!labels.empty() &&
      (!readLabels(labels.front(), options.queryLabels) || !readLabels(labels.back(), options.keyLabels)))
    return ExitUsage;
  if (line.has(OPT_attention_image) && !readImage(line.text(OPT_attention_image), options.image))
    return ExitUsage;
  return ExitSuccess;
}

int writeAttentionMaps(const AttentionMapsOptions &options, StringRef model, const attnrt_model_info &info,
                       const attnrt_entry_info &entry, ArrayRef<Tensor> outputs) {
  std::vector<Exposed> exposed = findExposed(info, entry, outputs);
  if (exposed.empty()) {
    reportError("--attention-maps: entry '" + Twine(entry.name) + "' of " + model +
                " exposes no attention; compile it with --expose-attention, a search with --alignment");
    return ExitUsage;
  }
  if (std::error_code failed = sys::fs::create_directories(options.folder)) {
    reportError("cannot make the folder '" + options.folder + "' of --attention-maps: " + failed.message());
    return ExitUsage;
  }
  std::string error;
  json::Array layers;
  for (auto [n, one] : enumerate(exposed)) {
    SmallString<128> path(options.folder);
    sys::path::append(path, fileName(n, one.output));
    if (!runner::writeNpy(path.str().str(), *one.tensor, error)) {
      reportError(error);
      return ExitUsage;
    }
    if (one.isWhole())
      layers.push_back(describeLayer(one, options));
  }
  json::Object data{{"model", json::fixUTF8(sys::path::filename(model))}, {"layers", std::move(layers)}};
  if (!options.image.empty())
    data["image"] = options.image;
  if (exposed.front().output == kAlignment)
    data["heads"] = "Hypothesis";
  SmallString<128> page(options.folder);
  sys::path::append(page, "attention.html");
  if (!writeTextFile(page, fillPage(kPage, "@ATTENTION_DATA@", std::move(data)), error)) {
    reportError(error);
    return ExitUsage;
  }
  reportNote(Twine(exposed.size()) + (exposed.size() == 1 ? " output" : " outputs") + " of attentions; look at " +
             page);
  return ExitSuccess;
}

} // namespace attn::tools
