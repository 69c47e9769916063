#include "tools/options/ScratchFolder.h"

#include "llvm/Support/FileSystem.h"
#include <cerrno>
#include <cstdlib>
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace llvm;

namespace attn::tools {
namespace {

constexpr StringLiteral kPrefix = ".attnc-";
constexpr size_t kRandom = 6; // characters that mkdtemp chooses
constexpr int kTries = 100;
constexpr int kMaxEntries = 100000; // looked at by one sweep of a crowded folder

/// A descriptor of our own folder `path` that holds its lock, or -1.
int lockFolder(const std::string &path) {
  int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0)
    return -1;
  struct stat held, named;
  // The name may have gone, or changed hands, between open and lock.
  if (flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &held) == 0 && lstat(path.c_str(), &named) == 0 &&
      held.st_ino == named.st_ino && held.st_dev == named.st_dev && held.st_uid == geteuid())
    return fd;
  close(fd);
  return -1;
}

/// Removes the folders whose owners were killed.
void sweep(const std::string &parent) {
  DIR *entries = opendir(parent.c_str());
  if (!entries)
    return;
  for (int count = 0; count < kMaxEntries; ++count) {
    const dirent *entry = readdir(entries);
    if (!entry)
      break;
    StringRef name = entry->d_name;
    if (!name.starts_with(kPrefix) || name.size() != kPrefix.size() + kRandom)
      continue;
    std::string path = parent + "/" + name.str();
    int fd = lockFolder(path);
    if (fd < 0)
      continue;
    sys::fs::remove_directories(path, /*IgnoreErrors=*/true);
    close(fd);
  }
  closedir(entries);
}

} // namespace

std::unique_ptr<ScratchFolder> ScratchFolder::create(StringRef parent) {
  sweep(parent.str());
  for (int n = 0; n < kTries; ++n) {
    std::string folder = (parent + "/" + kPrefix).str() + std::string(kRandom, 'X');
    if (!mkdtemp(folder.data()))
      return nullptr;
    // Another's sweep may take it before it is locked: then the next one.
    if (int fd = lockFolder(folder); fd >= 0)
      return std::unique_ptr<ScratchFolder>(new ScratchFolder(std::move(folder), fd));
    if (access(folder.c_str(), F_OK) == 0 && rmdir(folder.c_str()) != 0 && errno != ENOENT)
      return nullptr;
  }
  errno = EBUSY;
  return nullptr;
}

std::string ScratchFolder::temporaryParent() {
  const char *tmp = std::getenv("TMPDIR");
  return tmp && *tmp ? tmp : "/tmp";
}

ScratchFolder::~ScratchFolder() {
  sys::fs::remove_directories(folder, /*IgnoreErrors=*/true);
  close(lock);
}

} // namespace attn::tools
