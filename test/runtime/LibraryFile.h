// Writes model library files out of a hand-made shared object. The digest is
// computed here once more, from the text of abi.h: the hash function is all that is shared.
#ifndef TEST_RUNTIME_LIBRARYFILE_H
#define TEST_RUNTIME_LIBRARYFILE_H

#include "attnrt/abi.h"
#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <llvm-c/blake3.h>
#include <string>
#include <vector>

namespace attn::test {

using Bytes = std::vector<char>;

inline Bytes readFile(const std::string &path) {
  std::ifstream stream(path, std::ios::binary);
  return Bytes(std::istreambuf_iterator<char>(stream), {});
}

inline void writeFile(const std::string &path, const Bytes &bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), std::streamsize(bytes.size()));
}

/// The weights that fixture.c describes, then zeros up to `size`.
inline Bytes fixtureWeights(size_t size = 1212) {
  Bytes bytes(size);
  auto at = [&](size_t offset) { return reinterpret_cast<float *>(bytes.data() + offset); };
  for (int i = 0; i < 32; ++i)
    at(0)[i] = float(i / 4) + 0.25f * float(i % 4);
  for (int k = 0; k < 5; ++k)
    for (int n = 0; n < 7; ++n) {
      at(128)[k * 7 + n] = float(10 * k + n);
      at(320)[(n / 4) * 20 + k * 4 + n % 4] = float(10 * k + n);
      at(512)[(n / 4) * 20 + k * 4 + n % 4] = float(10 * k + n);
    }
  return bytes;
}

inline void hash(const void *bytes, size_t size, uint8_t (&result)[32]) {
  llvm_blake3_hasher hasher;
  llvm_blake3_hasher_init(&hasher);
  llvm_blake3_hasher_update(&hasher, bytes, size);
  llvm_blake3_hasher_finalize(&hasher, result, sizeof(result));
}

/// Of a file that ends with a footer whose digest is 0.
inline void computeDigest(const Bytes &file, size_t footerSize, uint8_t (&digest)[32]) {
  std::vector<uint8_t> hashes;
  size_t size = file.size() - footerSize, head = footerSize - sizeof(attnrt_footer) + offsetof(attnrt_footer, digest);
  for (size_t begin = 0; begin < size; begin += ATTNRT_DIGEST_LEAF) {
    uint8_t leaf[32];
    hash(file.data() + begin, std::min<size_t>(ATTNRT_DIGEST_LEAF, size - begin), leaf);
    hashes.insert(hashes.end(), leaf, leaf + 32);
  }
  hashes.insert(hashes.end(), file.begin() + long(size), file.begin() + long(size + head));
  hash(hashes.data(), hashes.size(), digest);
}

/// ELF, padding, weights and a footer that fits, with `more` bytes of a later
/// version and changed by `edit` before the digest is computed.
template <typename Edit> Bytes makeLibrary(const Bytes &elf, const Bytes &weights, Edit edit, size_t more = 0) {
  Bytes file = elf;
  file.resize((file.size() + ATTNRT_PAGE_SIZE - 1) / ATTNRT_PAGE_SIZE * ATTNRT_PAGE_SIZE);
  attnrt_footer footer = {};
  footer.abi_version = ATTNRT_ABI_VERSION;
  footer.needed_abi = ATTNRT_ABI_NEEDED;
  footer.elf_size = elf.size();
  footer.weights_offset = file.size();
  footer.weights_size = weights.size();
  file.insert(file.end(), weights.begin(), weights.end());
  footer.footer_size = sizeof(footer) + more;
  footer.file_size = file.size() + footer.footer_size;
  memcpy(footer.magic, ATTNRT_FOOTER_MAGIC, sizeof(footer.magic));
  edit(footer);
  const char *bytes = reinterpret_cast<const char *>(&footer);
  constexpr size_t kHead = offsetof(attnrt_footer, digest);
  file.insert(file.end(), bytes, bytes + kHead);
  file.resize(file.size() + more, 'x');
  file.insert(file.end(), bytes + kHead, bytes + sizeof(footer));
  computeDigest(file, sizeof(footer) + more, footer.digest);
  memcpy(file.data() + file.size() - sizeof(footer) + kHead, footer.digest, sizeof(footer.digest));
  return file;
}

inline Bytes makeLibrary(const Bytes &elf, const Bytes &weights) {
  return makeLibrary(elf, weights, [](attnrt_footer &) {});
}

} // namespace attn::test

#endif // TEST_RUNTIME_LIBRARYFILE_H
