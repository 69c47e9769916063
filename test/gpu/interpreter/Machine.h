#ifndef TEST_GPU_INTERPRETER_MACHINE_H
#define TEST_GPU_INTERPRETER_MACHINE_H

#include "test/gpu/interpreter/Ptx.h"
#include "test/gpu/interpreter/SharedRaces.h"

#include <array>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <type_traits>
#include <unordered_map>

namespace ptx {

constexpr unsigned kLanes = 32;
constexpr uint8_t kUnwritten = 0, kWritten = 1, kUnfenced = 2; ///< Block::written

/// Where generic addresses of shared and local memory and of parameters begin (section 5.2 leaves
/// that to the machine). Addresses of global memory lie below.
constexpr uint64_t kSharedWindow = uint64_t(1) << 52, kLocalWindow = uint64_t(1) << 53,
                   kParamWindow = uint64_t(1) << 54;

/// Global memory: allocations at made-up addresses that no host pointer has, so
/// that code which confuses the two is found.
class GlobalMemory {
public:
  explicit GlobalMemory(uint64_t first = uint64_t(0x7f) << 32) : next(first) {}
  /// New memory holds 0xff: a NaN, or an index out of range.
  uint64_t allocate(uint64_t bytes);
  bool free(uint64_t address);
  /// `bytes` at `address`, or null unless they lie in one allocation.
  uint8_t *find(uint64_t address, uint64_t bytes);
  uint64_t used() const { return total; }
  size_t count() const { return allocations.size(); }

private:
  std::map<uint64_t, std::vector<uint8_t>> allocations; // by their first address
  uint64_t next, total = 0;
  uint64_t lastBegin = 1, lastEnd = 0;
  uint8_t *lastBytes = nullptr;
};

/// What this machine makes of a CUtensorMap: a tensor of 16-bit elements, the innermost dimension first, in tiles of
/// 128 bytes a row, which stand in shared memory with their 16-byte pieces exchanged (CU_TENSOR_MAP_SWIZZLE_128B).
constexpr uint32_t kMaxMapRank = 5;
struct TileMap {
  uint64_t mark, tensor, sizes[kMaxMapRank], pitches[kMaxMapRank - 1];
  uint32_t tile[kMaxMapRank], rank;
};
constexpr size_t kTileMapBytes = 128, kTileMapAlignment = 64;

/// cuTensorMapEncodeTiled for such maps: what is wrong with the arguments, or "" and `to` is written.
struct TileMapRequest {
  int type;
  uint32_t rank;
  uint64_t tensor;
  const uint64_t *sizes, *pitches;
  const uint32_t *tile, *steps;
  int interleave, swizzle, fill;
};
std::string encodeTileMap(const TileMapRequest &request, void *to);

/// A copy by cp.async or cp.async.bulk that has not happened yet.
struct PendingCopy {
  uint64_t to, from;
  uint32_t bytes, fromBytes;
  const TileMap *tiles = nullptr; ///< of a tile that begins at `at`, the innermost dimension first; no `from` then
  std::array<int32_t, kMaxMapRank> at{};
};

/// An mbarrier (section 9.7.13.15): a phase ends when all arrivals and bytes of
/// copies that it waits for are there.
struct PhaseBarrier {
  uint32_t expected = 0, pending = 0; ///< arrivals of a phase, and those still due
  int64_t bytes = 0;                  ///< still due
  uint64_t phase = 0;
  std::vector<PendingCopy> copies;
};

/// A wgmma.mma_async of a warp that has not happened yet.
struct PendingProduct {
  const Instruction *in;
  uint64_t left, right; ///< descriptors; `left` unused where A is in registers
  bool accumulates;
};

/// What the four warps of a warpgroup, each at its own pace, must multiply alike.
struct GroupProducts {
  uint64_t first = 0;                                       ///< number of the first one kept
  std::deque<std::pair<PendingProduct, unsigned>> products; ///< and how many warps have come to it
};

struct Block;

struct Warp {
  Block *block = nullptr;
  uint32_t id = 0;                 ///< in the block
  std::vector<uint64_t> registers; ///< [register][lane]
  std::vector<uint8_t> local;      ///< [lane][localBytes]
  // Where lanes stand: all at `front`, or each at its `pc`.
  bool together = true;
  uint32_t front = 0;
  std::array<uint32_t, kLanes> pc{};
  uint32_t alive = 0;   ///< lanes that have not returned
  int32_t barrier = -1; ///< waits here
  uint64_t barrierRound = 0;
  std::vector<std::vector<PendingCopy>> committed[kLanes];
  std::vector<PendingCopy> uncommitted[kLanes];
  int64_t phaseBarrier = -1; ///< waits at the mbarrier at this address

