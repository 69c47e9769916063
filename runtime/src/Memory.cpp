#include "Memory.h"

#include <sys/mman.h>

using namespace attn::rt;

static constexpr uint64_t kHugePage = 2u << 20;

void *GrowingBuffer::atLeast(uint64_t bytes) {
  if (bytes <= capacity && memory)
    return memory;
  release();
  if (bytes < kHugePage) {
    // Room to grow a little: sequence lengths creep up from run to run.
    uint64_t rounded = ((bytes + bytes / 4) | 4095) + 1;
    if (posix_memalign(&memory, 64, rounded) != 0)
      memory = nullptr;
    else
      capacity = rounded;
    return memory;
  }
  if (bytes > (UINT64_MAX >> 2))
    return nullptr;
  // On huge pages: an arena is walked from end to end in each run, and page
  // walks cost more than the memory that rounding up wastes.
  uint64_t rounded = (bytes + kHugePage - 1) & ~(kHugePage - 1);
  void *map = mmap(nullptr, rounded + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED)
    return nullptr;
  uintptr_t start = reinterpret_cast<uintptr_t>(map);
  uintptr_t aligned = (start + kHugePage - 1) & ~(kHugePage - 1);
  if (aligned != start)
    munmap(map, aligned - start);
  if (uint64_t tail = start + kHugePage - aligned)
    munmap(reinterpret_cast<void *>(aligned + rounded), tail);
  memory = reinterpret_cast<void *>(aligned);
  madvise(memory, rounded, MADV_HUGEPAGE);
  capacity = rounded;
  mapped = true;
  return memory;
}

void GrowingBuffer::release() {
  if (mapped)
    munmap(memory, capacity);
  else
    free(memory);
  memory = nullptr;
  capacity = 0;
  mapped = false;
}
