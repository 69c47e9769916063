#include "Fork.h"
#include "gtest/gtest.h"

#include <array>
#include <cstddef>
#include <new>
#include <sys/wait.h>
#include <unistd.h>

using namespace attn::rt;

namespace {
// Hooks in memory that outlives them, so that a call of one that is gone is seen as such.
class ForkTest : public testing::Test {
protected:
  static constexpr size_t kHooks = 4;
  using Calls = std::array<int, kHooks>;

  void make(size_t n) {
    hooks[n] = new (room[n]) ForkHook([](void *calls) { ++*static_cast<int *>(calls); }, &calls[n]);
  }

  /// Whether a child calls the hooks so many times.
  bool childCalls(const Calls &wanted) {
    pid_t child = fork();
    if (child == 0)
      _exit(calls == wanted ? 0 : 1);
    int status = -1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }

  Calls calls = {};
  alignas(ForkHook) std::byte room[kHooks][sizeof(ForkHook)];
  ForkHook *hooks[kHooks] = {};
};

TEST_F(ForkTest, ChildrenCallTheHooksThatThereAre) {
  EXPECT_TRUE(childCalls({0, 0, 0, 0}));
  for (size_t n = 0; n < kHooks; ++n)
    make(n);
  EXPECT_TRUE(childCalls({1, 1, 1, 1}));
  hooks[2]->~ForkHook(); // between others
  EXPECT_TRUE(childCalls({1, 1, 0, 1}));
  hooks[1]->~ForkHook();
  EXPECT_TRUE(childCalls({1, 0, 0, 1}));
  hooks[3]->~ForkHook(); // the latest
  EXPECT_TRUE(childCalls({1, 0, 0, 0}));
  make(3);
  EXPECT_TRUE(childCalls({1, 0, 0, 1}));
  hooks[0]->~ForkHook(); // the earliest
  EXPECT_TRUE(childCalls({0, 0, 0, 1}));
  hooks[3]->~ForkHook();
  EXPECT_TRUE(childCalls({0, 0, 0, 0}));
  EXPECT_EQ(calls, Calls({0, 0, 0, 0})) << "none is called where it was not forked";
}
} // namespace