  // wgmma: products in groups, and the sums under way by their first register.
  std::vector<std::vector<PendingProduct>> productGroups;
  std::vector<PendingProduct> products;
  std::map<uint32_t, std::vector<float>> sums; ///< [register][lane]
  std::vector<uint8_t> lent;                   ///< of each register, whether it belongs to a product; empty: none does
  bool isFenced = false;                       ///< by wgmma.fence, since the last wait
  uint64_t numProducts = 0;                    ///< so far
  uint32_t registersPerThread = 0;             ///< by setmaxnreg; 0: unknown
  uint32_t wantedRegisters = 0;                ///< waits until the block has so many to spare

  uint64_t &at(uint32_t index, unsigned lane) { return registers[size_t(index) * kLanes + lane]; }

  void moveTo(uint32_t lanes, uint32_t target) {
    if (together && lanes == alive) {
      front = target;
      return;
    }
    if (together)
      pc.fill(front);
    together = false;
    for (; lanes; lanes &= lanes - 1)
      pc[unsigned(__builtin_ctz(lanes))] = target;
  }
};

struct Barrier {
  uint32_t arrived = 0;
  uint64_t round = 0;
};

struct Block {
  uint32_t index[3] = {};
  std::vector<uint8_t> shared;
  /// Of each byte: kUnwritten, kWritten, or kUnfenced + the warp that stored it,
  /// which only ordinary accesses see before that warp's fence.proxy.async.
  std::vector<uint8_t> written;
  std::map<uint64_t, PhaseBarrier> phaseBarriers; ///< by their address
  Barrier barriers[16];
  std::vector<Warp> warps;
  uint32_t numThreads = 0, unfinished = 0;
  uint64_t spareRegisters = 0; ///< given back by setmaxnreg.dec
  std::map<uint32_t, GroupProducts> groups;
  std::unique_ptr<SharedRaces> races; ///< of several warps
};

struct Dim3 {
  uint32_t x = 1, y = 1, z = 1;
};

struct LaunchOptions {
  uint64_t seed = 1;
  /// Asynchronous copies happen when they are waited for, instead of at once.
  bool lazy = true;
  /// All blocks are resident, as a grid-wide barrier needs; else only some.
  bool cooperative = false;
  uint64_t maxInstructions = uint64_t(1) << 33;
  /// cudaGraphSetConditional; false: there is no such handle in the graph that is running.
  std::function<bool(uint64_t handle, uint32_t value)> setConditional;
};

class Races;

struct Launch {
  const Kernel &kernel;
  GlobalMemory &memory;
  Dim3 grid, block;
  std::vector<uint8_t> parameters;
  uint32_t dynamicShared = 0;
  LaunchOptions options;
  uint64_t executed = 0;  ///< instructions of warps
  Races *races = nullptr; ///< of a cooperative launch
};

/// One instruction of one warp: what an Execute function sees.
struct Step {
  Launch &launch;
  Block &block;
  Warp &warp;
  const Instruction &in;
  uint32_t mask;        ///< lanes that execute it
  bool blocked = false; ///< set: the warp waits until it is woken
  bool wakes = false;   ///< set: what a warp of the block waits for may be there

  uint64_t read(const Operand &operand, unsigned lane) {
    return operand.kind == Operand::Register ? warp.at(operand.index, lane) : readOther(operand, lane);
  }
  uint64_t readOther(const Operand &operand, unsigned lane);
  template <typename T> T as(const Operand &operand, unsigned lane) {
    uint64_t bits = read(operand, lane);
    T value;
    memcpy(&value, &bits, sizeof(T));
    return value;
  }
  /// A register as wide as any: a signed integer keeps its sign in it (section 9.4.1).
  template <typename T> static uint64_t widened(T value) {
    uint64_t bits = 0;
    if constexpr (std::is_integral_v<T> && std::is_signed_v<T>)
      bits = static_cast<uint64_t>(static_cast<int64_t>(value));
    else
      memcpy(&bits, &value, sizeof(T));
    return bits;
  }
  template <typename T> void write(const Operand &operand, unsigned lane, T value) {
    uint64_t bits = widened(value);
    if (operand.kind == Operand::Register)
      warp.at(operand.index, lane) = bits;
    else if (operand.kind != Operand::Nothing)
      fail("writes to something that is no register");
  }
  template <typename F> void lanes(F f) {
    if (mask == ~0u) {
      for (unsigned lane = 0; lane < kLanes; ++lane)
        f(lane);
      return;
    }
    for (uint32_t rest = mask; rest; rest &= rest - 1)
      f(unsigned(__builtin_ctz(rest)));
  }
  /// Writes f(lane) to the first operand.
  template <typename F> void each(F f) {
    const Operand &to = operand(0);
    if (to.kind != Operand::Register)
      return lanes([&](unsigned lane) { write(to, lane, f(lane)); });
    uint64_t *at = &warp.at(to.index, 0);
    lanes([&](unsigned lane) { at[lane] = widened(f(lane)); });
  }
  const Operand &operand(size_t i) const {
    if (i >= in.operands.size())
      fail("has too few operands");
    return in.operands[i];
  }
  size_t numOperands() const { return in.operands.size(); }
  uint64_t address(const Operand &operand, unsigned lane) {
    if (operand.kind != Operand::Address)
      fail("expects an address");
    return read(operand.parts[0], lane) + uint64_t(operand.offset);
  }

