#ifndef COMPILER_PACKAGE_LIBRARYFILE_H
#define COMPILER_PACKAGE_LIBRARYFILE_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace attn {

/// An output file that appears whole or not at all: bytes go to a temporary
/// file beside it, which is synced and renamed over `path` by a commit and
/// removed by the destructor otherwise. A link at `path` is replaced, a
/// folder, pipe or device is refused. Not thread-safe.
class LibraryFile {
public:
  /// Null, and `error` set, when the file cannot be made. Errors call it
  /// `name`, or by its path where that is empty.
  static std::unique_ptr<LibraryFile> create(llvm::StringRef path, std::string &error, llvm::StringRef name = "");
  ~LibraryFile();
  LibraryFile(const LibraryFile &) = delete;
  LibraryFile &operator=(const LibraryFile &) = delete;

  /// Appends. False after a failed write; commit then reports it.
  bool append(llvm::ArrayRef<char> bytes);
  /// Appends zeros up to a multiple of `alignment`.
  bool padTo(uint64_t alignment);
  uint64_t size() const { return written; }

  /// Makes the file visible as it is. False, and `error` set, on failure.
  bool commit(std::string &error);
  /// Appends the attnrt_footer of a library whose ELF object are the first
  /// `elfSize` bytes and whose weights start at `weightsOffset`, then commits.
  bool commitLibrary(uint64_t elfSize, uint64_t weightsOffset, uint64_t weightsSize, uint64_t stackSize,
                     uint32_t neededAbi, std::string &error);

private:
  LibraryFile() = default;
  void hash(llvm::ArrayRef<char> bytes);
  bool writeAll(llvm::ArrayRef<char> bytes);
  bool writeThrough(llvm::ArrayRef<char> bytes);
  bool flush();

  struct Digest;
  std::unique_ptr<Digest> digest;
  std::string path, temporary, name;
  int file = -1;
  int writeError = 0;          // errno of the first failed write
  uint64_t written = 0;        // with what is still in `unwritten`
  std::vector<char> unwritten; // less than a huge page of the file
};

} // namespace attn

#endif // COMPILER_PACKAGE_LIBRARYFILE_H
