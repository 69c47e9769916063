// Preloaded into a program that runs libraries: which pages of the memory that the runtime hands out a run writes, and
// what is allocated during it. Pages are protected at the start of an entry and at each poll of a loop; the first write
// to one faults, is counted and allowed. Nothing that a run writes there escapes this, whoever writes it.
#define _GNU_SOURCE
#include "attnrt/abi.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { kPage = 4096, kRegions = 4096, kSpans = 256, kEntries = 4 };

static struct Region {
  char *begin, *end; // null: free
  char *untouched;   // of each page, whether it is protected
  int isMapped;      // by us
} regions[kRegions];
static int numRegions;

// A span lasts from one poll of a loop of the entry (or the start) to the next (or the end).
static int watching, numSpans;
static long pages[kSpans], allocations[kSpans];
static int span;

int watched_spans(void) { return numSpans; }
long watched_pages(int n) { return pages[n]; }
long watched_allocations(int n) { return allocations[n]; }

static void countAllocation(void) {
  if (watching)
    __atomic_add_fetch(&allocations[span], 1, __ATOMIC_RELAXED);
}

//===--- Memory ----------------------------------------------------------------===//

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void __libc_free(void *);

static void *mapPages(size_t bytes) {
  return (void *)syscall(SYS_mmap, NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0L);
}

static void protect(struct Region *region, int isUntouched) {
  size_t bytes = (size_t)(region->end - region->begin);
  memset(region->untouched, isUntouched, bytes / kPage);
  mprotect(region->begin, bytes, isUntouched ? PROT_READ : PROT_READ | PROT_WRITE);
}

static void protectAll(int isUntouched) {
  for (int n = 0; n < numRegions; ++n)
    if (regions[n].begin)
      protect(regions + n, isUntouched);
}

static void addRegion(char *begin, size_t bytes, int isMapped) {
  for (int n = 0; n < kRegions; ++n) {
    if (regions[n].begin)
      continue;
    regions[n] = (struct Region){begin, begin + bytes, mapPages(bytes / kPage + 1), isMapped};
    if (n >= numRegions)
      numRegions = n + 1;
    protect(regions + n, watching);
    return;
  }
  abort();
}

static struct Region *findRegion(const char *address) {
  for (int n = 0; n < numRegions; ++n)
    if (regions[n].begin && address >= regions[n].begin && address < regions[n].end)
      return regions + n;
  return NULL;
}

void *malloc(size_t bytes) {
  countAllocation();
  return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes) {
  countAllocation();
  return __libc_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes) {
  countAllocation();
  return __libc_realloc(memory, bytes);
}

void free(void *memory) {
  struct Region *region = memory ? findRegion(memory) : NULL;
  if (!region || !region->isMapped) {
    __libc_free(memory);
    return;
  }
  munmap(memory, (size_t)(region->end - region->begin));
}

// The runtime's buffers, each on pages of its own.
int posix_memalign(void **memory, size_t alignment, size_t bytes) {
  (void)alignment;
  countAllocation();
  bytes = (bytes + kPage - 1) / kPage * kPage;
  *memory = mapPages(bytes);
  if (*memory == MAP_FAILED)
    return ENOMEM;
  addRegion(*memory, bytes, 1);
  return 0;
}

void *mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset) {
  countAllocation();
  return (void *)syscall(SYS_mmap, at, bytes, protection, flags, file, offset);
}

// Large buffers of the runtime are mapped and then advised.
int madvise(void *memory, size_t bytes, int advice) {
  if (advice == MADV_HUGEPAGE) {
    addRegion(memory, bytes, 0);
    return 0;
  }
  return (int)syscall(SYS_madvise, memory, bytes, advice);
}

int munmap(void *memory, size_t bytes) {
  struct Region *region = findRegion(memory);
  if (region) {
    syscall(SYS_munmap, region->untouched, (region->end - region->begin) / kPage + 1);
    region->begin = NULL;
  }
  return (int)syscall(SYS_munmap, memory, bytes);
}

//===--- Watching --------------------------------------------------------------===//

