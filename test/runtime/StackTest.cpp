// Runs on threads whose stacks are small.
#include "test/runtime/Support.h"

#include <pthread.h>
#include <sys/mman.h>
#include <ucontext.h>

using namespace attn::test;

namespace {
class StackTest : public FixtureTest {
public:
  /// Of a library that says that its code takes `stackSize` bytes of stack.
  void load(uint64_t stackSize) {
    writeFile(file, makeLibrary(fixtureElf(), fixtureWeights(), [&](attnrt_footer &f) { f.stack_size = stackSize; }));
    attnrt_model *loaded = nullptr;
    ASSERT_EQ(attnrt_model_load(file.c_str(), nullptr, &loaded), ATTNRT_OK) << attnrt_last_error();
    session.reset();
    model.reset(loaded);
    session = makeSession(1);
  }

  /// Runs an entry; in `message` is what the failure's says.
  attnrt_status lookUp() {
    Tensor<int64_t> ids({3}, 1);
    Tensor<float> x({3, 4}), y({3, 4});
    const DLTensor *inputs[] = {&ids.view, &x.view};
    attnrt_output output = {&y.view, 0, nullptr};
    attnrt_status status = attnrt_session_run(session.get(), nullptr, inputs, 2, &output, 1);
    message = attnrt_last_error();
    return status;
  }

  /// The same on a thread with `bytes` of stack.
  attnrt_status lookUpOnThread(size_t bytes) {
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    // Not one that libc keeps of a thread that has ended, which may be larger.
    void *stack = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_attr_setstack(&attributes, stack, bytes);
    auto body = [](void *test) -> void * {
      auto *self = static_cast<StackTest *>(test);
      self->status = self->lookUp();
      return nullptr;
    };
    EXPECT_EQ(pthread_create(&thread, &attributes, body, this), 0);
    pthread_join(thread, nullptr);
    pthread_attr_destroy(&attributes);
    munmap(stack, bytes);
    return status;
  }

  attnrt_status status = ATTNRT_OK;
  std::string message;
};

TEST_F(StackTest, RefusesWhatDoesNotFit) {
  load(100'000);
  EXPECT_EQ(lookUpOnThread(64 << 10), ATTNRT_OUT_OF_MEMORY);
  EXPECT_NE(message.find("entry 'lookup' takes up to 100000 bytes of stack"), std::string::npos) << message;
  EXPECT_NE(message.find(" left: run it on a thread with a larger stack"), std::string::npos) << message;
  EXPECT_EQ(lookUpOnThread(160 << 10), ATTNRT_OK) << message;
  EXPECT_EQ(lookUp(), ATTNRT_OK) << message;
  load(UINT64_MAX);
  EXPECT_EQ(lookUp(), ATTNRT_OUT_OF_MEMORY);
}

TEST_F(StackTest, OlderLibrariesDoNotSay) {
  load(0);
  EXPECT_EQ(lookUpOnThread(64 << 10), ATTNRT_OK) << message;
}

// A coroutine's stack is none that the system knows the end of.
TEST_F(StackTest, StacksOfTheProgram) {
  load(UINT64_MAX);
  static StackTest *self;
  static ucontext_t caller, coroutine;
  self = this;
  std::vector<char> memory(256 << 10);
  getcontext(&coroutine);
  coroutine.uc_stack.ss_sp = memory.data();
  coroutine.uc_stack.ss_size = memory.size();
  coroutine.uc_link = &caller;
  makecontext(&coroutine, [] { self->status = self->lookUp(); }, 0);
  swapcontext(&caller, &coroutine);
  EXPECT_EQ(status, ATTNRT_OK) << message;
}
} // namespace
