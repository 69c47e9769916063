#ifndef RUNTIME_SRC_POOL_H
#define RUNTIME_SRC_POOL_H

#include "Memory.h"
#include "attnrt/abi.h"
#include <atomic>
#include <pthread.h>
#include <sys/types.h>

namespace attn::rt {

/// Tells the threads of a region to give up. The clock is read between pieces,
/// never by them.
struct StopCondition {
  const std::atomic<int32_t> *cancel = nullptr;
  int64_t deadline = 0; ///< nanoseconds of CLOCK_MONOTONIC; 0: none
  std::atomic<int32_t> reason{0};

  enum Reason : int32_t { None, Cancelled, TimedOut };
  bool isNeeded() const { return cancel || deadline; }
  /// True, and `reason` set, once the run is to stop.
  bool poll();
};

int64_t monotonicNow(); ///< nanoseconds

/// Hears of each piece that a thread has done (attnrt_run_options.on_piece).
struct PieceObserver {
  void (*fn)(void *context, int32_t thread, int64_t begin, int64_t end);
  void *context;
};

/// Worker threads that share a loop with the thread that calls `run`.
///
/// [0, n) is cut into min(n, threads) contiguous pieces, piece t for thread t;
/// the caller has piece 0 and afterwards takes those that no worker has begun,
/// so a region never waits for a thread that sleeps or isn't scheduled.
///
/// Between regions workers spin; after some microseconds they also offer their
/// CPU to others (sched_yield), and they sleep on a futex when a run is over or
/// has had no region for milliseconds. The times that it takes to wake a thread
/// either way are in docs/performance.md ("Waking a thread"). A pool that does
/// not spin sleeps at once, and so does its caller.
class Pool {
public:
  Pool() = default;
  Pool(const Pool &) = delete;
  ~Pool();

  /// For up to `threads` threads, the caller among them; thread t is pinned to
  /// cpus[t % numCpus]. Not `spins`: who waits sleeps. Starts none. False: out of
  /// memory. Call it once.
  bool initialize(int32_t threads, const int32_t *cpus, int32_t numCpus, bool spins = true);

  /// A run begins on the calling thread: starts or wakes the workers. After a
  /// fork() the child's first run starts its own.
  void beginRun();
  void endRun();

  /// fn over [0, n). Returns when all pieces are done. False: `stop` said so,
  /// and pieces are missing. Not from within fn. `observer` may be null.
  bool run(attnrt_task_fn fn, void *arg, int64_t n, StopCondition &stop, const PieceObserver *observer = nullptr);

  int32_t numThreads() const { return threads.load(std::memory_order_relaxed); }

private:
  struct Slot;
  static void *work(void *slot);
  bool waitForPost(Slot &slot);
  void finish(Slot &slot);
  void waitForEnd(Slot &slot);
  void startWorkers();
  void pinCaller();

  Slot *slots = nullptr; // one a worker
  int32_t wanted = 1;
  bool spins = true;
  std::atomic<int32_t> threads{1}; // that exist, the caller among them
  pid_t startedIn = 0;             // the process whose threads `slots` describes
  std::atomic<int32_t> running{0};
  Array<int32_t> cpuList;
  int32_t numCpus = 0;
  cpu_set_t callersCpus;
};

} // namespace attn::rt

#endif // RUNTIME_SRC_POOL_H
