#include "tools/attnc/FileDigests.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/BLAKE3.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/LEB128.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

using namespace llvm;

namespace attn::tools {
namespace {

// The file is this, the digest of all lines, and a line per file: its state, a
// space, and [digest, external files...] as JSON.
constexpr StringLiteral kDigestsMagic = "attncdig2";
constexpr size_t kMostFiles = 256;
constexpr int64_t kSettledSeconds = 60;

std::string digestOf(StringRef bytes) {
  return toHex(BLAKE3::hash<32>({bytes.bytes_begin(), bytes.size()}), /*LowerCase=*/true);
}

std::string stateOf(const struct stat &status, FileKind kind) {
  std::string state;
  raw_string_ostream os(state);
  os << (kind == FileKind::Model ? "model:" : "file:") << status.st_dev << ':' << status.st_ino << ':'
     << status.st_size;
  for (const timespec &time : {status.st_mtim, status.st_ctim})
    os << ':' << time.tv_sec << '.' << time.tv_nsec;
  return state;
}

/// How an external_data of `size` bytes begins.
std::string externalData(size_t size) {
  std::string bytes = "\x6a";
  raw_string_ostream os(bytes);
  encodeULEB128(size, os);
  return bytes;
}

/// The files that a serialised model names: each is an external_data of {key:
/// "location", value: PATH} and nothing else. False where the word stands in
/// another form, in which a path might hide: of two values, the last one counts.
bool findExternalFiles(StringRef model, std::vector<std::string> &names) {
  constexpr StringLiteral word = "location", before = "\x0a\x08";
  for (size_t at = 0;;) {
    const void *found = memmem(model.data() + at, model.size() - at, word.data(), word.size());
    if (!found)
      break;
    at = static_cast<const char *>(found) - model.data();
    StringRef entry = model.take_front(at);
    at += word.size();
    StringRef rest = model.substr(at);
    if (!entry.consume_back(before) || !rest.consume_front("\x12") || rest.size() < 2)
      return false;
    size_t length = uint8_t(rest[0]), header = 1;
    if (length >= 0x80) {
      length = (length & 0x7f) | size_t(uint8_t(rest[1])) << 7;
      header = 2;
      if (uint8_t(rest[1]) >= 0x80)
        return false;
    }
    size_t all = before.size() + word.size() + 1 + header + length;
    if (rest.size() < header + length || !entry.ends_with(externalData(all)))
      return false;
    names.push_back(rest.substr(header, length).str());
  }
  sort(names);
  names.erase(llvm::unique(names), names.end());
  return true;
}

/// The lines of the file of digests; none of a damaged one.
std::vector<std::string> readLines(StringRef path) {
  std::vector<std::string> lines;
  auto file = MemoryBuffer::getFile(path, /*IsText=*/false, /*RequiresNullTerminator=*/false, /*IsVolatile=*/true);
  if (!file)
    return lines;
  auto [head, text] = (*file)->getBuffer().split('\n');
  if (!head.consume_front(kDigestsMagic) || head != digestOf(text))
    return lines;
  SmallVector<StringRef> parts;
  text.split(parts, '\n', /*MaxSplit=*/-1, /*KeepEmpty=*/false);
  for (StringRef part : parts)
    lines.push_back(part.str());
  return lines;
}

/// Whether the time of a file's last change tells each of them.
bool tellsChanges(const std::string &file) {
  struct statfs system;
  if (::statfs(file.c_str(), &system))
    return false;
  constexpr uint64_t kZfs = 0x2fc12fc1;
  constexpr uint64_t kTelling[] = {EXT4_SUPER_MAGIC,     XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC, F2FS_SUPER_MAGIC, kZfs,
                                   OVERLAYFS_SUPER_MAGIC};
  return is_contained(kTelling, static_cast<uint32_t>(system.f_type));
}

} // namespace

FileDigests::FileDigests(StringRef folder) {
  SmallString<256> name(folder);
  sys::path::append(name, "digests");
  path = name.str().str();
}

std::optional<FileDigest> FileDigests::find(StringRef state) const {
  for (const std::string &line : readLines(path)) {
    auto [key, text] = StringRef(line).split(' ');
    if (key != state)
      continue;
    Expected<json::Value> value = json::parse(text);
    const json::Array *words = value ? value->getAsArray() : nullptr;
    if (!words || words->empty()) {
      consumeError(value.takeError());
      return std::nullopt;
    }
    FileDigest digest;
    for (const json::Value &word : *words)
      digest.externalFiles.push_back(word.getAsString().value_or("").str());
    digest.text = digest.externalFiles.front();
    digest.externalFiles.erase(digest.externalFiles.begin());
    return digest;
  }
  return std::nullopt;
}

void FileDigests::keep(StringRef state, const FileDigest &digest) const {
  if (!all_of(digest.externalFiles, [](StringRef name) { return json::isUTF8(name); }))
    return;
  json::Array words{digest.text};
  for (const std::string &name : digest.externalFiles)
    words.push_back(name);
  std::vector<std::string> lines = readLines(path);
  if (lines.size() >= kMostFiles)
    lines.erase(lines.begin(), lines.end() - (kMostFiles - 1));
  std::string line;
  raw_string_ostream(line) << state << ' ' << json::Value(std::move(words));
  lines.push_back(line);
  std::string text = join(lines, "\n");

  SmallString<256> temporary;
  int descriptor;
  if (sys::fs::create_directories(sys::path::parent_path(path)) ||
      sys::fs::createUniqueFile(sys::path::parent_path(path) + "/.new-%%%%%%%%%%%%", descriptor, temporary))
    return;
  raw_fd_ostream os(descriptor, /*shouldClose=*/true);
  os << kDigestsMagic << digestOf(text) << '\n' << text;
  os.close();
  bool failed = os.has_error();
  os.clear_error();
  if (failed || sys::fs::rename(temporary, path))
    sys::fs::remove(temporary);
}

std::optional<FileDigest> FileDigests::of(const Twine &file, FileKind kind) const {
  std::string name = file.str();
  struct stat before, after;
  if (::stat(name.c_str(), &before) || !S_ISREG(before.st_mode)) // what is read from a pipe is gone
    return std::nullopt;
  bool isTold = tellsChanges(name);
  std::string state = stateOf(before, kind);
  if (std::optional<FileDigest> known = isTold ? find(state) : std::nullopt)
    return known;
  bool isSettled = isTold && std::time(nullptr) - before.st_ctim.tv_sec > kSettledSeconds;
  auto buffer = MemoryBuffer::getFile(name, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  if (!buffer)
    return std::nullopt;
  FileDigest digest{digestOf((*buffer)->getBuffer()), {}};
  if (kind == FileKind::Model && !findExternalFiles((*buffer)->getBuffer(), digest.externalFiles))
    return std::nullopt;
  if (isSettled && !::stat(name.c_str(), &after) && stateOf(after, kind) == state)
    keep(state, digest);
  return digest;
}

} // namespace attn::tools
