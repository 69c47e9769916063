#include "frontends/onnx/ExternalData.h"
#include "dialects/attn/NodeLocation.h"
#include "frontends/onnx/Limits.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/ConvertUTF.h"
#include "llvm/Support/Path.h"
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <linux/openat2.h>
#include <new>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

using namespace attn;
using namespace attn::onnx;

ExternalFiles::ExternalFiles(llvm::StringRef modelPath) : folder(llvm::sys::path::parent_path(modelPath).str()) {
  if (folder.empty())
    folder = ".";
}

ExternalFiles::~ExternalFiles() {
  if (folderFd >= 0)
    close(folderFd);
}

std::string ExternalFiles::checkLocation(llvm::StringRef location) {
  if (location.empty())
    return "the location is empty";
  if (location.size() > kMaxNameBytes)
    return "the location has " + std::to_string(location.size()) + " bytes, the limit is " +
           std::to_string(kMaxNameBytes);
  const auto *begin = reinterpret_cast<const llvm::UTF8 *>(location.begin());
  if (location.contains('\0') || !llvm::isLegalUTF8String(&begin, begin + location.size()))
    return "the location is not a file name";
  if (location.starts_with("/"))
    return "the location is an absolute path";
  // Backslashes and drive letters mean a folder elsewhere, and no exporter
  // writes them as part of a name. `*/_ORT_MEM_ADDR_/*` is ONNX Runtime's word
  // for an address in its own memory.
  if (location.contains('\\') || (location.size() > 1 && location[1] == ':') || location.contains("_ORT_MEM_ADDR_"))
    return "the location is not a plain relative path";
  llvm::SmallVector<llvm::StringRef> parts;
  location.split(parts, '/');
  for (llvm::StringRef part : parts) {
    if (part == "..")
      return "the location leaves the model's folder";
    if (part.empty() || part == ".")
      return "the location is not a plain relative path";
  }
  return "";
}

static int openBeneath(int folder, const std::string &location) {
  struct open_how how = {};
  how.flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS;
  int fd;
  do
    fd = syscall(SYS_openat2, folder, location.c_str(), &how, sizeof(how));
  while (fd < 0 && (errno == EINTR || errno == EAGAIN));
  if (fd >= 0 || (errno != ENOSYS && errno != EPERM))
    return fd;
  // A kernel or sandbox without openat2: one component after the other, none
  // of them a link. checkLocation has refused `..`.
  llvm::SmallVector<llvm::StringRef> parts;
  llvm::StringRef(location).split(parts, '/');
  int at = dup(folder);
  for (size_t i = 0; i < parts.size() && at >= 0; ++i) {
    int flags = i + 1 < parts.size() ? O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC : how.flags;
    int next = openat(at, parts[i].str().c_str(), flags);
    int error = errno;
    close(at);
    errno = error;
    at = next;
  }
  return at;
}

int ExternalFiles::open(const std::string &location, std::string &error) {
  error = checkLocation(location);
  if (!error.empty())
    return -1;
  if (folderFd < 0)
    folderFd = ::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  int fd = folderFd < 0 ? -1 : openBeneath(folderFd, location);
  if (fd < 0) {
    error = errno == ELOOP
                ? "the location is or passes through a symbolic link, which might lead anywhere; copy the files "
                  "(cp -rL, or hf download --local-dir)"
            : errno == EXDEV ? "the location leaves the model's folder"
                             : std::string("it cannot be opened: ") + strerror(errno);
    return -1;
  }
  struct stat info;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
    error = "it is not a regular file";
  else if (info.st_nlink != 1)
    error = "the file has " + std::to_string(info.st_nlink) + " names (hard links), and must have one";
  if (error.empty())
    return fd;
  close(fd);
  return -1;
}

std::optional<uint64_t> ExternalFiles::size(llvm::StringRef location, std::string &error) {
  int fd = open(location.str(), error);
  if (fd < 0)
    return std::nullopt;
  struct stat info;
  bool known = fstat(fd, &info) == 0;
  if (!known)
    error = std::string("it cannot be examined: ") + strerror(errno);
  close(fd);
  return known ? std::optional<uint64_t>(info.st_size) : std::nullopt;
}

OwnedBytes ExternalFiles::read(llvm::StringRef location, uint64_t offset, uint64_t length, std::string &error) {
  int fd = open(location.str(), error);
  if (fd < 0)
    return {};
  llvm::scope_exit closeFile([&] { close(fd); });
  struct stat info;
  uint64_t size = fstat(fd, &info) == 0 ? uint64_t(info.st_size) : 0;
  if (offset > size || length > size - offset) {
    error = "bytes " + std::to_string(offset) + " to " + std::to_string(offset) + " + " + std::to_string(length) +
            " are not within its " + std::to_string(size) + " bytes";
    return {};
  }
  // Tensors that share bytes share them here, too; what overlaps otherwise may not add up to more than some copies.
  auto [range, isFresh] = ranges.try_emplace({info.st_dev, info.st_ino, offset, length});
  if (std::shared_ptr<char[]> same = range->second.lock())
    return {llvm::ArrayRef<char>(same.get(), length), same};
  uint64_t &total = bytesRead[{info.st_dev, info.st_ino}];
  if (isFresh && length > kMaxOverlap * size - total) {
    error = "its tensors overlap: they read more than " + std::to_string(kMaxOverlap) + " times its " +
            std::to_string(size) + " bytes";
    return {};
  }
  total += isFresh ? length : 0;
  std::shared_ptr<char[]> buffer(new (std::nothrow) char[length ? length : 1]);
  if (!buffer) {
    error = "no memory for its " + std::to_string(length) + " bytes";
    return {};
  }
  for (uint64_t done = 0; done < length;) {
    ssize_t got = pread(fd, buffer.get() + done, length - done, offset + done);
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0) {
      error = got < 0 ? std::string("it cannot be read: ") + strerror(errno) : "it became shorter while it was read";
      return {};
    }
    done += got;
  }
  range->second = buffer;
  return {llvm::ArrayRef<char>(buffer.get(), length), buffer};
}
