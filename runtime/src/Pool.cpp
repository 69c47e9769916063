#include "Pool.h"

#include "Threads.h"
#include <algorithm>
#include <cerrno>
#include <climits>
#include <ctime>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

using namespace attn::rt;

// Waking a thread from a futex takes some 50 us, a spinning one sees new work
// within 0.2 us.
static constexpr int64_t kSpinBeforeYield = 20'000;      // ns; other sessions may need the CPU
static constexpr int64_t kSpinAfterRun = 100'000;        // ns; twice a wake-up, so back-to-back runs find us awake
static constexpr int64_t kSpinWithoutRegion = 5'000'000; // ns; a long serial stretch in a run
static constexpr int kPausesBetweenClocks = 64;
// A ulimit must not decide whether generated tasks fit.
static constexpr size_t kStackSize = 8u << 20;

int64_t attn::rt::monotonicNow() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

bool StopCondition::poll() {
  if (reason.load(std::memory_order_relaxed) != None)
    return true;
  int32_t found = None;
  if (cancel && cancel->load(std::memory_order_relaxed))
    found = Cancelled;
  else if (deadline && monotonicNow() >= deadline)
    found = TimedOut;
  if (found == None)
    return false;
  int32_t none = None;
  reason.compare_exchange_strong(none, found, std::memory_order_relaxed);
  return true;
}

static void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static void sleepWhile(std::atomic<uint32_t> &word, uint32_t value) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}

static void wake(std::atomic<uint32_t> &word) { syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0); }

namespace {
struct Piece {
  attnrt_task_fn fn;
  void *arg;
  int64_t begin, end;
  StopCondition *stop;
  const PieceObserver *observer;
};
} // namespace

// Runs a piece, in parts if it may have to stop in the middle: regions can take
// seconds. Parts grow from one iteration to about a millisecond.
static void runParts(const Piece &piece) {
  if (!piece.stop->isNeeded())
    return piece.fn(piece.arg, piece.begin, piece.end);
  int64_t part = 1, before = monotonicNow();
  for (int64_t begin = piece.begin; begin < piece.end && !piece.stop->poll();) {
    int64_t end = piece.end - begin > part ? begin + part : piece.end;
    piece.fn(piece.arg, begin, end);
    begin = end;
    int64_t now = monotonicNow(), taken = now - before;
    before = now;
    if (taken < 1'000'000 && part < (INT64_MAX >> 2))
      part *= 2;
    else if (taken > 4'000'000 && part > 1)
      part /= 2;
  }
}

static void runPiece(const Piece &piece, int32_t thread) {
  if (!piece.observer)
    return runParts(piece);
  int64_t begin = monotonicNow();
  runParts(piece);
  piece.observer->fn(piece.observer->context, thread, begin, monotonicNow());
}

// A worker's mailbox. The caller writes `piece` while the state is Idle or
// Asleep, and the state says who may touch it next:
//
//     Idle/Asleep --caller--> Posted --worker--> Taken --worker--> Idle
//                             Posted --caller, who runs it himself--> Idle
//     Idle --worker--> Asleep          any --destructor--> Quit
//
// The caller of a pool that does not spin: Taken --caller--> Awaited --worker--> Idle,
// and the worker wakes him.
enum State : uint32_t { Idle, Posted, Taken, Asleep, Awaited, Quit };

struct alignas(64) Pool::Slot {
  std::atomic<uint32_t> state{Idle};
  int32_t index = 0; // of the thread, from 1
  Piece piece = {};
  Pool *pool = nullptr;
  pthread_t thread = {};
};

bool Pool::initialize(int32_t numThreads, const int32_t *cpus, int32_t count, bool maySpin) {
  spins = maySpin;
  wanted = std::max(numThreads, 1);
  threads = wanted;
  if (count > 0) {
    if (!cpuList.allocate(uint64_t(count)))
      return false;
    std::copy(cpus, cpus + count, cpuList.data());
    numCpus = count;
  }
  if (wanted == 1)
    return true;
  void *memory = nullptr;
  if (posix_memalign(&memory, alignof(Slot), sizeof(Slot) * size_t(wanted - 1)) != 0)
    return false;
  slots = static_cast<Slot *>(memory);
  for (int32_t i = 0; i < wanted - 1; ++i)
    new (slots + i) Slot();
  return true;
}

Pool::~Pool() {
  // In a forked child that never ran, the workers are the parent's.
  if (startedIn == getpid()) {
    int32_t numWorkers = numThreads() - 1;
    for (int32_t i = 0; i < numWorkers; ++i) {
      slots[i].state.store(Quit);
      wake(slots[i].state);
    }
    for (int32_t i = 0; i < numWorkers; ++i)
      pthread_join(slots[i].thread, nullptr);
  }
  free(slots);
}

