// A table of faults: each call that a stage of a model's life makes to the system fails once. The functions here come
// before libc's, so that the runtime and the loader call them.
#include "test/runtime/Support.h"

#include <atomic>
#include <cerrno>
#include <dlfcn.h>
#include <fcntl.h>
#include <functional>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>

using namespace attn::test;

namespace {
enum Fault { kMemory, kMapping, kFiles, kThreads };

std::atomic<int> chosen{-1}; // the fault of this moment; -1: none
std::atomic<int> left{0};    // calls until it comes
std::atomic<int> kept{0};    // allocations that were not freed yet

void *count(void *memory) {
  kept += memory != nullptr;
  return memory;
}

/// Whether this call is the one that fails.
bool fails(Fault fault, int error) {
  if (chosen.load() != fault || --left != 0)
    return false;
  errno = error;
  return true;
}

template <typename F> F *next(const char *name) { return reinterpret_cast<F *>(dlsym(RTLD_NEXT, name)); }
} // namespace

extern "C" {
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
void __libc_free(void *);

// Under other names in C++, as libc's headers declare some of these inline.
void *tryMalloc(size_t) __asm__("malloc");
void *tryCalloc(size_t, size_t) __asm__("calloc");
void *tryRealloc(void *, size_t) __asm__("realloc");
int tryMemalign(void **, size_t, size_t) __asm__("posix_memalign");
void countedFree(void *) __asm__("free");
void *tryMap(void *, size_t, int, int, int, off_t) __asm__("mmap");
int tryOpen(const char *, int, mode_t) __asm__("open");
int tryOpenAt(int, const char *, int, mode_t) __asm__("openat");
int tryMemfd(const char *, unsigned) __asm__("memfd_create");
int tryStat(int, struct stat *) __asm__("fstat");
ssize_t tryRead(int, void *, size_t, off_t) __asm__("pread");
ssize_t tryWrite(int, const void *, size_t, off_t) __asm__("pwrite");
int tryThread(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) __asm__("pthread_create");

void *tryMalloc(size_t bytes) { return fails(kMemory, ENOMEM) ? nullptr : count(__libc_malloc(bytes)); }
void *tryCalloc(size_t items, size_t bytes) {
  return fails(kMemory, ENOMEM) ? nullptr : count(__libc_calloc(items, bytes));
}
void *tryRealloc(void *old, size_t bytes) {
  if (fails(kMemory, ENOMEM))
    return nullptr;
  void *grown = __libc_realloc(old, bytes);
  return old ? grown : count(grown);
}
int tryMemalign(void **memory, size_t alignment, size_t bytes) {
  if (fails(kMemory, ENOMEM))
    return ENOMEM;
  *memory = count(__libc_memalign(alignment, bytes));
  return *memory ? 0 : ENOMEM;
}
void countedFree(void *memory) {
  kept -= memory != nullptr;
  __libc_free(memory);
}
void *tryMap(void *at, size_t bytes, int protection, int flags, int file, off_t offset) {
  static auto *real = next<decltype(tryMap)>("mmap");
  return fails(kMapping, ENOMEM) ? MAP_FAILED : real(at, bytes, protection, flags, file, offset);
}
int tryOpen(const char *path, int flags, mode_t mode) {
  static auto *real = next<decltype(tryOpen)>("open");
  return fails(kFiles, EMFILE) ? -1 : real(path, flags, mode);
}
int tryOpenAt(int folder, const char *path, int flags, mode_t mode) {
  static auto *real = next<decltype(tryOpenAt)>("openat");
  return fails(kFiles, EMFILE) ? -1 : real(folder, path, flags, mode);
}
int tryMemfd(const char *name, unsigned flags) {
  static auto *real = next<decltype(tryMemfd)>("memfd_create");
  return fails(kFiles, EMFILE) ? -1 : real(name, flags);
}
int tryStat(int file, struct stat *result) {
  static auto *real = next<decltype(tryStat)>("fstat");
  return fails(kFiles, EIO) ? -1 : real(file, result);
}
ssize_t tryRead(int file, void *bytes, size_t count, off_t offset) {
  static auto *real = next<decltype(tryRead)>("pread");
  return fails(kFiles, EIO) ? -1 : real(file, bytes, count, offset);
}
ssize_t tryWrite(int file, const void *bytes, size_t count, off_t offset) {
  static auto *real = next<decltype(tryWrite)>("pwrite");
  return fails(kFiles, ENOSPC) ? -1 : real(file, bytes, count, offset);
}
int tryThread(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument) {
  static auto *real = next<decltype(tryThread)>("pthread_create");
  return fails(kThreads, EAGAIN) ? EAGAIN : real(thread, attributes, start, argument);
}
}

namespace {
class EveryCallTest : public FixtureTest {
protected:
  /// A stage says what came of it, and undoes what it did.
  using Stage = std::function<attnrt_status()>;

  static int descriptors() {
    int count = 0;
    for (int fd = 0; fd < 256; ++fd)
      count += fcntl(fd, F_GETFD) >= 0;
    return count;
  }

  /// Calls `stage` with its first, second, ... call failing until there is none left; returns how many there were.
  static int failEach(Fault fault, const Stage &stage) {
    for (int n = 1; n < 1000; ++n) {
      left = n;
      chosen = fault;
      attnrt_status status = stage();
      chosen = -1;
      bool isDone = left > 0;
      EXPECT_TRUE(status == ATTNRT_OK || status == ATTNRT_OUT_OF_MEMORY || status == ATTNRT_IO)
          << "call " << n << ": " << attnrt_status_name(status) << ": " << attnrt_last_error();
      if (fault == kMemory && status == ATTNRT_IO) // libc says no more
        EXPECT_TRUE(errorSays("its code cannot be loaded")) << "call " << n;
      if (status != ATTNRT_OK)
        EXPECT_STRNE(attnrt_last_error(), "") << "call " << n;
      if (isDone) {
        EXPECT_EQ(status, ATTNRT_OK) << attnrt_last_error();
        return n - 1;
      }
      EXPECT_EQ(stage(), ATTNRT_OK) << "after call " << n << ": " << attnrt_last_error();
    }
    ADD_FAILURE() << "there is no end of calls";
    return 0;
  }