  /// Memory, checked. `align` 0: bytes.
  uint8_t *global(uint64_t address, uint32_t bytes, uint32_t align);
  void loadShared(uint64_t address, void *to, uint32_t bytes, uint32_t align, bool isAsync = false);
  void storeShared(uint64_t address, const void *from, uint32_t bytes, uint32_t align);
  /// As asynchronous copies and wgmma do (the async proxy, section 8.6).
  void loadSharedAsync(uint64_t address, void *to, uint32_t bytes);
  void storeSharedAsync(uint64_t address, const void *from, uint32_t bytes);
  /// An asynchronous copy to there begins: it is not ordered behind stores without a fence.proxy.async.
  void startCopy(uint64_t address, uint32_t bytes);
  /// What lay there is gone and the new is not there.
  void forgetShared(uint64_t address, uint32_t bytes);
  uint8_t *local(unsigned lane, uint64_t address, uint32_t bytes, uint32_t align);
  void load(uint64_t genericAddress, unsigned lane, void *to, uint32_t bytes);
  void store(uint64_t genericAddress, unsigned lane, const void *from, uint32_t bytes);

  [[noreturn]] void fail(const std::string &message) const;
};

/// An operand whose form is looked at once for all lanes.
class Source {
public:
  Source(Step &step, size_t number) : Source(step, step.operand(number)) {}
  Source(Step &step, const Operand &operand) {
    if (operand.kind == Operand::Register) {
      bits = &step.warp.at(operand.index, 0);
    } else if (operand.kind == Operand::Immediate) {
      bits = &operand.bits;
      stride = 0;
    } else {
      bits = others;
      step.lanes([&](unsigned lane) { others[lane] = step.read(operand, lane); });
    }
  }
  Source(const Source &) = delete;
  template <typename T> T as(unsigned lane) const {
    T value;
    memcpy(&value, bits + lane * stride, sizeof(T));
    return value;
  }

private:
  const uint64_t *bits;
  unsigned stride = 1;
  uint64_t others[kLanes];
};

/// Runs all blocks of a launch, interleaved by a scheduler that `options.seed`
/// seeds. Throws Error for what the program does wrong.
void run(Launch &launch);

/// Adds a family's opcodes to the table.
struct Entry {
  Execute execute;
  bool converges;
};
using Table = std::unordered_map<std::string, Entry>;
void addIntegerInstructions(Table &);
void addFloatInstructions(Table &);
void addConversions(Table &);
void addMemoryInstructions(Table &);
void addControlInstructions(Table &);
void addMatrixInstructions(Table &);
void addWarpgroupInstructions(Table &);
void addPhaseInstructions(Table &);
void addTileInstructions(Table &);

/// The mbarrier at an address of shared memory, and what happens to it when a copy that it waits for begins or ends.
PhaseBarrier &barrierAt(Step &step, uint64_t address);
void startCopy(Step &step, PhaseBarrier &barrier, const PendingCopy &copy);
/// Writes a tile, with zeros beyond the matrix.
void copyTile(Step &step, const PendingCopy &copy);

/// Fails where the instruction uses a register that belongs to a wgmma under way, of which the warp has some.
void checkLent(Step &step);
/// Fails where a wgmma under way, of any warp of the block, reads that shared memory.
void checkUnread(Step &step, uint64_t address, uint32_t bytes);

//===----------------------------------------------------------------------===//
// Half precision
//===----------------------------------------------------------------------===//

float fromBf16(uint16_t bits);
float fromF16(uint16_t bits);
uint16_t toBf16(float value); ///< to nearest even, NaN 0x7fff
uint16_t toF16(float value);  ///< to nearest even, NaN 0x7fff

} // namespace ptx

#endif // TEST_GPU_INTERPRETER_MACHINE_H
