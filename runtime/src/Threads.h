#ifndef RUNTIME_SRC_THREADS_H
#define RUNTIME_SRC_THREADS_H

#include "attnrt/attnrt.h"
#include <cstddef>
#include <cstdint>
#include <pthread.h>

namespace attn::rt {

/// CPUs that this process may use, at least 1.
int32_t availableCpus();
/// CPUs of this machine, whoever may use them: they are numbered below that.
int32_t countCpus();

/// Threads where the program names no number: as many as `wished`
/// (OMP_NUM_THREADS) says, whose first number counts; else as `cpus` and `quota`
/// (0: none) allow.
int32_t chooseThreads(const char *wished, int32_t cpus, int32_t quota);

/// The same for this process.
int32_t defaultThreads();

/// More than that no session has.
constexpr int32_t kMaxThreads = 4096;

/// Starts a thread that blocks all signals, so that the program's handlers run
/// on the program's threads. False if the system refuses.
bool startThread(pthread_t &thread, void *(*function)(void *), void *argument, size_t stackSize);

/// Pins a thread to one CPU; one that cannot be used is ignored.
void pinThread(pthread_t thread, int32_t cpu);

/// Bytes between the caller and the end of the calling thread's stack. SIZE_MAX: the system does not say, or the
/// program made itself another stack on this thread.
size_t stackLeft();

/// Whether entry `name`, whose code takes `needed` bytes of stack (0: not known), can be called on this thread.
attnrt_status checkStack(const char *name, uint64_t needed);

/// Sets the floating-point environment to the default (round to nearest, no
/// flush to zero) for its lifetime: results do not depend on what the caller
/// set, nor on which thread computes them.
class DefaultFloatingPoint {
public:
  DefaultFloatingPoint();
  ~DefaultFloatingPoint();
  DefaultFloatingPoint(const DefaultFloatingPoint &) = delete;

private:
  uint64_t saved;
};

} // namespace attn::rt

#endif // RUNTIME_SRC_THREADS_H
