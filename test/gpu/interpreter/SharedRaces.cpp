#include "test/gpu/interpreter/SharedRaces.h"
#include "test/gpu/interpreter/Machine.h"

#include <algorithm>

namespace ptx {

SharedRaces::SharedRaces(size_t bytes, size_t warps)
    : warps(warps), now(warps, Clock{}), cells((bytes + 3) / 4), loads(cells.size() * warps) {
  for (size_t n = 0; n < warps; ++n)
    now[n][n] = 1;
}

void SharedRaces::join(Clock &clock, const Clock &other) {
  for (size_t n = 0; n < kMostWarps; ++n)
    clock[n] = std::max(clock[n], other[n]);
}

void SharedRaces::check(Step &step, uint32_t warp, uint32_t time, const char *verb, uint64_t cell) {
  if (warp != step.warp.id && time > now[step.warp.id][warp])
    step.fail("races with warp " + std::to_string(warp) + ", which " + verb + " shared memory at " +
              std::to_string(4 * cell));
}

/// Which of the four bytes from 4 * cell on an access has.
static uint32_t bytesOf(uint64_t cell, uint64_t address, uint32_t bytes) {
  uint32_t result = 0;
  for (uint32_t n = 0; n < 4; ++n)
    result |= uint32_t(4 * cell + n >= address && 4 * cell + n < address + bytes) << n;
  return result;
}

void SharedRaces::load(Step &step, uint64_t address, uint32_t bytes, bool isAsync) {
  uint32_t self = step.warp.id;
  for (uint64_t n = address / 4; n <= (address + bytes - 1) / 4; ++n) {
    const Cell &cell = cells[n];
    if (cell.bytes & bytesOf(n, address, bytes)) {
      check(step, cell.warp, cell.time, "stored to", n);
      if (isAsync)
        check(step, cell.warp, cell.published, "only later said by fence.proxy.async that it stored to", n);
    }
    loads[n * warps + self] = now[self][self];
  }
}

void SharedRaces::store(Step &step, uint64_t address, uint32_t bytes, bool isAsync, bool isSame) {
  constexpr uint32_t kWhole = 0xf;
  uint32_t self = step.warp.id;
  for (uint64_t n = address / 4; n <= (address + bytes - 1) / 4; ++n) {
    uint32_t own = bytesOf(n, address, bytes);
    if (!isSame && (cells[n].bytes & own))
      check(step, cells[n].warp, cells[n].time, "stored to", n);
    for (uint32_t warp = 0; warp < warps && own == kWhole; ++warp)
      check(step, warp, loads[n * warps + warp], "loaded from", n);
    cells[n] = {self, now[self][self], isAsync ? now[self][self] : kNever, own};
  }
}

void SharedRaces::publish(Step &step, uint64_t address) {
  Cell &cell = cells[address / 4];
  if (cell.warp == step.warp.id)
    cell.published = now[cell.warp][cell.warp];
}

void SharedRaces::release(uint32_t warp, const void *barrier) {
  join(clocks[barrier], now[warp]);
  ++now[warp][warp];
}

void SharedRaces::acquire(uint32_t warp, const void *barrier) {
  auto found = clocks.find(barrier);
  if (found != clocks.end())
    join(now[warp], found->second);
}

} // namespace ptx
