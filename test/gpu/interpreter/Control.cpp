#include "test/gpu/interpreter/Races.h"

// Section 9.7.12 (control flow), 9.7.13 (barriers and fences).

namespace ptx {
namespace {

void branch(Step &s) { s.warp.moveTo(s.mask, s.in.target); }
void leave(Step &s) { s.warp.alive &= ~s.mask; }
void nothing(Step &) {}
void trap(Step &s) { s.fail("was executed"); }

Barrier &barrierOf(Step &s, uint32_t &id) {
  s.lanes([&](unsigned lane) { id = s.as<uint32_t>(s.operand(0), lane); });
  if (id > 15)
    s.fail("names barrier " + std::to_string(id));
  if (s.mask != s.warp.alive)
    s.fail("is not executed by all lanes of the warp");
  return s.block.barriers[id];
}
uint32_t expectedThreads(Step &s) {
  uint32_t count = s.block.numThreads;
  if (s.numOperands() > 1)
    s.lanes([&](unsigned lane) { count = s.as<uint32_t>(s.operand(1), lane); });
  if (count == 0 || (s.numOperands() > 1 && count % kLanes))
    s.fail("expects " + std::to_string(count) + " threads, no multiple of the warp");
  return (count + kLanes - 1) / kLanes * kLanes;
}
// A warp counts as 32 threads (9.7.13.1).
bool arrive(Step &s, Barrier &barrier) {
  uint32_t expected = expectedThreads(s);
  barrier.arrived += kLanes;
  if (s.launch.races)
    s.launch.races->arrive(s, barrier);
  if (s.block.races)
    s.block.races->release(s.warp.id, &barrier);
  if (barrier.arrived > expected)
    s.fail("has more arrivals than the barrier expects");
  if (barrier.arrived < expected)
    return false;
  barrier.arrived = 0;
  ++barrier.round;
  if (s.launch.races)
    s.launch.races->complete(s, barrier);
  if (s.block.races) {
    for (const Warp &each : s.block.warps)
      if (each.id == s.warp.id || (each.barrier >= 0 && &s.block.barriers[each.barrier] == &barrier))
        s.block.races->acquire(each.id, &barrier);
    s.block.races->forget(&barrier);
  }
  return true;
}
void synchronize(Step &s) {
  uint32_t id = 0;
  Barrier &barrier = barrierOf(s, id);
  uint64_t round = barrier.round;
  if (arrive(s, barrier))
    return;
  s.warp.barrier = int32_t(id);
  s.warp.barrierRound = round;
  s.blocked = true;
}
void arriveOnly(Step &s) {
  uint32_t id = 0;
  arrive(s, barrierOf(s, id));
}
void warpBarrier(Step &s) {
  uint32_t members = 0;
  s.lanes([&](unsigned lane) { members = s.as<uint32_t>(s.operand(0), lane); });
  if ((members & s.warp.alive) != s.mask)
    s.fail("is executed by other lanes than its member mask names");
}
// Values are sequentially consistent here; who must have ordered them is in Races.
void fence(Step &s) {
  if (s.launch.races)
    s.launch.races->fence(s);
}
void activeMask(Step &s) {
  s.lanes([&](unsigned lane) { s.write(s.operand(0), lane, s.mask); });
}

// Arguments of a call (9.7.9.12); the parser has made registers of them.
void passArgument(Step &s) {
  const Operand &to = s.operand(0);
  if (to.kind != Operand::Address || to.offset || to.parts[0].kind != Operand::Register)
    s.fail("stores to something that is no argument of a call");
  s.lanes([&](unsigned lane) { s.write(to.parts[0], lane, s.read(s.operand(1), lane)); });
}
// 9.7.12.5; the parser knows cudaGraphSetConditional alone.
void setConditional(Step &s) {
  s.lanes([&](unsigned lane) {
    uint64_t handle = s.as<uint64_t>(s.operand(0), lane);
    if (!s.launch.options.setConditional ||
        !s.launch.options.setConditional(handle, s.as<uint32_t>(s.operand(1), lane)))
      s.fail("names a condition out of bounds of the graph that is running");
  });
}

} // namespace

void addControlInstructions(Table &table) {
  table["bra"] = table["bra.uni"] = {branch, false};
  table["ret"] = table["exit"] = table["ret.uni"] = {leave, false};
  table["trap"] = {trap, false};
  table["call.uni"] = {setConditional, false};
  table["st.param.b32"] = table["st.param.b64"] = {passArgument, false};
  for (const char *name :
       {"bar.sync", "barrier.sync", "barrier.sync.aligned", "barrier.cta.sync.aligned", "bar.cta.sync"})
    table[name] = {synchronize, true};
  for (const char *name : {"bar.arrive", "barrier.arrive", "barrier.cta.arrive.aligned", "bar.cta.arrive"})
    table[name] = {arriveOnly, true};
  table["bar.warp.sync"] = {warpBarrier, true};
  table["activemask.b32"] = {activeMask, false};
  for (const char *name : {"membar.cta", "membar.gl", "membar.sys", "fence.acq_rel.cta", "fence.acq_rel.gpu",
                           "fence.acq_rel.sys", "fence.sc.cta", "fence.sc.gpu", "fence.sc.sys"})
    table[name] = {fence, false};
  for (const char *name : {"prefetch.global.L1", "prefetch.global.L2"})
    table[name] = {nothing, false};
}

} // namespace ptx
