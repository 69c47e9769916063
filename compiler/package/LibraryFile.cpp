#include "compiler/package/LibraryFile.h"

#include "attnrt/abi.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/BLAKE3.h"
#include "llvm/Support/Path.h"
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

namespace attn {

// A thread costs some 50 us, which is what hashing 100 KB takes.
static constexpr size_t kHashedBeside = 1 << 20;
// The page cache keeps what one write gave it in pages of that size, if it can.
// A run then reads its weights through huge pages (BERT-base: 1 % faster).
static constexpr size_t kHugePage = 2 << 20;

/// The digest of abi.h, leaf after leaf as the bytes go by.
struct LibraryFile::Digest {
  llvm::BLAKE3 leaf, root;
  uint64_t inLeaf = 0;

  void finishLeaf() {
    root.update(leaf.final());
    leaf.init();
    inLeaf = 0;
  }
};

static std::string describe(llvm::StringRef action, llvm::StringRef path, int code) {
  return ("cannot " + action + " '" + path + "': " + std::strerror(code)).str();
}

std::unique_ptr<LibraryFile> LibraryFile::create(llvm::StringRef path, std::string &error, llvm::StringRef name) {
  std::string target = path.str();
  if (name.empty())
    name = path;
  struct stat status;
  if (lstat(target.c_str(), &status) == 0 && !S_ISREG(status.st_mode) && !S_ISLNK(status.st_mode)) {
    error = "cannot write '" + name.str() + "': it is " + (S_ISDIR(status.st_mode) ? "a folder" : "no regular file");
    return nullptr;
  }
  llvm::SmallString<256> folder(path);
  llvm::sys::path::remove_filename(folder);
  if (folder.empty())
    folder = ".";
  std::string temporary = (folder + "/." + llvm::sys::path::filename(path) + ".XXXXXX").str();
  // 0600 until the commit: nobody reads a half-written library.
  int file = mkostemp(temporary.data(), O_CLOEXEC);
  if (file < 0) {
    error = describe("write", name, errno);
    return nullptr;
  }
  std::unique_ptr<LibraryFile> result(new LibraryFile);
  result->digest = std::make_unique<Digest>();
  result->path = std::move(target);
  result->name = name.str();
  result->temporary = std::move(temporary);
  result->file = file;
  return result;
}

LibraryFile::~LibraryFile() {
  if (file >= 0)
    close(file);
  if (!temporary.empty())
    unlink(temporary.c_str());
}

bool LibraryFile::writeThrough(llvm::ArrayRef<char> bytes) {
  while (!writeError && !bytes.empty()) {
    ssize_t count = ::write(file, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR)
      continue;
    if (count < 0) {
      writeError = errno;
      break;
    }
    bytes = bytes.drop_front(count);
  }
  return !writeError;
}

bool LibraryFile::writeAll(llvm::ArrayRef<char> bytes) {
  while (!writeError && !bytes.empty()) {
    size_t room = kHugePage - written % kHugePage;
    bool isWhole = room == kHugePage && bytes.size() >= kHugePage;
    size_t count = isWhole ? bytes.size() / kHugePage * kHugePage : std::min(room, bytes.size());
    written += count;
    if (isWhole) {
      writeThrough(bytes.take_front(count));
    } else {
      unwritten.insert(unwritten.end(), bytes.begin(), bytes.begin() + count);
      if (count == room)
        flush();
    }
    bytes = bytes.drop_front(count);
  }
  return !writeError;
}

bool LibraryFile::flush() {
  bool healthy = writeThrough(unwritten);
  unwritten.clear();
  return healthy;
}

void LibraryFile::hash(llvm::ArrayRef<char> bytes) {
  while (!bytes.empty()) {
    uint64_t count = std::min<uint64_t>(bytes.size(), ATTNRT_DIGEST_LEAF - digest->inLeaf);
    digest->leaf.update(llvm::StringRef(bytes.data(), count));
    digest->inLeaf += count;
    if (digest->inLeaf == ATTNRT_DIGEST_LEAF)
      digest->finishLeaf();
    bytes = bytes.drop_front(count);
  }
}

bool LibraryFile::append(llvm::ArrayRef<char> bytes) {
  // Writing takes the page cache as long as hashing takes a core, so large
  // pieces have both at once. A thread that the system refuses costs time only.
  struct Work {
    LibraryFile *file;
    llvm::ArrayRef<char> bytes;
  } work = {this, bytes};
  auto hashWork = [](void *argument) -> void * {
    Work *work = static_cast<Work *>(argument);
    work->file->hash(work->bytes);
    return nullptr;
  };
  pthread_t thread;
  if (bytes.size() < kHashedBeside || pthread_create(&thread, nullptr, hashWork, &work) != 0) {
    hash(bytes);
    return writeAll(bytes);
  }
  bool healthy = writeAll(bytes);
  pthread_join(thread, nullptr);
  return healthy;
}

bool LibraryFile::padTo(uint64_t alignment) {
  std::vector<char> zeros((alignment - written % alignment) % alignment, 0);
  return append(zeros);
}

bool LibraryFile::commit(std::string &error) {
  flush();
  mode_t mask = umask(0);
  umask(mask);
  if (!writeError && (fchmod(file, 0666 & ~mask) != 0 || fsync(file) != 0))
    writeError = errno;
  int closed = close(file);
  file = -1;
  if (!writeError && closed != 0)
    writeError = errno;
  if (!writeError && rename(temporary.c_str(), path.c_str()) != 0)
    writeError = errno;
  if (writeError) {
    error = describe("write", name, writeError);
    return false;
  }
  temporary.clear();
  // The rename itself survives a power cut once the folder is synced; not all
  // file systems allow it, and the file is complete without.
  llvm::SmallString<256> folder(path);
  llvm::sys::path::remove_filename(folder);
  int directory = open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory >= 0) {
    (void)fsync(directory);
    close(directory);
  }
  return true;
}

bool LibraryFile::commitLibrary(uint64_t elfSize, uint64_t weightsOffset, uint64_t weightsSize, uint64_t stackSize,
                                uint32_t neededAbi, std::string &error) {
  attnrt_footer footer = {};
  footer.abi_version = ATTNRT_ABI_VERSION;
  footer.needed_abi = neededAbi;
  footer.elf_size = elfSize;
  footer.weights_offset = weightsOffset;
  footer.weights_size = weightsSize;
  footer.stack_size = stackSize;
  footer.file_size = written + sizeof(footer);
  footer.footer_size = sizeof(footer);
  std::memcpy(footer.magic, ATTNRT_FOOTER_MAGIC, sizeof(footer.magic));
  if (digest->inLeaf)
    digest->finishLeaf();
  digest->root.update(llvm::StringRef(reinterpret_cast<const char *>(&footer), offsetof(attnrt_footer, digest)));
  llvm::copy(digest->root.final(), footer.digest);
  writeAll(llvm::ArrayRef<char>(reinterpret_cast<const char *>(&footer), sizeof(footer)));
  return commit(error);
}

} // namespace attn
