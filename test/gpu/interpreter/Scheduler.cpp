#include "test/gpu/interpreter/Races.h"

#include <algorithm>

namespace ptx {
namespace {

/// Blocks that are resident at once unless the launch is cooperative.
constexpr uint64_t kResidentBlocks = 24;

class Scheduler {
public:
  explicit Scheduler(Launch &launch) : launch(launch), random(launch.options.seed) {}

  void run() {
    const Kernel &kernel = launch.kernel;
    total = uint64_t(launch.grid.x) * launch.grid.y * launch.grid.z;
    threads = launch.block.x * launch.block.y * launch.block.z;
    if (!total || !threads || threads > 1024)
      throw Error("kernel '" + kernel.name + "': a launch of " + std::to_string(total) + " blocks of " +
                  std::to_string(threads) + " threads");
    const uint32_t *required = kernel.requiredThreads;
    if (required[0] &&
        (required[0] != launch.block.x || required[1] != launch.block.y || required[2] != launch.block.z))
      throw Error("kernel '" + kernel.name + "': launched with other numbers of threads than .reqntid says");
    if (kernel.maxThreads && threads > kernel.maxThreads)
      throw Error("kernel '" + kernel.name + "': launched with more threads than .maxntid says");
    if (launch.parameters.size() != kernel.parameterBytes)
      throw Error("kernel '" + kernel.name + "': expects " + std::to_string(kernel.parameterBytes) +
                  " bytes of parameters, got " + std::to_string(launch.parameters.size()));
    if (launch.options.cooperative) {
      uint32_t warpsOfBlock = (threads + kLanes - 1) / kLanes;
      races = std::make_unique<Races>(uint32_t(total) * warpsOfBlock, warpsOfBlock);
      launch.races = races.get();
    }
    refill();
    while (!resident.empty()) {
      if (ready.empty())
        throw Error("deadlock: " + describe());
      size_t pick = random() % ready.size();
      Warp &warp = *ready[pick];
      if (!advance(warp)) {
        // Waits or is done; whoever ends the wait puts it back.
        ready[pick] = ready.back();
        ready.pop_back();
      }
    }
  }

private:
  void refill() {
    while (started < total && (launch.options.cooperative || resident.size() < kResidentBlocks))
      start(started++);
  }

  void start(uint64_t number) {
    auto block = std::make_unique<Block>();
    block->index[0] = uint32_t(number % launch.grid.x);
    block->index[1] = uint32_t(number / launch.grid.x % launch.grid.y);
    block->index[2] = uint32_t(number / launch.grid.x / launch.grid.y);
    block->shared.assign(launch.kernel.sharedBytes + launch.dynamicShared, 0xff);
    block->written.assign(block->shared.size(), 0);
    block->numThreads = threads;
    block->warps.resize((threads + kLanes - 1) / kLanes);
    block->unfinished = uint32_t(block->warps.size());
    if (block->warps.size() > 1 && !block->shared.empty())
      block->races = std::make_unique<SharedRaces>(block->shared.size(), block->warps.size());
    for (size_t i = 0; i < block->warps.size(); ++i) {
      Warp &warp = block->warps[i];
      warp.block = block.get();
      warp.id = uint32_t(i);
      warp.registersPerThread = launch.kernel.registerLimit();
      if (!spareRegisters.empty()) {
        warp.registers = std::move(spareRegisters.back());
        spareRegisters.pop_back();
      }
      warp.registers.assign(size_t(launch.kernel.numRegisters) * kLanes, 0xdeadbeefdeadbeef);
      warp.local.assign(size_t(launch.kernel.localBytes) * kLanes, 0xff);
      uint32_t count = std::min<uint32_t>(threads - uint32_t(i) * kLanes, kLanes);
      warp.alive = count == kLanes ? ~0u : (1u << count) - 1;
      ready.push_back(&warp);
    }
    resident.push_back(std::move(block));
  }

  /// A few instructions of a warp. False: it waits, or is done.
  bool advance(Warp &warp) {
    for (unsigned budget = 1 + unsigned(random() % 256); budget; --budget) {
      if (!step(warp))
        return false;
      if (!warp.alive) {
        finish(warp);
        return false;
      }
    }
    return true;
  }

  void finish(Warp &warp) {
    Block *block = warp.block;
    std::string where = "kernel '" + launch.kernel.name + "', block " + std::to_string(block->index[0]) + ", warp " +
                        std::to_string(warp.id) + " ends while ";
    if (!warp.products.empty() || !warp.productGroups.empty())
      throw Error(where + "matrix products are under way");
    for (auto &[address, barrier] : block->phaseBarriers)
      if (block->unfinished == 1 && !barrier.copies.empty())
        throw Error(where + "a bulk copy is under way");
    if (--block->unfinished)
      return;
    for (Warp &each : block->warps)
      spareRegisters.push_back(std::move(each.registers));
    auto found = std::find_if(resident.begin(), resident.end(), [&](auto &each) { return each.get() == block; });
    resident.erase(found);
    refill();
  }