  /// A row of the table. The first round fills what is kept for good; the others must leave things as they are.
  static void failAll(const Stage &stage) {
    for (Fault fault : {kMemory, kMapping, kFiles, kThreads}) {
      SCOPED_TRACE(testing::Message() << "fault " << fault);
      failEach(fault, stage);
      failEach(fault, stage);
      int files = descriptors();
      int allocations = kept;
      failEach(fault, stage);
      EXPECT_EQ(descriptors(), files);
      EXPECT_EQ(kept, allocations);
    }
  }

  attnrt_status load(const attnrt_load_options &options) {
    attnrt_model *loaded = nullptr;
    attnrt_status status = attnrt_model_load(file.c_str(), &options, &loaded);
    attnrt_model_release(loaded);
    return status;
  }
};

TEST_F(EveryCallTest, FaultsComeWhereTheyAreAskedFor) {
  attnrt_load_options options = ATTNRT_LOAD_OPTIONS_INIT;
  Stage stage = [&] { return load(options); };
  EXPECT_GT(failEach(kMemory, stage), 5);
  EXPECT_GT(failEach(kMapping, stage), 0);
  EXPECT_GT(failEach(kFiles, stage), 3);
}

TEST_F(EveryCallTest, Load) {
  attnrt_load_options options = ATTNRT_LOAD_OPTIONS_INIT;
  failAll([&] { return load(options); });
}

TEST_F(EveryCallTest, LoadOfACopy) {
  attnrt_load_options options = ATTNRT_LOAD_OPTIONS_INIT;
  options.copy_weights = 1;
  failAll([&] { return load(options); });
}

// A session's workers start with its first run. With fewer of them the numbers are the same.
TEST_F(EveryCallTest, SessionAndRun) {
  Tensor<int64_t> count({}, 100), x({1000}, 5, 3), y({1000});
  attnrt_session_options sessionOptions = ATTNRT_SESSION_OPTIONS_INIT;
  sessionOptions.num_threads = 3;
  attnrt_run_options options = ATTNRT_RUN_OPTIONS_INIT;
  options.entry = "regions";
  const DLTensor *inputs[] = {&count.view, &x.view};
  failAll([&] {
    attnrt_session *made = nullptr;
    attnrt_status status = attnrt_session_create(model.get(), &sessionOptions, &made);
    if (status != ATTNRT_OK)
      return status;
    attnrt_output output = {&y.view, 0, nullptr};
    y.data()[999] = 0;
    status = attnrt_session_run(made, &options, inputs, 2, &output, 1);
    attnrt_session_destroy(made);
    return status == ATTNRT_OK && y.data()[999] != 5 + 3 * 999 + 100 ? ATTNRT_INTERNAL : status;
  });
}

TEST_F(EveryCallTest, RunThatAllocatesItsOutput) {
  Tensor<int64_t> ids({2}, 3, 1);
  Tensor<float> x({2, 4}, 1);
  attnrt_run_options options = ATTNRT_RUN_OPTIONS_INIT;
  options.entry = "lookup";
  const DLTensor *inputs[] = {&ids.view, &x.view};
  failAll([&] {
    attnrt_output output = {};
    attnrt_status status = attnrt_session_run(session.get(), &options, inputs, 2, &output, 1);
    if (status != ATTNRT_OK)
      return output.tensor ? ATTNRT_INTERNAL : status;
    bool isRight = static_cast<float *>(output.tensor->dl_tensor.data)[4] == 5;
    output.tensor->deleter(output.tensor);
    return isRight ? ATTNRT_OK : ATTNRT_INTERNAL;
  });
}

// A run that fails leaves the rows of its state as they were, and the state goes on.
TEST_F(EveryCallTest, State) {
  Tensor<float> rows({1, 400, 3}, 1), y({1});
  attnrt_run_options options = ATTNRT_RUN_OPTIONS_INIT;
  options.entry = "append";
  const DLTensor *inputs[] = {&rows.view};
  failAll([&] {
    attnrt_state *state = nullptr, *copy = nullptr;
    attnrt_status status = attnrt_state_create(session.get(), "append", &state);
    int64_t appended = 0, length = 0;
    for (int n = 0; n < 4 && status == ATTNRT_OK; ++n) {
      options.state = state;
      attnrt_output output = {&y.view, 0, nullptr};
      status = attnrt_session_run(session.get(), &options, inputs, 1, &output, 1);
      if (status == ATTNRT_OK && y.data()[0] != float(1200 * ++appended))
        status = ATTNRT_INTERNAL;
    }
    if (status == ATTNRT_OK)
      status = attnrt_state_clone(state, &copy);
    // What length says after the first run that worked; before it a state may have none.
    if (appended && (attnrt_state_length(state, &length) != ATTNRT_OK || length != 400 * appended))
      status = ATTNRT_INTERNAL;
    attnrt_state_destroy(copy);
    attnrt_state_destroy(state);
    return status;
  });
}

TEST_F(EveryCallTest, ReplacedWeight) {
  Tensor<float> matrix({5, 7}, 100, 1);
  failAll([&] { return attnrt_model_set_weight(model.get(), "matrix", &matrix.view); });
}
} // namespace
