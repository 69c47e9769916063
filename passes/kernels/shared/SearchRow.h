#ifndef PASSES_KERNELS_SHARED_SEARCHROW_H
#define PASSES_KERNELS_SHARED_SEARCHROW_H

#include "passes/kernels/shared/KernelFunction.h"
#include "passes/kernels/shared/Search.h"
#include "llvm/ADT/STLFunctionalExtras.h"

/// What kernels do with a row of scores, whoever runs them.
namespace attn {

/// Those who work on a row together: one thread, or with overrides a block of them.
class Team {
public:
  Team(Code &k, Index thread, int64_t threads) : k(k), thread(thread), threads(threads) {}
  explicit Team(Code &k) : Team(k, k.index(0), 1) {}
  virtual ~Team() = default;

  Code &k;
  Index thread;
  const int64_t threads;

  /// Of what all threads give, in each of them. Sums of f64 or integers; the others of f32 or i32.
  virtual Num sum(const Num &mine) { return mine; }
  virtual Num greatest(const Num &mine) { return mine; }
  virtual Num least(const Num &mine) { return mine; }
  /// The sum of what the threads before this one give (f64), and of what all do.
  virtual std::pair<Num, Num> sumsBefore(const Num &mine) { return {k.f64(0), mine}; }
  /// What other threads have written is there.
  virtual void wait() {}

  /// Once for all.
  void once(llvm::function_ref<void()> body) { threads == 1 ? body() : k.when(thread == 0, body); }
  /// Over this thread's part of [0, size). Threads of a block ask for several elements before they wait for one.
  template <typename T, typename Body> T sweep(const Index &size, const T &init, Body body) {
    if (threads == 1)
      return k.loop(thread, size, threads, init, body);
    constexpr int64_t kAtOnce = 8;
    Index whole = floorTo(size, kAtOnce * threads);
    T before = k.loop(thread, whole, kAtOnce * threads, init, [&](Index at, auto... now) -> T {
      T next(now...);
      for (int64_t n = 0; n < kAtOnce; ++n)
        next = applyTo(body, next, at + n * threads);
      return next;
    });
    return k.loop(whole + thread, size, threads, before, body);
  }
};

/// Elements that a thread of a CPU reads at once.
inline constexpr int64_t kRowLanes = 16;

/// The greatest of a row's scores, and the logarithm of the sum of their exponentials.
struct LogSum {
  Num greatest, value;
};
LogSum logSum(Team &team, const Index &size, llvm::function_ref<Num(Index)> element);
/// The same by kRowLanes; `elements` gives -inf beyond the end.
LogSum logSumOfVectors(Code &k, const Index &size, llvm::function_ref<Vec(Index)> elements);

/// Whether `token`, an integer of any width, is one of `eos`.
Mask isEnd(Code &k, llvm::ArrayRef<int64_t> eos, const Num &token);

/// In a list whose entries stand best first: moves those that are less than `x` one place down, from the `last` place
/// on, whose entry goes. Returns the place that is free for `x`, behind its equals.
Index makeRoom(Code &k, int64_t last, const Num &x, llvm::function_ref<Num(Index)> valueAt,
               llvm::function_ref<void(Index from, Index to)> move);

/// A row from which one token is drawn.
struct SampledRow {
  Index row, size;
  Mask noEnd; ///< no token that ends
  Num step, seed, temperature, topK, topP;
  Buffer scores, values, tokens, weights; ///< as buildSearchSample has them
};
/// Declares the arguments of `f`, and which row is to be set.
SampledRow sampledRow(KernelFunction &f, Buffer &logSums);
/// `greatest`: of the row's scores.
void drawToken(Team &team, const SearchKernelSpec &spec, const SampledRow &row, const Num &greatest);

} // namespace attn

#endif // PASSES_KERNELS_SHARED_SEARCHROW_H
