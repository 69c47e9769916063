#include "tools/attn-bench/Machine.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <thread>
#include <unistd.h>
#include <vector>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace attn::tools {
namespace {

double secondsNow() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Twelve independent sums hide the latency of four cycles on two ports.
constexpr int kSums = 12;

#if defined(__x86_64__)
#define SPIN(NAME, TARGET, VECTOR, SET, FMA, CONSTRAINT)                                                               \
  [[gnu::target(TARGET)]] void NAME(int64_t rounds) {                                                                  \
    VECTOR sums[kSums], x = SET(0.999f), y = SET(0.001f);                                                              \
    for (auto &sum : sums)                                                                                             \
      sum = SET(1);                                                                                                    \
    for (int64_t i = 0; i < rounds; ++i)                                                                               \
      for (auto &sum : sums) {                                                                                         \
        sum = FMA(sum, x, y);                                                                                          \
        asm volatile("" : "+" CONSTRAINT(sum)); /* neither folded nor moved out */                                     \
      }                                                                                                                \
  }
SPIN(spin16, "avx512f", __m512, _mm512_set1_ps, _mm512_fmadd_ps, "v")
SPIN(spin8, "avx2,fma", __m256, _mm256_set1_ps, _mm256_fmadd_ps, "x")
__m128 multiplyAdd(__m128 a, __m128 b, __m128 c) { return _mm_add_ps(_mm_mul_ps(a, b), c); }
SPIN(spin4, "sse2", __m128, _mm_set1_ps, multiplyAdd, "x")
#undef SPIN

/// FLOP/s of one thread: the best of some short tries.
double spinBest() {
  int lanes = __builtin_cpu_supports("avx512f") ? 16 : __builtin_cpu_supports("fma") ? 8 : 4;
  auto spin = lanes == 16 ? spin16 : lanes == 8 ? spin8 : spin4;
  constexpr int64_t kRounds = 1 << 17;
  double best = 0;
  for (int attempt = 0; attempt < 40; ++attempt) {
    double before = secondsNow();
    spin(kRounds);
    best = std::max(best, 2.0 * kSums * lanes * kRounds / (secondsNow() - before));
  }
  return best;
}
#else
double spinBest() { return 0; }
#endif

/// Of the last level.
int64_t cacheBytes() { return std::max({sysconf(_SC_LEVEL3_CACHE_SIZE), sysconf(_SC_LEVEL2_CACHE_SIZE), 0L}); }

/// Bytes/s of one thread that sums an array: the best of some sweeps.
double sweepBest(int64_t bytes) {
  std::vector<uint64_t> array(static_cast<size_t>(bytes) / sizeof(uint64_t), 1);
  double best = 0, start = secondsNow();
  for (int attempt = 0; attempt < 5 || (attempt < 30 && secondsNow() - start < 0.5); ++attempt) {
    double before = secondsNow();
    uint64_t sum = 0;
    for (uint64_t word : array)
      sum += word;
    asm volatile("" : : "r"(sum)); // it is needed
    best = std::max(best, static_cast<double>(array.size() * sizeof(uint64_t)) / (secondsNow() - before));
  }
  return best;
}

/// More than there are processors reach no more.
int32_t atOnce(int32_t threads) {
  return std::clamp(threads, 1, std::max(1, static_cast<int32_t>(std::thread::hardware_concurrency())));
}

/// What `threads` threads reach together, each by `one`.
template <typename Function> double sumOverThreads(int32_t threads, Function one) {
  std::vector<double> found(static_cast<size_t>(threads));
  std::vector<std::thread> others;
  for (size_t i = 1; i < found.size(); ++i)
    others.emplace_back([&found, i, one] { found[i] = one(); });
  found[0] = one();
  for (std::thread &other : others)
    other.join();
  return std::accumulate(found.begin(), found.end(), 0.0);
}

} // namespace

double measurePeak(int32_t threads) { return sumOverThreads(atOnce(threads), spinBest); }

double measureBandwidth(int32_t threads) {
  constexpr int64_t kLeast = int64_t(32) << 20, kMost = int64_t(1) << 30;
  threads = atOnce(threads);
  // Twice what the caches hold, in parts.
  int64_t bytes = std::clamp(2 * cacheBytes() / threads, kLeast, kMost);
  return sumOverThreads(threads, [bytes] { return sweepBest(bytes); });
}

} // namespace attn::tools