void Pool::startWorkers() {
  startedIn = getpid();
  int32_t started = 0;
  for (; started < wanted - 1; ++started) {
    Slot &slot = slots[started];
    slot.state.store(Idle, std::memory_order_relaxed);
    slot.index = started + 1;
    slot.pool = this;
    if (!startThread(slot.thread, work, &slot, kStackSize))
      break;
    if (numCpus)
      pinThread(slot.thread, cpuList[uint64_t(slot.index % numCpus)]);
  }
  threads.store(started + 1, std::memory_order_relaxed);
}

void Pool::beginRun() {
  if (numCpus)
    pinCaller();
  if (wanted == 1)
    return;
  running.store(1, std::memory_order_relaxed);
  if (startedIn != getpid())
    return startWorkers();
  if (!spins)
    return;
  for (int32_t i = 0, e = numThreads() - 1; i < e; ++i) {
    uint32_t asleep = Asleep;
    if (slots[i].state.compare_exchange_strong(asleep, Idle))
      wake(slots[i].state);
  }
}

void Pool::endRun() {
  running.store(0, std::memory_order_relaxed);
  if (numCpus)
    pthread_setaffinity_np(pthread_self(), sizeof(callersCpus), &callersCpus);
}

void Pool::pinCaller() {
  if (pthread_getaffinity_np(pthread_self(), sizeof(callersCpus), &callersCpus) == 0)
    pinThread(pthread_self(), cpuList[0]);
}

bool Pool::run(attnrt_task_fn fn, void *arg, int64_t n, StopCondition &stop, const PieceObserver *observer) {
  if (stop.isNeeded() && stop.poll())
    return false;
  if (n <= 0)
    return true;
  int64_t numPieces = std::min<int64_t>(n, numThreads());
  // The first n % numPieces pieces have one iteration more; no n * t, which overflows.
  int64_t size = n / numPieces, rest = n % numPieces;
  auto beginOf = [&](int64_t piece) { return piece * size + std::min(piece, rest); };
  for (int64_t i = 1; i < numPieces; ++i) {
    Slot &slot = slots[i - 1];
    slot.piece = {fn, arg, beginOf(i), beginOf(i + 1), &stop, observer};
    if (slot.state.exchange(Posted, std::memory_order_acq_rel) == Asleep)
      wake(slot.state);
  }
  runPiece({fn, arg, 0, beginOf(1), &stop, observer}, 0);
  for (int64_t i = 1; i < numPieces; ++i) {
    Slot &slot = slots[i - 1];
    uint32_t posted = Posted;
    if (slot.state.load(std::memory_order_relaxed) == Posted &&
        slot.state.compare_exchange_strong(posted, Idle, std::memory_order_acquire))
      runPiece(slot.piece, 0);
  }
  for (int64_t i = 1; i < numPieces; ++i)
    waitForEnd(slots[i - 1]);
  return stop.reason.load(std::memory_order_relaxed) == StopCondition::None;
}

void Pool::waitForEnd(Slot &slot) {
  uint32_t taken = Taken;
  if (!spins && slot.state.compare_exchange_strong(taken, Awaited, std::memory_order_acquire))
    while (slot.state.load(std::memory_order_acquire) == Awaited)
      sleepWhile(slot.state, Awaited);
  int pauses = 0;
  int64_t since = 0;
  while (slot.state.load(std::memory_order_acquire) == Taken) {
    relax();
    if (++pauses % kPausesBetweenClocks != 0)
      continue;
    int64_t now = monotonicNow();
    since = since ? since : now;
    if (now - since > kSpinBeforeYield)
      sched_yield();
  }
}

void Pool::finish(Slot &slot) {
  // A Quit can't come in between: the pool is destroyed by its only caller.
  if (spins)
    slot.state.store(Idle, std::memory_order_release);
  else if (slot.state.exchange(Idle, std::memory_order_acq_rel) == Awaited)
    wake(slot.state);
}

void *Pool::work(void *argument) {
  Slot &slot = *static_cast<Slot *>(argument);
  DefaultFloatingPoint environment;
  while (slot.pool->waitForPost(slot)) {
    runPiece(slot.piece, slot.index);
    slot.pool->finish(slot);
  }
  return nullptr;
}

// True: a piece is ours. False: the pool ends.
bool Pool::waitForPost(Slot &slot) {
  int64_t since = 0;
  for (int pauses = 0;;) {
    uint32_t state = slot.state.load(std::memory_order_relaxed);
    if (state == Posted && slot.state.compare_exchange_strong(state, Taken, std::memory_order_acquire))
      return true;
    if (state == Quit)
      return false;
    relax();
    if (spins && ++pauses % kPausesBetweenClocks != 0)
      continue;
    int64_t now = monotonicNow();
    since = since ? since : now;
    int64_t idle = now - since;
    if (!spins || idle > (running.load(std::memory_order_relaxed) ? kSpinWithoutRegion : kSpinAfterRun)) {
      state = Idle;
      if (slot.state.compare_exchange_strong(state, Asleep, std::memory_order_acq_rel)) {
        while (slot.state.load(std::memory_order_relaxed) == Asleep)
          sleepWhile(slot.state, Asleep);
        since = 0;
      }
    } else if (idle > kSpinBeforeYield) {
      sched_yield();
    }
  }
}