  /// Lanes of `warp` that stand at `pc`.
  static uint32_t lanesAt(const Warp &warp, uint32_t pc) {
    uint32_t mask = 0;
    for (uint32_t rest = warp.alive; rest; rest &= rest - 1) {
      unsigned lane = unsigned(__builtin_ctz(rest));
      if (warp.pc[lane] == pc)
        mask |= 1u << lane;
    }
    return mask;
  }

  /// The lanes that go next: those that are furthest behind meet the others
  /// soonest; now and then others, so that waiting for one another works.
  uint32_t choose(Warp &warp) {
    if (warp.together)
      return warp.alive;
    uint32_t first = warp.pc[unsigned(__builtin_ctz(warp.alive))];
    if (lanesAt(warp, first) == warp.alive) {
      warp.together = true;
      warp.front = first;
      return warp.alive;
    }
    std::vector<uint32_t> places;
    for (uint32_t rest = warp.alive; rest;) {
      uint32_t pc = warp.pc[unsigned(__builtin_ctz(rest))];
      places.push_back(pc);
      rest &= ~lanesAt(warp, pc);
    }
    std::sort(places.begin(), places.end());
    std::vector<uint32_t> able;
    for (uint32_t pc : places)
      if (pc >= launch.kernel.code.size() || !launch.kernel.code[pc].converges)
        able.push_back(pc);
    // All wait for the others: the instruction itself reports it.
    if (able.empty())
      return lanesAt(warp, places[0]);
    return lanesAt(warp, able[random() % 64 ? 0 : random() % able.size()]);
  }

  bool step(Warp &warp) {
    uint32_t group = choose(warp);
    uint32_t pc = warp.together ? warp.front : warp.pc[unsigned(__builtin_ctz(group))];
    if (pc >= launch.kernel.code.size())
      throw Error("kernel '" + launch.kernel.name + "' runs past its end");
    const Instruction &in = launch.kernel.code[pc];
    uint32_t mask = group;
    if (in.predicate >= 0)
      for (uint32_t rest = group; rest; rest &= rest - 1) {
        unsigned lane = unsigned(__builtin_ctz(rest));
        if (bool(warp.at(uint32_t(in.predicate), lane) & 1) == in.negated)
          mask &= ~(1u << lane);
      }
    Step step{launch, *warp.block, warp, in, mask};
    // Ahead of the instruction, which may branch or end lanes.
    warp.moveTo(group, pc + 1);
    if (mask && !warp.lent.empty())
      checkLent(step);
    if (mask)
      in.execute(step);
    if (++launch.executed > launch.options.maxInstructions)
      throw Error("kernel '" + launch.kernel.name + "' executes too many instructions");
    if (step.wakes || (in.converges && warp.block->warps.size() > 1))
      wake(*warp.block);
    return !step.blocked;
  }

  /// Puts warps back whose barrier has been completed, or at whose mbarrier
  /// something happened: they look at it again.
  void wake(Block &block) {
    for (Warp &warp : block.warps) {
      bool isThrough = warp.barrier >= 0 && block.barriers[warp.barrier].round != warp.barrierRound;
      const PhaseBarrier *phases = warp.phaseBarrier >= 0 ? &block.phaseBarriers[uint64_t(warp.phaseBarrier)] : nullptr;
      bool hasRegisters = warp.wantedRegisters && block.spareRegisters >= warp.wantedRegisters;
      if (!isThrough && !hasRegisters && !(phases && (phases->phase != warp.barrierRound || !phases->copies.empty())))
        continue;
      warp.barrier = warp.phaseBarrier = -1;
      warp.wantedRegisters = 0;
      ready.push_back(&warp);
    }
  }

  std::string describe() {
    std::string text = "kernel '" + launch.kernel.name + "'";
    for (auto &block : resident)
      for (Warp &warp : block->warps)
        if ((warp.barrier >= 0 || warp.phaseBarrier >= 0 || warp.wantedRegisters) && text.size() < 400)
          text += ", block " + std::to_string(block->index[0]) + " warp " + std::to_string(warp.id) + " waits " +
                  (warp.wantedRegisters ? "for " + std::to_string(warp.wantedRegisters) + " registers, of which " +
                                              std::to_string(block->spareRegisters) + " were given back"
                   : warp.barrier >= 0  ? "at barrier " + std::to_string(warp.barrier)
                                        : "at the mbarrier at " + std::to_string(warp.phaseBarrier));
    return text;
  }

  Launch &launch;
  std::minstd_rand random;
  uint64_t total = 0, started = 0;
  uint32_t threads = 0;
  std::vector<std::unique_ptr<Block>> resident;
  std::vector<Warp *> ready;
  std::vector<std::vector<uint64_t>> spareRegisters; ///< of blocks that are done: fresh pages cost more than the rest
  std::unique_ptr<Races> races;
};

} // namespace

void run(Launch &launch) { Scheduler(launch).run(); }

} // namespace ptx
