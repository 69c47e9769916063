#include "tools/attnc/LibraryCache.h"
#include "tools/attnc/FileDigests.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/BLAKE3.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/Path.h"
#include "llvm/TargetParser/Host.h"
#include <chrono>
#include <unistd.h>

using namespace llvm;

namespace attn::tools {
namespace {

// An entry is this, the lengths of the compile's messages and of the library (8
// bytes each), the messages as JSON, the library, and the BLAKE3 digest of the
// key and all from the lengths on.
constexpr StringLiteral kMagic = "attnclib3";
constexpr StringLiteral kSuffix = ".library";
constexpr size_t kDigestBytes = 32, kLengthBytes = 8, kPieceBytes = 1 << 20;
constexpr uint64_t kLimit = uint64_t(10) << 30;

/// A digest of pieces, each with its length.
class Key {
public:
  void add(StringRef piece) {
    char length[kLengthBytes];
    support::endian::write64le(length, piece.size());
    hasher.update(StringRef(length, sizeof length));
    hasher.update(piece);
  }
  bool addFile(const FileDigests &digests, const Twine &path) {
    std::optional<FileDigest> file = digests.of(path, FileKind::Plain);
    if (file)
      add(file->text);
    return file.has_value();
  }
  std::string text() { return toHex(hasher.final<kDigestBytes>(), /*LowerCase=*/true); }

private:
  BLAKE3 hasher;
};

bool addModel(Key &key, const FileDigests &digests, StringRef path) {
  std::optional<FileDigest> model = path.ends_with(".onnx") ? digests.of(path, FileKind::Model) : std::nullopt;
  if (!model)
    return false;
  key.add(model->text);
  for (const std::string &name : model->externalFiles) {
    SmallString<256> beside(sys::path::parent_path(path));
    sys::path::append(beside, name);
    key.add(name);
    if (!key.addFile(digests, beside))
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
  FileDigests digests(options.cacheDir);
  key.add(LLVM_VERSION_STRING);
  if (!key.addFile(digests, "/proc/self/exe"))
    return "";
  addProcessor(key);
  for (const std::string &argument : request.arguments)
    key.add(argument);
  if (!request.header.empty())
    key.add(sys::path::stem(request.output)); // names in the header begin with it
  if (job.entries.empty())
    return addModel(key, digests, job.input) ? key.text() : "";
  for (const auto &[name, path] : job.entries) {
    key.add(name);
    if (!addModel(key, digests, path))
      return "";
  }
  return key.text();
}

std::string lengthsOf(size_t messages, size_t library) {
  std::string bytes(2 * kLengthBytes, '\0');
  support::endian::write64le(bytes.data(), messages);
  support::endian::write64le(bytes.data() + kLengthBytes, library);
  return bytes;
}

/// The next `size` bytes of a file, or fewer where it ends.
std::string readBytes(int file, size_t size) {
  std::string bytes(size, '\0');
  size_t filled = 0;
  while (filled != size) {
    Expected<size_t> count = sys::fs::readNativeFile(file, {bytes.data() + filled, size - filled});
    if (!count)
      consumeError(count.takeError());
    if (!count || !*count)
      break;
    filled += *count;
  }
  bytes.resize(filled);
  return bytes;
}

/// Copies `size` bytes in pieces that stay in a processor's cache, with their digest. False if the file is shorter.
bool copy(int from, uint64_t size, raw_ostream &to, BLAKE3 &hasher) {
  while (size) {
    std::string piece = readBytes(from, std::min<uint64_t>(size, kPieceBytes));
    if (piece.empty())
      return false;
    hasher.update(piece);
    to << piece;
    size -= piece.size();
  }
  return true;
}

/// Closes `os` and tells what went wrong since it was opened.
std::error_code close(raw_fd_ostream &os) {
  os.close();
  std::error_code error = os.error();
  os.clear_error();
  return error;
}

/// A file that is closed where its scope ends.
class OpenFile {
public:
  explicit OpenFile(const Twine &path) {
    if (!sys::fs::is_regular_file(path) || sys::fs::openFileForRead(path, descriptor))
      descriptor = -1;
  }
  ~OpenFile() {
    if (descriptor >= 0)
      ::close(descriptor);
  }
  OpenFile(const OpenFile &) = delete;
  OpenFile &operator=(const OpenFile &) = delete;
  int get() const { return descriptor; }
  explicit operator bool() const { return descriptor >= 0; }

private:
  int descriptor = -1;
};

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
  OpenFile entry(path);
  if (!entry || readBytes(entry.get(), kMagic.size()) != kMagic)
    return false;
  std::string lengths = readBytes(entry.get(), 2 * kLengthBytes);
  sys::fs::file_status status;
  if (lengths.size() != 2 * kLengthBytes || sys::fs::status(entry.get(), status))
    return false;
  uint64_t said = support::endian::read64le(lengths.data());
  uint64_t library = support::endian::read64le(lengths.data() + kLengthBytes);
  uint64_t most = status.getSize();
  if (said > most || library > most || kMagic.size() + lengths.size() + said + library + kDigestBytes != most)
    return false;
  std::string messages = readBytes(entry.get(), said);
  int descriptor;
  if (sys::fs::openFileForWrite(output, descriptor))
    return false;
  raw_fd_ostream os(descriptor, /*shouldClose=*/true, /*unbuffered=*/true);
  BLAKE3 hasher;
  hasher.update(key); // so that an entry under another name is none
  hasher.update(lengths);
  hasher.update(messages);
  bool isWhole = copy(entry.get(), library, os, hasher);
  if (close(os) || !isWhole || readBytes(entry.get(), kDigestBytes) != toStringRef(hasher.final<kDigestBytes>()) ||
      !replay(messages, result)) {
    sys::fs::remove(output);
    return false;
  }
  if (int used; !sys::fs::openFileForWrite(path, used, sys::fs::CD_OpenExisting, sys::fs::OF_Append)) {
    sys::fs::setLastAccessAndModificationTime(used, std::chrono::system_clock::now());
    ::close(used);
  }
  return true;
}

std::error_code LibraryCache::store(const Request &request, StringRef output, const WorkerResult &result) const {
  if (key.empty() || key != keyOf(request))
    return {};
  OpenFile library(output);
  sys::fs::file_status status;
  SmallString<256> model(folder), temporary, path(folder);
  sys::path::append(model, ".new-%%%%%%%%%%%%");
  sys::path::append(path, key + kSuffix);
  if (!library || sys::fs::status(library.get(), status))
    return {};
  int descriptor;
  if (std::error_code error = sys::fs::createUniqueFile(model, descriptor, temporary))
    return error;
  std::string messages = toJson(result), lengths = lengthsOf(messages.size(), status.getSize());
  raw_fd_ostream os(descriptor, /*shouldClose=*/true, /*unbuffered=*/true);
  os << kMagic << lengths << messages;
  BLAKE3 hasher;
  hasher.update(key);
  hasher.update(lengths);
  hasher.update(messages);
  bool isWhole = copy(library.get(), status.getSize(), os, hasher);
  os << toStringRef(hasher.final<kDigestBytes>());
  std::error_code error = close(os);
  if (!error && isWhole)
    error = sys::fs::rename(temporary, path);
  if (error || !isWhole)
    sys::fs::remove(temporary);
  shrink(folder);
  return error;
}

} // namespace attn::tools
