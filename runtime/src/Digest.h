#ifndef RUNTIME_SRC_DIGEST_H
#define RUNTIME_SRC_DIGEST_H

#include "Error.h"
#include "Memory.h"

namespace attn::rt {

/// A file to hash, and where copies of the hashed bytes go.
struct DigestJob {
  int file;
  attnrt_footer footer;
  const Array<uint8_t> &footerHead; ///< the footer's bytes before its digest, of whichever version
  int elfCopy;                      ///< descriptor that gets file[0, elf_size), or -1
  uint8_t *weightsCopy;             ///< gets the weights, or nullptr
  int32_t numThreads;               ///< 0: as many as CPUs, at most 8
  const char *name;                 ///< for messages
};

/// The digest of abi.h. Each byte is read once: what is copied is what was hashed.
attnrt_status computeDigest(const DigestJob &job, uint8_t digest[32]);

/// The copies alone. Nothing else of the file is read.
attnrt_status copyParts(const DigestJob &job);

/// Reads or writes all of `size` bytes. False: errno is set, 0 at the end of the file.
bool readAt(int file, void *data, uint64_t size, uint64_t offset);
bool writeAt(int file, const void *data, uint64_t size, uint64_t offset);

} // namespace attn::rt

#endif // RUNTIME_SRC_DIGEST_H
