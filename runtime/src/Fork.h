#ifndef RUNTIME_SRC_FORK_H
#define RUNTIME_SRC_FORK_H

namespace attn::rt {

/// Makes locks anew in a child of fork().
///
/// fork() copies the calling thread alone: a lock that another one holds stays
/// held in the child for ever. So whoever owns locks has a hook, which the child
/// calls before fork() returns there. What they guard is whole, because fork()
/// waits for every ForkGuard.
class ForkHook {
public:
  ForkHook(void (*openLocks)(void *owner), void *owner);
  ForkHook(const ForkHook &) = delete;
  ~ForkHook();

private:
  static void beforeFork();
  static void inParent();
  static void inChild();
  static void install();

  void (*openLocks)(void *);
  void *owner;
  ForkHook *previous = nullptr, *next = nullptr;
};

/// Nobody forks during its life: as long as a copy in memory takes, no longer.
/// Not within another one.
class ForkGuard {
public:
  ForkGuard();
  ForkGuard(const ForkGuard &) = delete;
  ~ForkGuard();
};

} // namespace attn::rt

#endif // RUNTIME_SRC_FORK_H
