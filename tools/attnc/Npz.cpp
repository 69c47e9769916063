#include "tools/attnc/Npz.h"

#include "tools/attn-run/runner/Npy.h"

#include "llvm/ADT/ScopeExit.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/FileSystem.h"
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

using namespace llvm;
using attn::runner::Fault;

namespace attn::tools {
namespace {

// Records of a ZIP archive (APPNOTE 6.3, sections 4.3.7, 4.3.12, 4.3.16) without what follows at their end.
constexpr char kEnd[] = "PK\5\6", kListed[] = "PK\1\2", kLocal[] = "PK\3\4";
constexpr size_t kEndSize = 22, kListedSize = 46, kLocalSize = 30, kMostComment = 0xffff;
constexpr uint32_t kStored = 0, kDeflated = 8, kMostRatio = 1032; // of deflate

uint32_t word(StringRef bytes, size_t offset) { return support::endian::read32le(bytes.data() + offset); }
uint32_t half(StringRef bytes, size_t offset) { return support::endian::read16le(bytes.data() + offset); }

/// The record of `size` bytes at `offset`; empty where none lies there.
StringRef recordAt(StringRef bytes, size_t offset, size_t size, StringRef magic) {
  if (offset > bytes.size() || bytes.size() - offset < size || !bytes.substr(offset).starts_with(magic))
    return "";
  return bytes.substr(offset);
}

bool inflateAll(StringRef packed, std::string &bytes) {
  z_stream stream = {};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) // no header: the archive has its own
    return false;
  stream.next_in = reinterpret_cast<Bytef *>(const_cast<char *>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  stream.next_out = reinterpret_cast<Bytef *>(bytes.data());
  stream.avail_out = static_cast<uInt>(bytes.size());
  bool isWhole = inflate(&stream, Z_FINISH) == Z_STREAM_END && stream.avail_out == 0;
  inflateEnd(&stream);
  return isWhole;
}

} // namespace

Fault NpzFile::open(const std::string &from, std::string &error) {
  path = from;
  if (sys::fs::is_directory(path)) {
    error = path + ": is a folder";
    return Fault::Request;
  }
  ErrorOr<std::unique_ptr<MemoryBuffer>> opened =
      MemoryBuffer::getFile(path, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  if (!opened) {
    error = path + ": " + opened.getError().message();
    return Fault::Request;
  }
  file = std::move(*opened);
  if (error = readList(); error.empty())
    return Fault::None;
  error = path + ": " + error;
  return Fault::File;
}

std::string NpzFile::readList() {
  StringRef bytes = file->getBuffer();
  StringRef tail = bytes.take_back(kEndSize + kMostComment);
  size_t place = tail.rfind(StringRef(kEnd, 4));
  StringRef end = place == StringRef::npos ? "" : recordAt(tail, place, kEndSize, StringRef(kEnd, 4));
  if (end.empty())
    return "no .npz file: write it with numpy.savez(FILE, input=array, ...)";
  uint32_t count = half(end, 10), offset = word(end, 16);
  if (count == 0xffff || offset == 0xffffffff)
    return "archives of 4 GiB or 65,535 arrays are not read";
  for (uint32_t n = 0; n < count; ++n) {
    StringRef entry = recordAt(bytes, offset, kListedSize, StringRef(kListed, 4));
    uint32_t length = entry.empty() ? 0 : half(entry, 28);
    if (entry.size() < kListedSize + length || entry.empty())
      return "damaged: its list of arrays is cut short";
    StringRef name = entry.substr(kListedSize, length);
    Member member = {half(entry, 10), word(entry, 16), word(entry, 20), word(entry, 24), word(entry, 42)};
    if (half(entry, 8) & 1)
      return "'" + name.str() + "' is encrypted";
    if (member.method != kStored && member.method != kDeflated)
      return "'" + name.str() + "' is packed by method " + std::to_string(member.method) +
             ", 0 (stored) and 8 (deflated) are read";
    if (std::max({member.packed, member.size, member.header}) == 0xffffffff)
      return "'" + name.str() + "' has 4 GiB or more";
    if (!name.consume_back(".npy"))
      return "'" + name.str() + "' is no array";
    if (!members.try_emplace(name.str(), member).second)
      return "'" + name.str() + "' is there twice";
    offset += kListedSize + length + half(entry, 30) + half(entry, 32);
  }
  return "";
}

std::vector<std::string> NpzFile::names() const {
  std::vector<std::string> names;
  for (const auto &[name, member] : members)
    names.push_back(name);
  return names;
}

/// The bytes of `member`, or what is wrong with it.
std::string NpzFile::unpack(const Member &member, std::string &bytes) const {
  StringRef all = file->getBuffer(), local = recordAt(all, member.header, kLocalSize, StringRef(kLocal, 4));
  size_t start = local.empty() ? 0 : kLocalSize + half(local, 26) + half(local, 28);
  if (local.empty() || local.size() < start || local.size() - start < member.packed)
    return "cut short";
  StringRef packed = local.substr(start, member.packed);
  // Asked before memory is taken for it.
  bool isPossible =
      member.method == kStored ? member.size == member.packed : member.size <= uint64_t(member.packed) * kMostRatio;
  if (!isPossible)
    return "its sizes of " + std::to_string(member.packed) + " bytes and of " + std::to_string(member.size) +
           " unpacked contradict each other";
  bytes = member.method == kStored ? packed.str() : std::string(member.size, '\0');
  if (member.method == kDeflated && !inflateAll(packed, bytes))
    return "damaged: it cannot be unpacked";
  if (crc32_z(0, reinterpret_cast<const Bytef *>(bytes.data()), bytes.size()) != member.checksum)
    return "damaged: its checksum differs";
  return "";
}

Fault NpzFile::read(const std::string &name, runner::Tensor &tensor, std::string &error) const {
  std::string bytes;
  if (error = unpack(members.at(name), bytes); error.empty()) {
    // The reader of .npy files takes a file.
    int fd = memfd_create("npy", MFD_CLOEXEC);
    auto close = make_scope_exit([&] { ::close(fd); });
    raw_fd_ostream os(fd, /*shouldClose=*/false);
    os << bytes;
    os.flush();
    if (os.has_error()) {
      error = os.error().message();
      os.clear_error();
    } else if (runner::readNpy(fd, tensor, error)) {
      return Fault::None;
    }
  }
  error = path + ": array '" + name + "': " + error;
  return Fault::File;
}

} // namespace attn::tools
