#include "tools/attnc/LibraryCache.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/BLAKE3.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/TargetParser/Host.h"
#include <chrono>
#include <unistd.h>

using namespace llvm;

namespace attn::tools {
namespace {

// An entry is this, the BLAKE3 digest of all behind the digest, the length of
// the compile's messages (8 bytes), the messages as JSON, and the library.
constexpr StringLiteral kMagic = "attnclib1";
constexpr StringLiteral kSuffix = ".library";
constexpr size_t kDigestBytes = 32, kLengthBytes = 8;
constexpr uint64_t kLimit = uint64_t(10) << 30;

ArrayRef<uint8_t> bytesOf(StringRef text) { return {text.bytes_begin(), text.size()}; }

std::unique_ptr<MemoryBuffer> read(const Twine &path) {
  if (!sys::fs::is_regular_file(path)) // what is read from a pipe is gone
    return nullptr;
  auto file = MemoryBuffer::getFile(path, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  return file ? std::move(*file) : nullptr;
}

/// A digest of pieces, each with its length.
class Key {
public:
  void add(StringRef piece) {
    char length[kLengthBytes];
    support::endian::write64le(length, piece.size());
    hasher.update(StringRef(length, sizeof length));
    hasher.update(piece);
  }
  bool addFile(const Twine &path) {
    std::unique_ptr<MemoryBuffer> file = read(path);
    if (file)
      add(file->getBuffer());
    return file != nullptr;
  }
  std::string text() { return toHex(hasher.final<kDigestBytes>(), /*LowerCase=*/true); }

private:
  BLAKE3 hasher;
};

/// The files that a serialised model names: each is {key: "location", value:
/// PATH} of an external_data. False where the word stands in another form, in
/// which a path might hide.
bool findExternalFiles(StringRef model, std::vector<StringRef> &names) {
  constexpr StringLiteral word = "location", before = "\x0a\x08";
  for (size_t at = model.find(word); at != StringRef::npos; at = model.find(word, at)) {
    bool isKey = model.take_front(at).ends_with(before);
    at += word.size();
    StringRef rest = model.substr(at);
    if (!isKey || !rest.consume_front("\x12") || rest.size() < 2)
      return false;
    size_t length = uint8_t(rest[0]), header = 1;
    if (length >= 0x80) {
      length = (length & 0x7f) | size_t(uint8_t(rest[1])) << 7;
      header = 2;
      if (uint8_t(rest[1]) >= 0x80)
        return false;
    }
    if (rest.size() < header + length)
      return false;
    names.push_back(rest.substr(header, length));
  }
  return true;
}

bool addModel(Key &key, StringRef path) {
  std::unique_ptr<MemoryBuffer> file = path.ends_with(".onnx") ? read(path) : nullptr;
  std::vector<StringRef> names;
  if (!file || !findExternalFiles(file->getBuffer(), names))
    return false;
  key.add(file->getBuffer());
  sort(names);
  names.erase(llvm::unique(names), names.end());
  for (StringRef name : names) {
    SmallString<256> beside(sys::path::parent_path(path));
    sys::path::append(beside, name);
    key.add(name);
    if (!key.addFile(beside))
      return false;
  }
  return true;
}

/// All that --mcpu=native looks at, and more.
void addProcessor(Key &key) {
  std::vector<std::string> features;
  for (const auto &feature : sys::getHostCPUFeatures())
    features.push_back((feature.first() + (feature.second ? "+" : "-")).str());
  sort(features);
  key.add(join(features, ","));
  for (int name : {_SC_LEVEL1_DCACHE_SIZE, _SC_LEVEL2_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE})
    key.add(std::to_string(sysconf(name)));
}

/// "" for what is not kept.
std::string keyOf(const Request &request) {
  const CompileJob &job = request.job;
  const CompileOptions &options = job.compile;
  bool looksInside = options.printIrAfterAll || !options.dumpIrDir.empty() || options.timing || request.verifyFusion ||
                     !job.profile.empty() || !job.annotated.empty();
  // A GPU's code also depends on the ptxas of the machine, a folder on what lies in it.
  if (options.cacheDir.empty() || options.emit != EmitKind::Lib || !options.gpuArchs.empty() || looksInside ||
      job.folder)
    return "";
  Key key;
  key.add(LLVM_VERSION_STRING);
  if (!key.addFile("/proc/self/exe"))
    return "";
  addProcessor(key);
  for (const std::string &argument : request.arguments)
    key.add(argument);
  if (!request.header.empty())
    key.add(sys::path::stem(request.output)); // names in the header begin with it
  if (job.entries.empty())
    return addModel(key, job.input) ? key.text() : "";
  for (const auto &[name, path] : job.entries) {
    key.add(name);
    if (!addModel(key, path))
      return "";
  }
  return key.text();
}

std::error_code write(int descriptor, ArrayRef<StringRef> parts) {
  raw_fd_ostream os(descriptor, /*shouldClose=*/true);
  for (StringRef part : parts)
    os << part;
  os.close();
  std::error_code error = os.error();
  os.clear_error();
  return error;
}

/// Removes the libraries used least recently until the others are within the limit.
void shrink(StringRef folder) {
  struct Entry {
    sys::TimePoint<> used;
    uint64_t bytes;
    std::string path;
  };
  std::vector<Entry> entries;
  std::error_code error;
  for (sys::fs::directory_iterator file(folder, error), end; !error && file != end; file.increment(error)) {
    sys::fs::file_status status;
    StringRef name = sys::path::filename(file->path());
    if (name.consume_back(kSuffix) && name.size() == 2 * kDigestBytes && all_of(name, isHexDigit) &&
        !sys::fs::status(file->path(), status) && sys::fs::is_regular_file(status))
      entries.push_back({status.getLastModificationTime(), status.getSize(), file->path()});
  }
  sort(entries, [](const Entry &a, const Entry &b) { return a.used > b.used; });
  uint64_t total = 0;
  for (const Entry &entry : entries)
    if ((total += entry.bytes) > kLimit)
      sys::fs::remove(entry.path);
}

std::string toJson(const WorkerResult &result) {
  json::Array said;
  for (const auto &[severity, text] : result.said)
    said.push_back(json::Array{static_cast<int>(severity), json::fixUTF8(text)});
  std::string text;
  raw_string_ostream(text) << json::Value(
      json::Object{{"report", json::fixUTF8(result.report)}, {"said", std::move(said)}});
  return text;
}

/// Says again what the compile said.
bool replay(StringRef text, WorkerResult &result) {
  Expected<json::Value> value = json::parse(text);
  if (!value) {
    consumeError(value.takeError());
    return false;
  }
  const json::Object *object = value->getAsObject();
  const json::Array *said = object ? object->getArray("said") : nullptr;
  std::optional<StringRef> told = object ? object->getString("report") : std::nullopt;
  if (!said || !told)
    return false;
  for (const json::Value &one : *said)
    if (const json::Array *pair = one.getAsArray(); pair && pair->size() == 2)
      report(static_cast<Severity>((*pair)[0].getAsInteger().value_or(0)), (*pair)[1].getAsString().value_or(""));
  result.report = told->str();
  result.end = WorkerResult::End::Exited;
  result.code = ExitSuccess;
  return true;
}

} // namespace

LibraryCache::LibraryCache(const Request &request) : folder(request.job.compile.cacheDir), key(keyOf(request)) {}

bool LibraryCache::load(StringRef output, WorkerResult &result) const {
  if (key.empty())
    return false;
  SmallString<256> path(folder);
  sys::path::append(path, key + kSuffix);
  std::unique_ptr<MemoryBuffer> file = read(path);
  StringRef rest = file ? file->getBuffer() : "";
  if (!rest.consume_front(kMagic) || rest.size() < kDigestBytes + kLengthBytes)
    return false;
  StringRef digest = rest.take_front(kDigestBytes);
  rest = rest.drop_front(kDigestBytes);
  if (bytesOf(digest) != ArrayRef<uint8_t>(BLAKE3::hash(bytesOf(rest))))
    return false;
  uint64_t length = support::endian::read64le(rest.data());
  rest = rest.drop_front(kLengthBytes);
  if (length > rest.size())
    return false;
  int descriptor;
  if (sys::fs::openFileForWrite(output, descriptor) || write(descriptor, rest.drop_front(length)) ||
      !replay(rest.take_front(length), result)) {
    sys::fs::remove(output);
    return false;
  }
  if (int entry; !sys::fs::openFileForWrite(path, entry, sys::fs::CD_OpenExisting, sys::fs::OF_Append)) {
    sys::fs::setLastAccessAndModificationTime(entry, std::chrono::system_clock::now());
    ::close(entry);
  }
  return true;
}

std::error_code LibraryCache::store(const Request &request, StringRef output, const WorkerResult &result) const {
  if (key.empty() || key != keyOf(request))
    return {};
  std::unique_ptr<MemoryBuffer> library = read(output);
  SmallString<256> model(folder), temporary, path(folder);
  sys::path::append(model, ".new-%%%%%%%%%%%%");
  sys::path::append(path, key + kSuffix);
  if (!library)
    return {};
  int descriptor;
  if (std::error_code error = sys::fs::createUniqueFile(model, descriptor, temporary))
    return error;
  std::string text = toJson(result);
  char length[kLengthBytes];
  support::endian::write64le(length, text.size());
  BLAKE3 hasher;
  for (StringRef part : {StringRef(length, sizeof length), StringRef(text), library->getBuffer()})
    hasher.update(part);
  auto digest = hasher.final<kDigestBytes>();
  StringRef head(reinterpret_cast<const char *>(digest.data()), digest.size());
  std::error_code error =
      write(descriptor, {kMagic, head, StringRef(length, sizeof length), text, library->getBuffer()});
  if (!error)
    error = sys::fs::rename(temporary, path);
  if (error)
    sys::fs::remove(temporary);
  shrink(folder);
  return error;
}

} // namespace attn::tools
