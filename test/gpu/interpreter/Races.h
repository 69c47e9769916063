#ifndef TEST_GPU_INTERPRETER_RACES_H
#define TEST_GPU_INTERPRETER_RACES_H

#include "test/gpu/interpreter/Machine.h"

#include <unordered_map>

namespace ptx {

/// Accesses to global memory of a launch whose blocks wait for each other, as the
/// memory consistency model has them (section 8): two of the same four bytes, one
/// a store, must be ordered by barriers of a block, or by releases and acquires of
/// at least the GPU's scope. Each warp has a vector clock. The lanes of a warp
/// count as one thread.
class Races {
public:
  Races(uint32_t warps, uint32_t warpsOfBlock)
      : warpsOfBlock(warpsOfBlock), now(warps, Clock(warps)), fenced(warps), observed(warps) {
    for (uint32_t n = 0; n < warps; ++n)
      now[n][n] = 1;
  }

  /// An access by the step's instruction; atomic ones and those with an order (`strong`) only synchronise.
  void load(Step &step, uint64_t address, uint32_t bytes);
  void store(Step &step, uint64_t address, uint32_t bytes);
  void update(Step &step, uint64_t address);
  void fence(Step &step);
  /// A warp arrives at a barrier of its block; all of them are there.
  void arrive(Step &step, const Barrier &barrier);
  void complete(Step &step, const Barrier &barrier);

private:
  using Clock = std::vector<uint32_t>;
  struct Access {
    uint32_t warp, time;
  };
  struct Cell {
    Access store = {0, 0};
    std::vector<Access> loads;
  };

  uint32_t numberOf(const Step &step) const;
  static bool isStrong(const Step &step);
  void release(Step &step, uint64_t address);
  void acquire(Step &step, uint64_t address);
  void check(Step &step, const Access &other, const char *verb, uint64_t address);
  static void join(Clock &clock, const Clock &other);

  uint32_t warpsOfBlock;
  std::vector<Clock> now;              ///< what has happened before, to each warp
  std::vector<Clock> fenced, observed; ///< at its last fence; by relaxed loads since
  std::unordered_map<uint64_t, Clock> released;
  std::unordered_map<const Barrier *, Clock> arrived;
  std::unordered_map<uint64_t, Cell> cells; ///< by address / 4
};

} // namespace ptx

#endif // TEST_GPU_INTERPRETER_RACES_H
