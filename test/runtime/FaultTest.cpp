// What the system refuses, each in a forked child so that limits stay there.
#include "test/runtime/Support.h"

#include <fcntl.h>
#include <malloc.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

using namespace attn::test;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ATTN_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define ATTN_SANITIZED 1
#endif
#endif

namespace {
class FaultTest : public FixtureTest {
protected:
  /// Whether `function` returns true in a child process.
  template <typename F> static bool inChild(F function) {
    pid_t child = fork();
    if (child == 0)
      _exit(function() ? 0 : 1);
    int status = -1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }

  /// Bytes that the process has mapped; 0: the system does not say.
  static rlim_t addressSpace() {
    size_t pages = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    EXPECT_TRUE(statm && fscanf(statm, "%zu", &pages) == 1);
    if (statm)
      fclose(statm);
    return pages * 4096;
  }

  bool regionsWork(attnrt_session *runner) {
    Tensor<int64_t> count({}, 100), x({1000}, 5, 3);
    attnrt_run_options options = ATTNRT_RUN_OPTIONS_INIT;
    options.entry = "regions";
    const DLTensor *inputs[] = {&count.view, &x.view};
    Tensor<int64_t> y({1000});
    attnrt_output output = {&y.view, 0, nullptr};
    if (attnrt_session_run(runner, &options, inputs, 2, &output, 1) != ATTNRT_OK)
      return false;
    for (int i = 0; i < 1000; ++i)
      if (y.data()[i] != 5 + 3 * i + 100)
        return false;
    return true;
  }
};

TEST_F(FaultTest, ForkAfterRuns) {
  ASSERT_TRUE(regionsWork(session.get())); // workers exist, here
  EXPECT_TRUE(inChild([&] {
    bool works = regionsWork(session.get()) && regionsWork(session.get());
    session.reset();
    model.reset();
    return works;
  }));
  EXPECT_TRUE(inChild([&] {
    session.reset(); // without a run there
    return true;
  }));
  EXPECT_TRUE(regionsWork(session.get()));
}

#ifndef ATTN_SANITIZED
// Stacks of 8 MiB do not fit, but for a few that libc kept from earlier threads:
// the system says EAGAIN.
TEST_F(FaultTest, NoThreads) {
  EXPECT_TRUE(inChild([&] {
    Session mine = makeSession(32);
    rlimit limit = {addressSpace() + (6 << 20), RLIM_INFINITY};
    setrlimit(RLIMIT_AS, &limit);
    return regionsWork(mine.get()) && attnrt_session_num_threads(mine.get()) < 10 && regionsWork(mine.get());
  }));
}

TEST_F(FaultTest, NoMemory) {
  EXPECT_TRUE(inChild([&] {
    rlimit limit = {1 << 28, RLIM_INFINITY};
    setrlimit(RLIMIT_AS, &limit);
    Tensor<int64_t> size({}, 1 << 29);
    run("hungry", {&size.view}, ATTNRT_OUT_OF_MEMORY, "cannot allocate 536870912 bytes for the workspace");
    size.data()[0] = 1 << 22;
    run("hungry", {&size.view});
    return !HasFailure();
  }));
}

// Room doubles only where the system has it: here it has their bytes twice more, not three times.
TEST_F(FaultTest, StatesGrowByWhatTheyNeed) {
  EXPECT_TRUE(inChild([&] {
    constexpr int64_t kBytes = 32 << 20;
    attnrt_state *state = nullptr;
    EXPECT_EQ(attnrt_state_create(session.get(), "append", &state), ATTNRT_OK);
    attnrt_run_options options = ATTNRT_RUN_OPTIONS_INIT;
    options.entry = "append";
    options.state = state;
    Tensor<float> many({1, kBytes / 12, 3}), one({1, 1, 3}, 1), y({1});
    rlimit limit = {addressSpace() + kBytes * 5 / 2, RLIM_INFINITY};
    setrlimit(RLIMIT_AS, &limit);
    for (Tensor<float> *rows : {&many, &one}) {
      const DLTensor *inputs[] = {&rows->view};
      attnrt_output output = {&y.view, 0, nullptr};
      EXPECT_EQ(attnrt_session_run(session.get(), &options, inputs, 1, &output, 1), ATTNRT_OK) << attnrt_last_error();
    }
    EXPECT_EQ(y.data()[0], 3);
    return !HasFailure();
  }));
}
#endif

TEST_F(FaultTest, NoDescriptors) {
  EXPECT_TRUE(inChild([&] {
    bool lacksCode = false;
    rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit); // the greatest one may not be raised
    for (limit.rlim_cur = 0; limit.rlim_cur < 32; ++limit.rlim_cur) {
      if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
        return false;
      attnrt_model *loaded = nullptr;
      attnrt_status status = attnrt_model_load(file.c_str(), nullptr, &loaded);
      if (status != ATTNRT_OK && (status != ATTNRT_IO || !*attnrt_last_error()))
        return false;
      lacksCode |= status != ATTNRT_OK && errorSays("cannot create a memfd for the code");
      attnrt_model_release(loaded);
    }
    return lacksCode && regionsWork(session.get());
  }));
}

