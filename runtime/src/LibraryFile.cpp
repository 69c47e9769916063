#include "LibraryFile.h"

#include "Digest.h"
#include "VerifiedFiles.h"
#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace attn::rt;

#if defined(__x86_64__)
static constexpr uint16_t kMachine = EM_X86_64;
static constexpr const char *kMachineName = "x86-64";
#elif defined(__aarch64__)
static constexpr uint16_t kMachine = EM_AARCH64;
static constexpr const char *kMachineName = "aarch64";
#elif defined(__riscv)
static constexpr uint16_t kMachine = EM_RISCV;
static constexpr const char *kMachineName = "riscv64";
#else
#error "add this architecture's ELF machine number"
#endif

using Number = unsigned long long; // for printf

LibraryFile::~LibraryFile() {
  if (map)
    munmap(map, mapSize);
  if (elf >= 0)
    close(elf);
  if (file >= 0)
    close(file);
}

attnrt_status LibraryFile::readStamp(struct stat &stamp) const {
  if (fstat(file, &stamp) != 0)
    return fail(ATTNRT_IO, "%s: cannot be inspected: %s", name(), strerror(errno));
  if (!S_ISREG(stamp.st_mode))
    return fail(ATTNRT_CORRUPT_FILE, "%s: not a regular file", name());
  return ATTNRT_OK;
}

// Whether the contents may not have changed between the two.
static bool isSame(const struct stat &a, const struct stat &b) {
  return a.st_size == b.st_size && a.st_mtim.tv_sec == b.st_mtim.tv_sec && a.st_mtim.tv_nsec == b.st_mtim.tv_nsec;
}