static void onFault(int number, siginfo_t *info, void *context) {
  (void)number, (void)context;
  char *page = (char *)((uintptr_t)info->si_addr & ~(uintptr_t)(kPage - 1));
  struct Region *region = watching ? findRegion(page) : NULL;
  if (!region) {
    signal(SIGSEGV, SIG_DFL);
    return;
  }
  if (__atomic_exchange_n(&region->untouched[(page - region->begin) / kPage], 0, __ATOMIC_RELAXED))
    __atomic_add_fetch(&pages[span], 1, __ATOMIC_RELAXED);
  mprotect(page, kPage, PROT_READ | PROT_WRITE);
}

static void nextSpan(void) {
  if (span + 1 < kSpans)
    ++span;
  pages[span] = allocations[span] = 0;
  protectAll(1);
}

static int32_t (*realParallelFor)(attnrt_run *, attnrt_task_fn, void *, int64_t);
static void *(*realWorkspace)(attnrt_run *, uint64_t);
static void *entryFrame; // of what an entry calls; what its kernels call has frames further down

static void *workspace(attnrt_run *run, uint64_t bytes) {
  entryFrame = __builtin_frame_address(0);
  return realWorkspace(run, bytes);
}

static int32_t parallelFor(attnrt_run *run, attnrt_task_fn fn, void *arg, int64_t n) {
  if (n == 0 && (!entryFrame || __builtin_frame_address(0) == entryFrame))
    nextSpan();
  return realParallelFor(run, fn, arg, n);
}

static attnrt_entry_fn realEntries[kEntries];

static int32_t callEntry(int number, attnrt_run *run, const attnrt_buffer *inputs) {
  if (!watching)
    return realEntries[number](run, inputs);
  realParallelFor = run->parallel_for;
  realWorkspace = run->workspace;
  run->parallel_for = parallelFor;
  run->workspace = workspace;
  entryFrame = NULL;
  nextSpan();
  int32_t status = realEntries[number](run, inputs);
  protectAll(0);
  run->parallel_for = realParallelFor;
  run->workspace = realWorkspace;
  return status;
}

static int32_t entry0(attnrt_run *run, const attnrt_buffer *inputs) { return callEntry(0, run, inputs); }
static int32_t entry1(attnrt_run *run, const attnrt_buffer *inputs) { return callEntry(1, run, inputs); }
static int32_t entry2(attnrt_run *run, const attnrt_buffer *inputs) { return callEntry(2, run, inputs); }
static int32_t entry3(attnrt_run *run, const attnrt_buffer *inputs) { return callEntry(3, run, inputs); }

static attnrt_library_query_fn realQuery;

static const attnrt_library *query(uint32_t version) {
  static const attnrt_entry_fn fns[kEntries] = {entry0, entry1, entry2, entry3};
  static attnrt_library library;
  static attnrt_entry entries[kEntries];
  static const attnrt_entry *places[kEntries];
  library = *realQuery(version);
  if (library.num_entries > kEntries)
    abort();
  for (uint32_t n = 0; n < library.num_entries; ++n) {
    entries[n] = *library.entries[n];
    places[n] = &entries[n];
    realEntries[n] = entries[n].fn;
    entries[n].fn = fns[n];
  }
  library.entries = places;
  return &library;
}

/// Of the library that is loaded last.
void *dlsym(void *handle, const char *name) {
  static void *(*real)(void *, const char *);
  if (!real)
    real = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
  void *symbol = real(handle, name);
  if (!symbol || strcmp(name, "attnrt_library_query") != 0)
    return symbol;
  realQuery = (attnrt_library_query_fn)symbol;
  return (void *)query;
}

/// attnrt_session_run, watched: span 0 is what happens before the entry.
int watched_run(int (*run)(void *, const void *, const void *, int, void *, int), void *session, const void *options,
                const void *inputs, int num_inputs, void *outputs, int num_outputs) {
  struct sigaction action = {0}, before;
  action.sa_sigaction = onFault;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, &before);
  span = 0;
  pages[0] = allocations[0] = 0;
  watching = 1;
  int status = run(session, options, inputs, num_inputs, outputs, num_outputs);
  watching = 0;
  protectAll(0);
  numSpans = span + 1;
  sigaction(SIGSEGV, &before, NULL);
  return status;
}
