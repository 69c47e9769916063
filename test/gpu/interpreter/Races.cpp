#include "test/gpu/interpreter/Races.h"

#include <algorithm>

namespace ptx {

static bool has(const Step &step, const char *part) { return step.in.opcode.find(part) != std::string::npos; }

uint32_t Races::numberOf(const Step &step) const {
  const uint32_t *index = step.block.index;
  const Dim3 &grid = step.launch.grid;
  return ((index[2] * grid.y + index[1]) * grid.x + index[0]) * warpsOfBlock + step.warp.id;
}

bool Races::isStrong(const Step &step) {
  for (const char *part : {".relaxed", ".acquire", ".release", ".volatile"})
    if (has(step, part))
      return true;
  return false;
}

void Races::join(Clock &clock, const Clock &other) {
  if (clock.size() < other.size())
    clock.resize(other.size());
  for (size_t n = 0; n < other.size(); ++n)
    clock[n] = std::max(clock[n], other[n]);
}

void Races::check(Step &step, const Access &other, const char *verb, uint64_t address) {
  uint32_t self = numberOf(step);
  if (other.warp == self || other.time <= now[self][other.warp])
    return;
  char text[120];
  snprintf(text, sizeof(text), "races with warp %u of block %u, which %s global memory at 0x%llx",
           other.warp % warpsOfBlock, other.warp / warpsOfBlock, verb, static_cast<unsigned long long>(address));
  step.fail(text);
}

void Races::load(Step &step, uint64_t address, uint32_t bytes) {
  if (isStrong(step))
    return acquire(step, address);
  uint32_t self = numberOf(step);
  for (uint64_t at = address / 4; at <= (address + bytes - 1) / 4; ++at) {
    Cell &cell = cells[at];
    check(step, cell.store, "stored to", 4 * at);
    auto found = std::find_if(cell.loads.begin(), cell.loads.end(), [&](Access &each) { return each.warp == self; });
    if (found == cell.loads.end())
      cell.loads.push_back({self, now[self][self]});
    else
      found->time = now[self][self];
  }
}

void Races::store(Step &step, uint64_t address, uint32_t bytes) {
  if (isStrong(step))
    return release(step, address);
  uint32_t self = numberOf(step);
  for (uint64_t at = address / 4; at <= (address + bytes - 1) / 4; ++at) {
    Cell &cell = cells[at];
    check(step, cell.store, "stored to", 4 * at);
    for (const Access &each : cell.loads)
      check(step, each, "loaded from", 4 * at);
    cell.store = {self, now[self][self]};
    cell.loads.clear();
  }
}

void Races::update(Step &step, uint64_t address) {
  acquire(step, address);
  release(step, address);
}

// Of an access without .release (.acquire) the fence before (behind) it counts.
void Races::release(Step &step, uint64_t address) {
  uint32_t self = numberOf(step);
  if (has(step, ".cta"))
    return;
  if (!has(step, ".release") && !has(step, ".acq_rel"))
    return join(released[address], fenced[self]);
  join(released[address], now[self]);
  ++now[self][self];
}

void Races::acquire(Step &step, uint64_t address) {
  uint32_t self = numberOf(step);
  if (!has(step, ".cta"))
    join(has(step, ".acquire") || has(step, ".acq_rel") ? now[self] : observed[self], released[address]);
}

void Races::fence(Step &step) {
  uint32_t self = numberOf(step);
  if (has(step, ".cta"))
    return;
  join(now[self], observed[self]);
  fenced[self] = now[self];
  ++now[self][self];
}

void Races::arrive(Step &step, const Barrier &barrier) {
  uint32_t self = numberOf(step);
  join(arrived[&barrier], now[self]);
  ++now[self][self];
}

void Races::complete(Step &step, const Barrier &barrier) {
  Clock all = std::move(arrived[&barrier]);
  arrived.erase(&barrier);
  uint32_t first = numberOf(step) - step.warp.id;
  for (const Warp &each : step.block.warps)
    if (each.id == step.warp.id || (each.barrier >= 0 && &step.block.barriers[each.barrier] == &barrier))
      join(now[first + each.id], all);
}

} // namespace ptx