// What runs is a copy in memory, so that a file system without execution has libraries, too.
TEST_F(FaultTest, NoExecution) {
  std::string folder = dir / "mounted";
  ASSERT_EQ(mkdir(folder.c_str(), 0700), 0);
  Bytes bytes = readFile(file);
  constexpr int kCannot = 77;
  pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("none", folder.c_str(), "tmpfs", MS_NOEXEC, nullptr) != 0)
      _exit(kCannot);
    writeFile(folder + "/model.so", bytes);
    attnrt_model *loaded = nullptr;
    attnrt_session *made = nullptr;
    bool works = attnrt_model_load((folder + "/model.so").c_str(), nullptr, &loaded) == ATTNRT_OK &&
                 attnrt_session_create(loaded, nullptr, &made) == ATTNRT_OK && regionsWork(made);
    _exit(works ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kCannot)
    GTEST_SKIP() << "mounts are not allowed here";
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// Failing loads and runs give back what they took.
TEST_F(FaultTest, NothingLeaks) {
  auto descriptors = [] {
    int count = 0;
    for (int fd = 0; fd < 256; ++fd)
      count += fcntl(fd, F_GETFD) >= 0;
    return count;
  };
  Bytes bytes = readFile(file);
  bytes[5000] ^= 1;
  writeFile(dir / "bad.so", bytes);
  int before = descriptors();
  for (int i = 0; i < 50; ++i) {
    attnrt_model *loaded = nullptr;
    EXPECT_EQ(attnrt_model_load((dir / "bad.so").c_str(), nullptr, &loaded), ATTNRT_CORRUPT_FILE);
    EXPECT_EQ(attnrt_model_load(file.c_str(), nullptr, &loaded), ATTNRT_OK);
    attnrt_model_release(loaded);
  }
  EXPECT_EQ(descriptors(), before);
}

#ifndef ATTN_SANITIZED
// With the caller's buffers, a run allocates nothing once it has run.
TEST_F(FaultTest, RunsDoNotAllocate) {
  ASSERT_TRUE(regionsWork(session.get()));
  Tensor<int64_t> size({}, 1 << 20), result({});
  attnrt_run_options options = ATTNRT_RUN_OPTIONS_INIT;
  options.entry = "hungry";
  const DLTensor *inputs[] = {&size.view};
  attnrt_output output = {&result.view, 0, nullptr};
  ASSERT_EQ(attnrt_session_run(session.get(), &options, inputs, 1, &output, 1), ATTNRT_OK);
  struct mallinfo2 before = mallinfo2();
  for (int i = 0; i < 100; ++i)
    ASSERT_EQ(attnrt_session_run(session.get(), &options, inputs, 1, &output, 1), ATTNRT_OK);
  struct mallinfo2 after = mallinfo2();
  EXPECT_EQ(after.uordblks, before.uordblks);
  EXPECT_EQ(after.hblkhd, before.hblkhd);
}
#endif
} // namespace
