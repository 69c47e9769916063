#include "Digest.h"

#include "Threads.h"
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <llvm-c/blake3.h>
#include <pthread.h>
#include <unistd.h>

using namespace attn::rt;

static constexpr uint64_t kHash = LLVM_BLAKE3_OUT_LEN;

static void hashBytes(const uint8_t *bytes, uint64_t size, uint8_t *hash) {
  llvm_blake3_hasher hasher;
  llvm_blake3_hasher_init(&hasher);
  llvm_blake3_hasher_update(&hasher, bytes, size);
  llvm_blake3_hasher_finalize(&hasher, hash, kHash);
}

bool attn::rt::readAt(int file, void *data, uint64_t size, uint64_t offset) {
  for (uint64_t done = 0; done < size;) {
    ssize_t count = pread(file, static_cast<char *>(data) + done, size - done, off_t(offset + done));
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0) {
      errno = count == 0 ? 0 : errno;
      return false;
    }
    done += uint64_t(count);
  }
  return true;
}

bool attn::rt::writeAt(int file, const void *data, uint64_t size, uint64_t offset) {
  for (uint64_t done = 0; done < size;) {
    ssize_t count = pwrite(file, static_cast<const char *>(data) + done, size - done, off_t(offset + done));
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0)
      return false;
    done += uint64_t(count);
  }
  return true;
}

namespace {
struct Failure {
  attnrt_status status;
  int error; // errno
};

struct Work {
  const DigestJob &job;
  uint64_t hashedSize;
  uint64_t numLeaves;
  Array<uint8_t> hashes; // of the leaves, then the footer's head; none: nothing is hashed
  std::atomic<uint64_t> nextLeaf{0};
  std::atomic<Failure> failure{{ATTNRT_OK, 0}};

  explicit Work(const DigestJob &job)
      : job(job), hashedSize(job.footer.file_size - job.footer.footer_size),
        numLeaves((hashedSize + ATTNRT_DIGEST_LEAF - 1) / ATTNRT_DIGEST_LEAF) {}
  bool failed() const { return failure.load(std::memory_order_relaxed).status != ATTNRT_OK; }
};
} // namespace

// Hashes one leaf, if that is wanted, with `buffer` as scratch, and copies its parts.
static Failure hashLeaf(Work &work, uint64_t leaf, uint8_t *buffer) {
  const DigestJob &job = work.job;
  uint64_t begin = leaf * ATTNRT_DIGEST_LEAF;
  uint64_t end = std::min(begin + ATTNRT_DIGEST_LEAF, work.hashedSize);
  uint64_t elfEnd = std::min(end, job.footer.elf_size);
  uint64_t weightsBegin = std::max(begin, job.footer.weights_offset);
  uint64_t weightsEnd = std::min(end, job.footer.weights_offset + job.footer.weights_size);
  bool hasElf = job.elfCopy >= 0 && begin < elfEnd, hasWeights = job.weightsCopy && weightsBegin < weightsEnd;
  if (!work.hashes.data() && !hasElf && !hasWeights)
    return {ATTNRT_OK, 0};
  if (!readAt(job.file, buffer, end - begin, begin))
    return {errno ? ATTNRT_IO : ATTNRT_CORRUPT_FILE, errno};
  if (work.hashes.data())
    hashBytes(buffer, end - begin, work.hashes.data() + leaf * kHash);
  if (hasElf && !writeAt(job.elfCopy, buffer, elfEnd - begin, begin))
    return {ATTNRT_IO, errno};
  if (hasWeights)
    memcpy(job.weightsCopy + (weightsBegin - job.footer.weights_offset), buffer + (weightsBegin - begin),
           weightsEnd - weightsBegin);
  return {ATTNRT_OK, 0};
}

static void *hashLeaves(void *argument) {
  Work &work = *static_cast<Work *>(argument);
  Failure failure = {ATTNRT_OK, 0};
  uint8_t *buffer = static_cast<uint8_t *>(malloc(ATTNRT_DIGEST_LEAF));
  if (!buffer)
    failure = {ATTNRT_OUT_OF_MEMORY, 0};
  while (failure.status == ATTNRT_OK && !work.failed()) {
    uint64_t leaf = work.nextLeaf.fetch_add(1, std::memory_order_relaxed);
    if (leaf >= work.numLeaves)
      break;
    failure = hashLeaf(work, leaf, buffer);
  }
  free(buffer);
  Failure none = {ATTNRT_OK, 0};
  if (failure.status != ATTNRT_OK)
    work.failure.compare_exchange_strong(none, failure);
  return nullptr;
}

static attnrt_status readLeaves(Work &work) {
  constexpr int32_t kMost = 8;
  int32_t wanted = work.job.numThreads > 0 ? work.job.numThreads : defaultThreads();
  wanted = int32_t(std::min<uint64_t>(std::min(wanted, kMost), work.numLeaves));
  pthread_t helpers[kMost];
  int32_t started = 0;
  // A thread that the system refuses costs time only.
  while (started + 1 < wanted && startThread(helpers[started], hashLeaves, &work, 256 << 10))
    ++started;
  hashLeaves(&work);
  for (int32_t i = 0; i < started; ++i)
    pthread_join(helpers[i], nullptr);
  Failure failure = work.failure.load();
  switch (failure.status) {
  case ATTNRT_OK:
    return ATTNRT_OK;
  case ATTNRT_CORRUPT_FILE:
    return fail(failure.status, "%s: cut short while it was read", work.job.name);
  case ATTNRT_OUT_OF_MEMORY:
    return failMemory(ATTNRT_DIGEST_LEAF, "reading the file");
  default:
    return fail(failure.status, "%s: cannot be read: %s", work.job.name, strerror(failure.error));
  }
}

attnrt_status attn::rt::copyParts(const DigestJob &job) {
  Work work(job);
  return readLeaves(work);
}

attnrt_status attn::rt::computeDigest(const DigestJob &job, uint8_t digest[32]) {
  Work work(job);
  uint64_t hashesSize = work.numLeaves * kHash;
  if (!work.hashes.allocate(hashesSize + job.footerHead.size()))
    return failMemory(hashesSize + job.footerHead.size(), "the digest");
  if (attnrt_status status = readLeaves(work))
    return status;
  memcpy(work.hashes.data() + hashesSize, job.footerHead.data(), job.footerHead.size());
  hashBytes(work.hashes.data(), work.hashes.size(), digest);
  return ATTNRT_OK;
}
