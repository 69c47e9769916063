#ifndef TEST_GPU_INTERPRETER_SHAREDRACES_H
#define TEST_GPU_INTERPRETER_SHAREDRACES_H

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace ptx {

struct Step;

/// Accesses of a block's warps to its shared memory: two of the same bytes, one a store, must be ordered by barriers of
/// the block or by mbarriers, whatever the values were (section 8). Each warp has a vector clock; of four bytes the
/// last store and each warp's last load are known. The lanes of a warp count as one thread. Left out are atomic
/// accesses, stores of what is there already beside each other, and stores of less than four bytes beside loads.
class SharedRaces {
public:
  SharedRaces(std::size_t bytes, std::size_t warps);

  /// `isAsync`: by wgmma, which must also be ordered behind the storing warp's fence.proxy.async.
  void load(Step &step, uint64_t address, uint32_t bytes, bool isAsync);
  /// `isAsync`: by a bulk copy that the warp starts; `isSame`: of what is there.
  void store(Step &step, uint64_t address, uint32_t bytes, bool isAsync, bool isSame);
  /// fence.proxy.async for what this warp has stored there.
  void publish(Step &step, uint64_t address);
  /// What a warp has done so far is before what those do that wait for `barrier`.
  void release(uint32_t warp, const void *barrier);
  void acquire(uint32_t warp, const void *barrier);
  void forget(const void *barrier) { clocks.erase(barrier); }

private:
  static constexpr std::size_t kMostWarps = 32;
  static constexpr uint32_t kNever = 0xffffffff;
  using Clock = std::array<uint32_t, kMostWarps>;
  struct Cell {
    uint32_t warp = 0, time = 0, published = 0; ///< of the last store
    uint32_t bytes = 0;                         ///< a bit for each that it stored
  };
  static void join(Clock &clock, const Clock &other);
  void check(Step &step, uint32_t warp, uint32_t time, const char *verb, uint64_t cell);

  std::size_t warps;
  std::vector<Clock> now; ///< what has happened before, to each warp
  std::map<const void *, Clock> clocks;
  std::vector<Cell> cells;     ///< by address / 4
  std::vector<uint32_t> loads; ///< [cell][warp]: time of the last
};

} // namespace ptx

#endif // TEST_GPU_INTERPRETER_SHAREDRACES_H