attnrt_status LibraryFile::open(int descriptor, const char *name, const attnrt_load_options &options) {
  file = descriptor;
  numThreads = options.num_threads;
  copied = options.copy_weights;
  if (!label.allocate(strlen(name) + 1))
    return failMemory(strlen(name), "a name");
  strcpy(label.data(), name);

  if (attnrt_status status = readStamp(opened))
    return status;
  if (attnrt_status status = readFooter(opened.st_size))
    return status;
  if (attnrt_status status = createElfCopy())
    return status;
  if (attnrt_status status = mapWeights())
    return status;
  bool isTrusted = options.verify == ATTNRT_VERIFY_NEVER ||
                   (options.verify == ATTNRT_VERIFY_ONCE && isNotedAsVerified(opened, trailer.digest));
  uint8_t *weightsCopy = copied ? weightBytes : nullptr;
  if (attnrt_status status = isTrusted ? copyParts({file, trailer, footerHead, elf, weightsCopy, numThreads, name})
                                       : verifyDigest(elf, weightsCopy))
    return status;
  struct stat now;
  if (attnrt_status status = readStamp(now))
    return status;
  if (!isSame(now, opened))
    return fail(ATTNRT_CORRUPT_FILE, "%s: modified while it was read", name);
  if (options.verify == ATTNRT_VERIFY_ONCE && !isTrusted)
    noteAsVerified(opened, trailer.digest);

  // Nobody can change the code between here and the end of the process; a named copy has no seals.
  fcntl(elf, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  if (copied) {
    mprotect(map, mapSize, PROT_READ);
  } else {
    // Huge pages where the page cache has them: the compiler writes in pieces of
    // that size. What was just read is mapped now, which spares the first run the
    // faults. Unlike touching the pages it can't kill us, and it may fail.
    madvise(map, mapSize, MADV_HUGEPAGE);
#ifdef MADV_POPULATE_READ
    if (!isTrusted)
      madvise(map, mapSize, MADV_POPULATE_READ);
#endif
  }
  Elf64_Ehdr header;
  if (trailer.elf_size >= sizeof(header) && !readAt(elf, &header, sizeof(header), 0))
    return fail(ATTNRT_IO, "%s: the copy of its code cannot be read: %s", name, strerror(errno));
  if (trailer.elf_size < sizeof(header) || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_type != ET_DYN)
    return fail(ATTNRT_CORRUPT_FILE, "%s: does not begin with an ELF shared object", name);
  if (header.e_machine != kMachine)
    return fail(ATTNRT_INCOMPATIBLE, "%s: compiled for ELF machine %u, this is %u (%s)", name, header.e_machine,
                kMachine, kMachineName);
  return ATTNRT_OK;
}

// What stands at the end of each footer, and how large one may be.
static constexpr uint64_t kFooterTail = sizeof(attnrt_footer) - offsetof(attnrt_footer, digest);
static constexpr uint64_t kFooterSize9 = 96, kMaxFooterSize = 4096;
static_assert(sizeof(attnrt_footer) >= kFooterSize9 && kFooterTail == 48, "abi.h: new fields come before the digest");

attnrt_status LibraryFile::readFooter(int64_t fileSize) {
  uint64_t size = uint64_t(fileSize);
  if (size == 0)
    return fail(ATTNRT_CORRUPT_FILE, "%s: no model library: the file is empty", name());
  if (size < kFooterSize9)
    return fail(ATTNRT_CORRUPT_FILE, "%s: no model library: %llu bytes, less than a footer's %llu", name(),
                Number(size), Number(kFooterSize9));
  if (!readAt(file, trailer.digest, kFooterTail, size - kFooterTail))
    return fail(ATTNRT_IO, "%s: cannot be read: %s", name(), errno ? strerror(errno) : "cut short while it was read");
  constexpr char kBefore9[] = "ATTNLIB\1";
  if (memcmp(trailer.magic, kBefore9, sizeof(trailer.magic)) == 0)
    return fail(ATTNRT_INCOMPATIBLE,
                "%s: compiled for an ABI version before 9, this runtime (%s) serves %u to %u: compile the model again",
                name(), attnrt_version(), ATTNRT_ABI_OLDEST, ATTNRT_ABI_VERSION);
  char start[SELFMAG] = {};
  bool isFooter = memcmp(trailer.magic, ATTNRT_FOOTER_MAGIC, sizeof(trailer.magic)) == 0;
  if (!isFooter && (!readAt(file, start, sizeof(start), 0) || memcmp(start, ELFMAG, SELFMAG) != 0))
    return fail(ATTNRT_CORRUPT_FILE, "%s: no model library: it does not begin as one, nor end as one", name());
  if (!isFooter)
    return fail(ATTNRT_CORRUPT_FILE, "%s: no model library, or cut short: its last bytes are not a footer", name());
  if (trailer.footer_size < kFooterSize9 || trailer.footer_size > std::min(size, kMaxFooterSize))
    return fail(ATTNRT_CORRUPT_FILE, "%s: its footer says that it has %llu bytes, not between %llu and %llu", name(),
                Number(trailer.footer_size), Number(kFooterSize9), Number(std::min(size, kMaxFooterSize)));
  if (attnrt_status status = readFooterHead(size))
    return status;
  if (attnrt_status status = checkVersion())
    return status;
  if (trailer.file_size != size)
    return fail(ATTNRT_CORRUPT_FILE, "%s: %llu bytes, but its footer says %llu", name(), Number(size),
                Number(trailer.file_size));
  // ELF, padding to a page, weights, footer: nothing may overlap or be left
  // over. Subtractions only, of numbers that are known to be smaller.
  uint64_t body = size - trailer.footer_size;
  if (trailer.elf_size == 0 || trailer.elf_size > body || trailer.weights_offset > body ||
      trailer.weights_offset < trailer.elf_size || trailer.weights_offset % ATTNRT_PAGE_SIZE != 0 ||
      trailer.weights_offset - trailer.elf_size >= ATTNRT_PAGE_SIZE ||
      trailer.weights_size != body - trailer.weights_offset)
    return fail(ATTNRT_CORRUPT_FILE,
                "%s: %llu bytes of ELF object and %llu of weights at %llu do not make a file of %llu", name(),
                Number(trailer.elf_size), Number(trailer.weights_size), Number(trailer.weights_offset), Number(size));
  return ATTNRT_OK;
}

// The fields before the digest: what this version does not know is only hashed,
// what an older compiler did not write stays 0.
attnrt_status LibraryFile::readFooterHead(uint64_t fileSize) {
  uint64_t head = trailer.footer_size - kFooterTail;
  if (!footerHead.allocate(head))
    return failMemory(head, "the footer");
  if (!readAt(file, footerHead.data(), head, fileSize - trailer.footer_size))
    return fail(ATTNRT_IO, "%s: cannot be read: %s", name(), errno ? strerror(errno) : "cut short while it was read");
  memcpy(&trailer, footerHead.data(), std::min(head, offsetof(attnrt_footer, digest)));
  return ATTNRT_OK;
}

attnrt_status LibraryFile::checkVersion() const {
  if (trailer.needed_abi > trailer.abi_version)
    return fail(ATTNRT_CORRUPT_FILE, "%s: compiled for ABI version %u, but says that it needs %u", name(),
                trailer.abi_version, trailer.needed_abi);
  if (trailer.needed_abi > ATTNRT_ABI_VERSION)
    return fail(ATTNRT_INCOMPATIBLE,
                "%s: needs ABI version %u, this runtime (%s) serves %u to %u: update the runtime, or compile the model "
                "with an attnc of the runtime's version",
                name(), trailer.needed_abi, attnrt_version(), ATTNRT_ABI_OLDEST, ATTNRT_ABI_VERSION);
  if (trailer.abi_version < ATTNRT_ABI_OLDEST)
    return fail(ATTNRT_INCOMPATIBLE,
                "%s: compiled for ABI version %u, this runtime (%s) serves %u to %u: compile the model again", name(),
                trailer.abi_version, attnrt_version(), ATTNRT_ABI_OLDEST, ATTNRT_ABI_VERSION);
  if (trailer.flags != 0)
    return fail(ATTNRT_INCOMPATIBLE, "%s: footer flags 0x%x, this runtime (%s) knows none: update it", name(),
                trailer.flags, attnrt_version());
  return ATTNRT_OK;
}

/// In ATTNRT_PERF_DIR, which stays: profilers know code by the path that is mapped, and read its names there.
attnrt_status LibraryFile::createNamedCopy(const char *folder) {
  char path[PATH_MAX];
  int length = snprintf(path, sizeof(path), "%s/attnrt-%lld-XXXXXX.so", folder, (long long)getpid());
  errno = ENAMETOOLONG;
  elf = length < PATH_MAX ? mkostemps(path, 3, O_CLOEXEC) : -1;
  if (elf < 0)
    return fail(ATTNRT_IO, "%s: cannot create a file for the code in '%s' (ATTNRT_PERF_DIR): %s", name(), folder,
                strerror(errno));
  return ATTNRT_OK;
}

attnrt_status LibraryFile::createElfCopy() {
  if (const char *folder = secure_getenv("ATTNRT_PERF_DIR"); folder && *folder)
    return createNamedCopy(folder);
  unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
#ifdef MFD_EXEC
  elf = memfd_create("attnrt-model", flags | MFD_EXEC);
  if (elf < 0 && errno == EINVAL) // before Linux 6.3
#endif
    elf = memfd_create("attnrt-model", flags);
  if (elf < 0)
    return fail(ATTNRT_IO, "%s: cannot create a memfd for the code: %s", name(), strerror(errno));
  return ATTNRT_OK;
}

attnrt_status LibraryFile::mapWeights() {
  // Pages may be larger than the format's.
  uint64_t page = uint64_t(sysconf(_SC_PAGESIZE));
  uint64_t start = copied ? trailer.weights_offset : trailer.weights_offset / page * page;
  mapSize = trailer.weights_offset - start + trailer.weights_size;
  if (mapSize == 0)
    mapSize = page; // no weights: still an address to pass on
  bool anonymous = copied || trailer.weights_size == 0;
  map = anonymous ? mmap(nullptr, mapSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                  : mmap(nullptr, mapSize, PROT_READ, MAP_PRIVATE, file, off_t(start));
  if (map == MAP_FAILED) {
    map = nullptr;
    if (errno == ENOMEM)
      return failMemory(mapSize, "weights");
    return fail(ATTNRT_IO, "%s: cannot map %llu bytes of weights: %s", name(), Number(mapSize), strerror(errno));
  }
  if (copied)
    madvise(map, mapSize, MADV_HUGEPAGE);
  weightBytes = static_cast<uint8_t *>(map) + (trailer.weights_size ? trailer.weights_offset - start : 0);
  return ATTNRT_OK;
}

attnrt_status LibraryFile::verifyDigest(int elfCopy, uint8_t *weightsCopy) {
  uint8_t digest[32];
  if (attnrt_status status =
          computeDigest({file, trailer, footerHead, elfCopy, weightsCopy, numThreads, name()}, digest))
    return status;
  if (memcmp(digest, trailer.digest, sizeof(digest)) != 0)
    return fail(ATTNRT_CORRUPT_FILE, "%s: damaged: digest %02x%02x%02x%02x..., its footer says %02x%02x%02x%02x...",
                name(), digest[0], digest[1], digest[2], digest[3], trailer.digest[0], trailer.digest[1],
                trailer.digest[2], trailer.digest[3]);
  return ATTNRT_OK;
}

bool LibraryFile::wasModified() const {
  if (copied || trailer.weights_size == 0)
    return false;
  struct stat status;
  return fstat(file, &status) != 0 || !isSame(status, opened);
}

attnrt_status LibraryFile::verifyAgain() {
  struct stat now;
  if (attnrt_status status = readStamp(now))
    return status;
  if (now.st_size != opened.st_size)
    return fail(ATTNRT_CORRUPT_FILE, "%s: changed from %lld to %lld bytes while it was loaded", name(),
                (long long)opened.st_size, (long long)now.st_size);
  if (attnrt_status status = verifyDigest(-1, nullptr))
    return status;
  opened = now;
  return ATTNRT_OK;
}

bool LibraryFile::protect(uint64_t offset, uint64_t size, bool writable) {
  uint64_t page = uint64_t(sysconf(_SC_PAGESIZE));
  uintptr_t begin = reinterpret_cast<uintptr_t>(weightBytes + offset) / page * page;
  uintptr_t end = reinterpret_cast<uintptr_t>(weightBytes + offset + size);
  return mprotect(reinterpret_cast<void *>(begin), end - begin, writable ? PROT_READ | PROT_WRITE : PROT_READ) == 0;
}
