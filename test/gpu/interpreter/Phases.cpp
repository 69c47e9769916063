#include "test/gpu/interpreter/Machine.h"

// Section 9.7.13.15 (mbarrier), 9.7.9.25.4 (bulk copies), 9.7.13.4 (fences between proxies).

namespace ptx {

PhaseBarrier &barrierAt(Step &s, uint64_t address) {
  auto found = s.block.phaseBarriers.find(address);
  if (found == s.block.phaseBarriers.end())
    s.fail("names shared memory that holds no mbarrier, at " + std::to_string(address));
  return found->second;
}

namespace {

void endPhase(Step &s, PhaseBarrier &barrier) {
  s.wakes = true;
  if (barrier.pending || barrier.bytes)
    return;
  ++barrier.phase;
  barrier.pending = barrier.expected;
}

/// mbarrier.init.shared.b64 [addr], count (9.7.13.15.9).
void initialize(Step &s) {
  s.lanes([&](unsigned lane) {
    uint64_t address = s.address(s.operand(0), lane);
    uint32_t count = s.as<uint32_t>(s.operand(1), lane);
    uint64_t opaque = 0;
    s.storeShared(address, &opaque, 8, 8);
    if (!count || count >= 1u << 20)
      s.fail("expects " + std::to_string(count) + " arrivals");
    PhaseBarrier barrier;
    barrier.expected = barrier.pending = count;
    s.block.phaseBarriers[address] = barrier;
  });
}

/// mbarrier.arrive[.expect_tx].shared.b64 state, [addr][, bytes] (9.7.13.15.13). The state is not used here.
template <bool Expects> void arrive(Step &s) {
  s.lanes([&](unsigned lane) {
    PhaseBarrier &barrier = barrierAt(s, s.address(s.operand(1), lane));
    if (Expects)
      barrier.bytes += s.as<uint32_t>(s.operand(2), lane);
    if (s.block.races)
      s.block.races->release(s.warp.id, &barrier);
    if (!barrier.pending)
      s.fail("arrives more often than the mbarrier expects");
    --barrier.pending;
    endPhase(s, barrier);
  });
}

void perform(Step &s, PhaseBarrier &barrier, const PendingCopy &copy) {
  if (copy.tiles)
    copyTile(s, copy);
  else
    s.storeSharedAsync(copy.to, s.global(copy.from, copy.bytes, 16), copy.bytes);
  barrier.bytes -= copy.bytes;
}

/// mbarrier.try_wait.parity.shared.b64 p, [addr], parity (9.7.13.15.16): whether
/// the phase of that parity is over. A warp whose lanes all wait for the same sleeps; of lanes that meet here in
/// different rounds of a loop some may be through.
void tryWait(Step &s) {
  bool sleeps = s.mask == s.warp.alive;
  int64_t first = -1;
  s.lanes([&](unsigned lane) {
    uint64_t address = s.address(s.operand(1), lane);
    PhaseBarrier &barrier = barrierAt(s, address);
    uint32_t parity = s.as<uint32_t>(s.operand(2), lane);
    if (parity > 1)
      s.fail("waits for parity " + std::to_string(parity));
    if ((barrier.phase & 1) == parity && !barrier.copies.empty()) {
      for (const PendingCopy &copy : barrier.copies)
        perform(s, barrier, copy);
      barrier.copies.clear();
      endPhase(s, barrier);
    }
    bool isOver = (barrier.phase & 1) != parity;
    s.write(s.operand(0), lane, uint8_t(isOver));
    if (isOver && s.block.races)
      s.block.races->acquire(s.warp.id, &barrier);
    if (first < 0)
      first = int64_t(address), s.warp.barrierRound = barrier.phase;
    sleeps &= !isOver && first == int64_t(address);
  });
  s.warp.phaseBarrier = sleeps ? first : -1;
  if (!sleeps)
    return;
  s.warp.moveTo(s.mask, uint32_t(&s.in - s.launch.kernel.code.data())); // once more when it is woken
  s.blocked = true;
}

/// cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [to], [from], bytes, [mbarrier] (9.7.9.25.4.1).
void copyBulk(Step &s) {
  s.lanes([&](unsigned lane) {
    uint32_t bytes = s.as<uint32_t>(s.operand(2), lane);
    PendingCopy copy{s.address(s.operand(0), lane), s.address(s.operand(1), lane), bytes, bytes};
    if (!bytes || (copy.to | copy.from | bytes) % 16)
      s.fail("copies " + std::to_string(bytes) + " bytes; they and both addresses must be multiples of 16");
    startCopy(s, barrierAt(s, s.address(s.operand(3), lane)), copy);
  });
}

/// fence.proxy.async: what the warp has stored is there for asynchronous copies and wgmma, too.
void fenceProxy(Step &s) {
  for (uint64_t address = 0; address < s.block.written.size(); ++address)
    if (s.block.written[address] == kUnfenced + s.warp.id) {
      s.block.written[address] = kWritten;
      if (s.block.races)
        s.block.races->publish(s, address);
    }
}

void nothing(Step &) {}

} // namespace

void startCopy(Step &s, PhaseBarrier &barrier, const PendingCopy &copy) {
  s.startCopy(copy.to, copy.bytes);
  if (s.block.races)
    s.block.races->release(s.warp.id, &barrier);
  if (s.launch.options.lazy) {
    s.forgetShared(copy.to, copy.bytes);
    barrier.copies.push_back(copy);
    s.wakes = true;
    return;
  }
  perform(s, barrier, copy);
  endPhase(s, barrier);
}

void addPhaseInstructions(Table &table) {
  for (std::string shared : {".shared.b64", ".shared::cta.b64"}) {
    table["mbarrier.init" + shared] = {initialize, false};
    table["mbarrier.arrive" + shared] = {arrive<false>, false};
    table["mbarrier.arrive.expect_tx" + shared] = {arrive<true>, false};
    table["mbarrier.try_wait.parity" + shared] = {tryWait, false};
  }
  table["cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"] = {copyBulk, false};
  table["fence.proxy.async"] = table["fence.proxy.async.shared::cta"] = {fenceProxy, false};
  // mbarriers are there for copies at once.
  table["fence.mbarrier_init.release.cluster"] = {nothing, false};
}

} // namespace ptx
