#ifndef TEST_KERNELS_MEASURE_H
#define TEST_KERNELS_MEASURE_H

#include "test/kernels/KernelHarness.h"

#include <algorithm>
#include <ctime>
#include <vector>

// What the kernel benchmarks share.
namespace attn::test {

/// Seconds of a call. On a busy machine the best is what the code can do.
struct Timing {
  double median, best;
};

/// Seconds that this thread has had a core: what others take does not count.
inline double threadTime() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec + 1e-9 * now.tv_nsec;
}

/// Times calls for at least `seconds` in all.
template <typename Fn> Timing measureTime(double seconds, Fn call) {
  for (int i = 0; i < 3; ++i)
    call();
  std::vector<double> times;
  double start = threadTime();
  do {
    double before = threadTime();
    call();
    times.push_back(threadTime() - before);
  } while (times.size() < 5 || threadTime() - start < seconds);
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times.front()};
}

template <typename Fn> double medianTime(double seconds, Fn call) { return measureTime(seconds, call).median; }

/// GFLOP/s of 12 independent chains of FMAs in registers on this machine now.
double measurePeak(llvm::StringRef isa, int64_t lanes);

} // namespace attn::test

#endif // TEST_KERNELS_MEASURE_H
