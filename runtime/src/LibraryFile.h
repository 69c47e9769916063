#ifndef RUNTIME_SRC_LIBRARYFILE_H
#define RUNTIME_SRC_LIBRARYFILE_H

#include "Error.h"
#include "Memory.h"
#include <sys/stat.h>

namespace attn::rt {

/// The file of a model library, verified: its weights mapped, its ELF object
/// copied to a sealed memfd, so that what is executed is what was hashed; to a
/// file in the folder ATTNRT_PERF_DIR where the environment names one.
class LibraryFile {
public:
  LibraryFile() = default;
  LibraryFile(const LibraryFile &) = delete;
  ~LibraryFile();

  /// Verifies and maps the file behind `descriptor`, which it takes over even
  /// when it fails. `name` is for messages.
  attnrt_status open(int descriptor, const char *name, const attnrt_load_options &options);

  /// Whether the file was written to since it was opened or verified. One fstat.
  bool wasModified() const;
  /// Verifies the digest again. Nothing else may use the object meanwhile.
  attnrt_status verifyAgain();

  /// Weights may be written between these two, which touch whole pages around
  /// [offset, offset + size). False: out of memory.
  bool makeWritable(uint64_t offset, uint64_t size) { return protect(offset, size, true); }
  void makeReadOnly(uint64_t offset, uint64_t size) { protect(offset, size, false); }

  const attnrt_footer &footer() const { return trailer; }
  int elfDescriptor() const { return elf; }
  uint8_t *weights() const { return weightBytes; }
  const char *name() const { return label.data(); }

  /// Leaves the ELF descriptor open for ever: the loader knows the object by
  /// its number, so it must not come to mean another file.
  void leakElfDescriptor() { elf = -1; }

private:
  attnrt_status readStamp(struct stat &stamp) const;
  attnrt_status readFooter(int64_t fileSize);
  attnrt_status readFooterHead(uint64_t fileSize);
  attnrt_status checkVersion() const;
  attnrt_status createElfCopy();
  attnrt_status createNamedCopy(const char *folder);
  attnrt_status mapWeights();
  attnrt_status verifyDigest(int elfCopy, uint8_t *weightsCopy);
  bool protect(uint64_t offset, uint64_t size, bool writable);

  int file = -1, elf = -1;
  int32_t numThreads = 0;
  bool copied = false;
  struct stat opened = {};
  attnrt_footer trailer = {};
  Array<uint8_t> footerHead; // as it is in the file: a newer compiler's has more than `trailer`
  Array<char> label;
  void *map = nullptr;
  uint64_t mapSize = 0;
  uint8_t *weightBytes = nullptr;
};

} // namespace attn::rt

#endif // RUNTIME_SRC_LIBRARYFILE_H
