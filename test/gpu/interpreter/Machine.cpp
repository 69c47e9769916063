#include "test/gpu/interpreter/Machine.h"

#include <algorithm>
#include <cmath>

namespace ptx {

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

uint64_t GlobalMemory::allocate(uint64_t bytes) {
  uint64_t address = next;
  // Gaps: what is read behind one allocation does not lie in another.
  next += (bytes + 0xfff) / 0x1000 * 0x1000 + 0x1000;
  allocations[address].assign(bytes, 0xff);
  total += bytes;
  lastBegin = 1, lastEnd = 0;
  return address;
}

bool GlobalMemory::free(uint64_t address) {
  auto found = allocations.find(address);
  if (found == allocations.end())
    return false;
  total -= found->second.size();
  allocations.erase(found);
  lastBegin = 1, lastEnd = 0;
  return true;
}

uint8_t *GlobalMemory::find(uint64_t address, uint64_t bytes) {
  if (address >= lastBegin && address < lastEnd && bytes <= lastEnd - address)
    return lastBytes + (address - lastBegin);
  auto found = allocations.upper_bound(address);
  if (found == allocations.begin())
    return nullptr;
  --found;
  uint64_t size = found->second.size(), offset = address - found->first;
  if (offset > size || bytes > size - offset)
    return nullptr;
  lastBegin = found->first, lastEnd = lastBegin + size, lastBytes = found->second.data();
  return lastBytes + offset;
}

void Step::fail(const std::string &message) const {
  char where[160];
  snprintf(where, sizeof(where),
           "kernel '%.60s', block (%u, %u, %u), warp %u, ptx line %u: ", launch.kernel.name.c_str(), block.index[0],
           block.index[1], block.index[2], warp.id, in.line);
  throw Error(where + in.opcode + " " + message);
}

static std::string hex(uint64_t value) {
  char text[32];
  snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

uint8_t *Step::global(uint64_t address, uint32_t bytes, uint32_t align) {
  if (align && address % align)
    fail("is misaligned: " + hex(address));
  uint8_t *memory = launch.memory.find(address, bytes);
  if (!memory)
    fail("is out of bounds in global memory: " + std::to_string(bytes) + " bytes at " + hex(address));
  return memory;
}

static void checkShared(Step &step, uint64_t address, uint32_t bytes, uint32_t align) {
  if (align && address % align)
    step.fail("is misaligned in shared memory: " + hex(address));
  uint64_t size = step.block.shared.size();
  if (address > size || bytes > size - address)
    step.fail("is out of bounds in shared memory: " + std::to_string(bytes) + " bytes at " + hex(address) + " of " +
              hex(size));
}

/// Whether all of `bytes` states are other than kUnwritten.
static bool isWritten(const uint8_t *states, uint32_t bytes) {
  static_assert(kUnwritten == 0, "a word without a byte of 0");
  constexpr uint32_t kOnes = 0x01010101;
  for (; bytes >= 4; states += 4, bytes -= 4) {
    uint32_t word;
    memcpy(&word, states, 4);
    if ((word - kOnes) & ~word & kOnes << 7)
      return false;
  }
  for (; bytes; ++states, --bytes)
    if (*states == kUnwritten)
      return false;
  return true;
}

void Step::loadShared(uint64_t address, void *to, uint32_t bytes, uint32_t align, bool isAsync) {
  checkShared(*this, address, bytes, align);
  if (block.races)
    block.races->load(*this, address, bytes, isAsync);
  if (!isWritten(&block.written[address], bytes)) {
    while (block.written[address] != kUnwritten)
      ++address;
    fail("reads shared memory that was never written, at " + hex(address));
  }
  memcpy(to, &block.shared[address], bytes);
}

void Step::storeShared(uint64_t address, const void *from, uint32_t bytes, uint32_t align) {
  checkShared(*this, address, bytes, align);
  checkUnread(*this, address, bytes);
  if (block.races)
    block.races->store(*this, address, bytes, /*isAsync=*/false,
                       isWritten(&block.written[address], bytes) && !memcmp(&block.shared[address], from, bytes));
  memcpy(&block.shared[address], from, bytes);
  memset(&block.written[address], int(kUnfenced + warp.id), bytes);
}

void Step::loadSharedAsync(uint64_t address, void *to, uint32_t bytes) {
  loadShared(address, to, bytes, 0, /*isAsync=*/true);
  for (uint32_t i = 0; i < bytes; ++i)
    if (block.written[address + i] != kWritten)
      fail("reads shared memory of which warp " + std::to_string(block.written[address + i] - kUnfenced) +
           " has not said by fence.proxy.async that it stored it, at " + hex(address + i));
}

void Step::storeSharedAsync(uint64_t address, const void *from, uint32_t bytes) {
  checkShared(*this, address, bytes, 0);
  memcpy(&block.shared[address], from, bytes);
  memset(&block.written[address], kWritten, bytes);
}

void Step::startCopy(uint64_t address, uint32_t bytes) {
  checkShared(*this, address, bytes, 0);
  checkUnread(*this, address, bytes);
  for (uint32_t i = 0; i < bytes; ++i)
    if (block.written[address + i] >= kUnfenced)
      fail("overwrites shared memory of which warp " + std::to_string(block.written[address + i] - kUnfenced) +
           " has not said by fence.proxy.async that it stored it, at " + hex(address + i));
  if (block.races)
    block.races->store(*this, address, bytes, /*isAsync=*/true, /*isSame=*/false);
}

void Step::forgetShared(uint64_t address, uint32_t bytes) {
  checkShared(*this, address, bytes, 0);
  memset(&block.shared[address], 0xff, bytes);
  memset(&block.written[address], kUnwritten, bytes);
}

uint8_t *Step::local(unsigned lane, uint64_t address, uint32_t bytes, uint32_t align) {
  if (align && address % align)
    fail("is misaligned in local memory: " + hex(address));
  uint64_t size = launch.kernel.localBytes;
  if (address > size || bytes > size - address)
    fail("is out of bounds in local memory: " + hex(address) + " of " + hex(size));
  return &warp.local[lane * size + address];
}

void Step::load(uint64_t address, unsigned lane, void *to, uint32_t bytes) {
  if (address >= kParamWindow)
    fail("reads a parameter by a generic address, which no kernel of the library does");
  if (address >= kLocalWindow)
    memcpy(to, local(lane, address - kLocalWindow, bytes, bytes), bytes);
  else if (address >= kSharedWindow)
    loadShared(address - kSharedWindow, to, bytes, bytes);
  else
    memcpy(to, global(address, bytes, bytes), bytes);
}

void Step::store(uint64_t address, unsigned lane, const void *from, uint32_t bytes) {
  if (address >= kParamWindow)
    fail("stores to a parameter");
  if (address >= kLocalWindow)
    memcpy(local(lane, address - kLocalWindow, bytes, bytes), from, bytes);
  else if (address >= kSharedWindow)
    storeShared(address - kSharedWindow, from, bytes, bytes);
  else
    memcpy(global(address, bytes, bytes), from, bytes);
}

//===----------------------------------------------------------------------===//
// Operands
//===----------------------------------------------------------------------===//

static uint32_t special(const Step &step, uint32_t which, unsigned lane) {
  const Launch &launch = step.launch;
  uint32_t thread = step.warp.id * kLanes + lane;
  switch (which) {
  case TidX:
    return thread % launch.block.x;
  case TidY:
    return thread / launch.block.x % launch.block.y;
  case TidZ:
    return thread / launch.block.x / launch.block.y;
  case NtidX:
    return launch.block.x;
  case NtidY:
    return launch.block.y;
  case NtidZ:
    return launch.block.z;
  case CtaidX:
    return step.block.index[0];
  case CtaidY:
    return step.block.index[1];
  case CtaidZ:
    return step.block.index[2];
  case NctaidX:
    return launch.grid.x;
  case NctaidY:
    return launch.grid.y;
  case NctaidZ:
    return launch.grid.z;
  case LaneId:
    return lane;
  case WarpId:
    return step.warp.id;
  }
  step.fail("reads an unknown special register");
}

uint64_t Step::readOther(const Operand &operand, unsigned lane) {
  switch (operand.kind) {
  case Operand::Immediate:
    return operand.bits;
  case Operand::Special:
    return special(*this, operand.index, lane);
  default:
    fail("has an operand of a form that it cannot have");
  }
}

//===----------------------------------------------------------------------===//
// Half precision
//===----------------------------------------------------------------------===//

float fromBf16(uint16_t bits) {
  uint32_t wide = uint32_t(bits) << 16;
  float value;
  memcpy(&value, &wide, 4);
  return value;
}

uint16_t toBf16(float value) {
  if (std::isnan(value))
    return 0x7fff;
  uint32_t bits;
  memcpy(&bits, &value, 4);
  return uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

float fromF16(uint16_t bits) {
  uint32_t exponent = (bits >> 10) & 31, fraction = bits & 1023, wide = (exponent + 112) << 23 | fraction << 13;
  float magnitude = exponent == 31 ? (fraction ? NAN : INFINITY) : float(fraction) * 0x1p-24f;
  if (exponent != 0 && exponent != 31)
    memcpy(&magnitude, &wide, 4);
  return bits & 0x8000 ? -magnitude : magnitude;
}

uint16_t toF16(float value) {
  if (std::isnan(value))
    return 0x7fff;
  uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  double magnitude = std::fabs(double(value));
  if (magnitude >= 65520)
    return sign | 0x7c00;
  int exponent = magnitude > 0 ? std::max(std::ilogb(magnitude), -14) : -14;
  // The default rounding mode is to nearest even.
  double units = std::nearbyint(std::ldexp(magnitude, 10 - exponent));
  return uint16_t(sign | uint16_t((exponent + 14) * 1024 + int(units)));
}

//===----------------------------------------------------------------------===//
// The table
//===----------------------------------------------------------------------===//

Execute findInstruction(const std::string &opcode, bool &converges) {
  static const Table table = [] {
    Table result;
    addIntegerInstructions(result);
    addFloatInstructions(result);
    addConversions(result);
    addMemoryInstructions(result);
    addControlInstructions(result);
    addMatrixInstructions(result);
    addWarpgroupInstructions(result);
    addPhaseInstructions(result);
    addTileInstructions(result);
    return result;
  }();
  auto found = table.find(opcode);
  if (found == table.end())
    return nullptr;
  converges = found->second.converges;
  return found->second.execute;
}

} // namespace ptx
