#include "tools/attn-run/AttentionMaps.h"
#include "tools/attn-run/AttentionPage.h"
#include "tools/attn-run/runner/Npy.h"
#include "tools/options/Console.h"
#include "tools/options/StagedOutput.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Base64.h"
#include "llvm/Support/CRC.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Regex.h"
#include <set>
#include <tuple>

using namespace llvm;
using attn::runner::Tensor;

namespace attn::tools {
namespace {

constexpr StringRef kPageFile = "attention.html";

/// In the order of the fusion report.
std::vector<Exposed> findExposed(const attnrt_model_info &info, const attnrt_entry_info &entry,
                                 ArrayRef<Tensor> outputs) {
  std::vector<Exposed> found;
  bool isSearch = entry.num_outputs && entry.outputs[0].name == StringRef("tokens");
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
    // Entries may have outputs of one name.
    if (std::optional<StringRef> of = one ? one->getString("entry") : std::nullopt; of && *of != entry.name)
      continue;
    for (const json::Value &name : names ? *names : json::Array())
      for (int32_t n = 0; n != entry.num_outputs; ++n)
        if (name.getAsString() == StringRef(entry.outputs[n].name))
          found.push_back(Exposed(entry.outputs[n].name, &outputs[n], isSearch));
  }
  for (int32_t n = 1; isSearch && n < entry.num_outputs; ++n)
    if (entry.outputs[n].name == StringRef("alignment"))
      found.push_back(Exposed(entry.outputs[n].name, &outputs[n], isSearch));
  return found;
}

/// A file's name of what a node is called. Of a long one the ends, as what the output shows stands behind the node.
std::string fileName(size_t number, StringRef output) {
  constexpr size_t kMost = 200, kEnd = 50;
  std::string name = utostr(number) + "-";
  for (char c : output)
    name += isAlnum(c) || c == '.' || c == '-' ? c : '_';
  if (name.size() > kMost)
    name.erase(kMost - kEnd, name.size() - kMost);
  return name + ".npy";
}

/// The other entries of a library that show attentions, "a, b".
std::string entriesThatExpose(const attnrt_model_info &info, const attnrt_entry_info &entry) {
  std::vector<std::string> names;
  for (uint32_t n = 0; n != info.num_entries; ++n) {
    const attnrt_entry_info &other = *info.entries[n];
    // What it would show needs no outputs.
    std::vector<Tensor> none(static_cast<size_t>(other.num_outputs));
    if (other.name != StringRef(entry.name) && !findExposed(info, other, none).empty())
      names.push_back(printable(other.name));
  }
  return join(names, ", ");
}

/// Removes what an earlier run has left in `folder`: it may have had more attentions.
void removeOldFiles(StringRef folder) {
  static const Regex map(
      "^[0-9]+-(alignment|.*\\.(weights|head_mean|argmax|entropy|top_k_weights|top_k_keys)(\\.[0-9]+)?)"
      "\\.npy$");
  std::error_code error;
  for (sys::fs::directory_iterator file(folder, error), end; !error && file != end; file.increment(error))
    if (StringRef name = sys::path::filename(file->path()); name == kPageFile || map.match(name))
      sys::fs::remove(file->path());
}

/// Says so where no attention has as many positions as there are labels.
void warnOfLabels(const AttentionMapsOptions &options, const AttentionPage &page) {
  for (auto [labels, axis, what] :
       {std::tuple(&options.queryLabels, 0, "queries"), std::tuple(&options.keyLabels, 1, "keys")}) {
    std::set<int64_t> sizes = page.positions(axis);
    if (labels->empty() || sizes.count(static_cast<int64_t>(labels->size())))
      continue;
    std::vector<std::string> texts;
    for (int64_t size : sizes)
      texts.push_back(std::to_string(size));
    // One file may be of queries or keys alone.
    if (options.queryLabels == options.keyLabels && labels == &options.queryLabels)
      continue;
    report(Severity::Warning, "--attention-labels: " + Twine(labels->size()) +
                                  " labels are not shown: attentions have " + join(texts, " or ") + " " + what);
  }
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

/// Whether the chunks of a PNG file are whole, up to the last one.
bool isWholePng(StringRef bytes) {
  constexpr size_t kFrame = 12; // length, type and checksum of a chunk
  StringRef rest = bytes.drop_front(std::min<size_t>(8, bytes.size()));
  while (rest.size() >= kFrame) {
    uint64_t length = support::endian::read32be(rest.data());
    if (length > rest.size() - kFrame)
      return false;
    StringRef chunk = rest.substr(4, 4 + length);
    if (crc32(arrayRefFromStringRef(chunk)) != support::endian::read32be(rest.data() + 8 + length))
      return false;
    if (chunk.starts_with("IEND"))
      return true;
    rest = rest.drop_front(kFrame + length);
  }
  return false;
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
  if (isPng ? !isWholePng(bytes) : !bytes.contains("\xff\xd9")) { // the end of a JPEG
    reportError("--attention-image: " + path + " is damaged or cut off");
    return false;
  }
  image = (isPng ? "data:image/png;base64," : "data:image/jpeg;base64,") + encodeBase64(bytes);
  return true;
}

} // namespace

int readMapsOptions(CommandLine &line, AttentionMapsOptions &options) {
  options.folder = line.text(OPT_attention_maps).str();
  std::vector<StringRef> labels = line.all(OPT_attention_labels);
  if (line.has(OPT_attention_maps) && options.folder.empty())
    line.fail("--attention-maps expects a folder");
  for (auto [id, flag] :
       {std::pair(OPT_attention_labels, "--attention-labels"), std::pair(OPT_attention_image, "--attention-image")})
    if (line.has(id) && !line.has(OPT_attention_maps))
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
    std::string others = entriesThatExpose(info, entry);
    reportError("--attention-maps: entry '" + Twine(entry.name) + "' of " + model + " exposes no attention; " +
                (others.empty() ? "compile it with --expose-attention, a search with --alignment"
                                : "--entry=NAME takes another one: " + others));
    return ExitUsage;
  }
  if (std::error_code failed = sys::fs::create_directories(options.folder, /*IgnoreExisting=*/true, sys::fs::all_all)) {
    reportError("cannot make the folder '" + options.folder + "' of --attention-maps: " + failed.message());
    return ExitUsage;
  }
  removeOldFiles(options.folder);
  std::string error;
  for (auto [n, one] : enumerate(exposed)) {
    SmallString<128> path(options.folder);
    sys::path::append(path, fileName(n, one.output));
    if (!runner::writeNpy(path.str().str(), *one.tensor, error)) {
      reportError(error);
      return ExitUsage;
    }
  }
  AttentionPage page(exposed, options);
  warnOfLabels(options, page);
  SmallString<128> path(options.folder);
  sys::path::append(path, kPageFile);
  if (!writeTextFile(path, page.text(sys::path::filename(model)), error)) {
    reportError(error);
    return ExitUsage;
  }
  reportNote(Twine(exposed.size()) + (exposed.size() == 1 ? " output" : " outputs") + " of attentions; look at " +
             path);
  if (page.isReduced())
    reportNote(path + " draws a part of them, as it says; the .npy files beside it have all");
  return ExitSuccess;
}

} // namespace attn::tools
