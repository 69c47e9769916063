#include "test/kernels/TileEmulator.h"

#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ucontext.h>
#include <unistd.h>

// Intel SDM vol. 2, chapter 2.3 (VEX) and the pages of the instructions.
namespace attn::test {
namespace {

constexpr int kRows = 16, kBytes = 64;

struct Tile {
  int rows, bytes; ///< as configured
  uint8_t data[kRows][kBytes];
};

struct State {
  bool configured = false;
  Tile tiles[8];
  TileCounts counts;
} state;

[[noreturn]] void refuse(const char *why) {
  // Async-signal-safe.
  const char *parts[] = {"tile emulator: ", why, "\n"};
  for (const char *part : parts)
    if (write(STDERR_FILENO, part, std::strlen(part)) < 0)
      break;
  abort();
}

/// Registers by their number in an instruction.
uint64_t &registerOf(ucontext_t &context, int number) {
  static constexpr int kNames[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                     REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
  return reinterpret_cast<uint64_t &>(context.uc_mcontext.gregs[kNames[number]]);
}

struct Instruction {
  int prefix = 0, opcode = 0; ///< prefix: pp, of none, 66, F3, F2
  int reg = 0, rm = 0, vvvv = 0;
  bool isMemory = false;
  uint64_t address = 0;
  int64_t stride = 0; ///< the index times its scale, which `address` leaves out
  int length = 0;

  /// False where the bytes are no VEX instruction of map 0F38.
  bool decode(ucontext_t &context, const uint8_t *code) {
    if (code[0] != 0xc4 || (code[1] & 0x1f) != 2)
      return false;
    bool r = !(code[1] & 0x80), x = !(code[1] & 0x40), b = !(code[1] & 0x20);
    prefix = code[2] & 3;
    vvvv = ~(code[2] >> 3) & 15;
    opcode = code[3];
    int modrm = code[4], mod = modrm >> 6, low = modrm & 7;
    reg = (modrm >> 3 & 7) | r << 3;
    rm = low | b << 3;
    isMemory = mod != 3;
    length = 5;
    if (!isMemory)
      return true;
    bool hasBase = true;
    int base = rm;
    if (low == 4) {
      int sib = code[length++], index = (sib >> 3 & 7) | x << 3;
      base = (sib & 7) | b << 3;
      hasBase = (sib & 7) != 5 || mod != 0;
      if (index != 4)
        stride = static_cast<int64_t>(registerOf(context, index)) << (sib >> 6);
    } else if (low == 5 && mod == 0) {
      hasBase = false;
    }
    int32_t displacement = 0;
    if (mod == 1) {
      displacement = static_cast<int8_t>(code[length++]);
    } else if (mod == 2 || !hasBase) {
      std::memcpy(&displacement, code + length, sizeof displacement);
      length += sizeof displacement;
    }
    address = displacement;
    if (hasBase)
      address += registerOf(context, base);
    else if (low == 5) // by the next instruction
      address += reinterpret_cast<uint64_t>(code) + length;
    return true;
  }
};

Tile &configuredTile(int number) {
  if (!state.configured)
    refuse("a tile is used before LDTILECFG");
  if (number > 7 || state.tiles[number].rows == 0)
    refuse("a tile is used that has no rows");
  return state.tiles[number];
}

void configure(const uint8_t *bytes) {
  if (bytes[0] != 1 || bytes[1] != 0)
    refuse("LDTILECFG: not palette 1 from row 0");
  for (int n = 0; n < 64; ++n) {
    bool isReserved = (n >= 2 && n < 16) || (n >= 32 && n < 48) || n >= 56;
    if (isReserved && bytes[n])
      refuse("LDTILECFG: a reserved byte is not 0");
  }
  for (int n = 0; n < 8; ++n) {
    uint16_t width;
    std::memcpy(&width, bytes + 16 + 2 * n, sizeof width);
    int rows = bytes[48 + n];
    if (rows > kRows || width > kBytes || (rows == 0) != (width == 0))
      refuse("LDTILECFG: a tile of a size that there is not");
    std::memset(&state.tiles[n], 0, sizeof(Tile));
    state.tiles[n].rows = rows;
    state.tiles[n].bytes = width;
  }
  state.configured = true;
  ++state.counts.configs;
}

/// A denormal number is zero.
float flushed(float value) { return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0f, value) : value; }

float widen(const uint8_t *half) {
  uint32_t word = 0;
  std::memcpy(reinterpret_cast<char *>(&word) + 2, half, 2);
  float value;
  std::memcpy(&value, &word, sizeof value);
  return flushed(value);
}

/// The tiles of a product, which must fit each other.
struct Factors {
  Tile &c, &a, &b;
  Factors(int to, int left, int right) : c(configuredTile(to)), a(configuredTile(left)), b(configuredTile(right)) {
    if (to == left || to == right || left == right)
      refuse("a product: a tile comes twice");
    if (a.rows != c.rows || b.bytes != c.bytes || a.bytes % 4 || c.bytes % 4 || a.bytes / 4 != b.rows)
      refuse("a product: tiles that do not fit");
  }
};

/// TDPBUSD and TDPBSSD: bytes from 0 to 255, or from -128 to 127 as `Left` has them, by bytes from -128 to 127; sums
/// wrap.
template <typename Left> void multiplyBytes(int to, int left, int right) {
  auto [c, a, b] = Factors(to, left, right);
  for (int m = 0; m < c.rows; ++m)
    for (int n = 0; n < c.bytes / 4; ++n) {
      uint32_t sum;
      std::memcpy(&sum, &c.data[m][4 * n], sizeof sum);
      for (int k = 0; k < a.bytes; ++k)
        sum += static_cast<Left>(a.data[m][k]) * static_cast<int8_t>(b.data[k / 4][4 * n + k % 4]);
      std::memcpy(&c.data[m][4 * n], &sum, sizeof sum);
    }
  ++state.counts.products;
}

/// TDPBF16PS.
void multiply(int to, int left, int right) {
  auto [c, a, b] = Factors(to, left, right);
  for (int m = 0; m < c.rows; ++m) {
    float sums[2][kBytes / 4] = {};
    for (int k = 0; k < a.bytes / 4; ++k)
      for (int n = 0; n < c.bytes / 4; ++n)
        for (int odd = 0; odd < 2; ++odd)
          sums[odd][n] =
              flushed(std::fma(widen(&a.data[m][4 * k + 2 * odd]), widen(&b.data[k][4 * n + 2 * odd]), sums[odd][n]));
    for (int n = 0; n < c.bytes / 4; ++n) {
      float sum;
      std::memcpy(&sum, &c.data[m][4 * n], sizeof sum);
      sum = flushed(flushed(sum) + flushed(sums[0][n] + sums[1][n]));
      std::memcpy(&c.data[m][4 * n], &sum, sizeof sum);
    }
  }
  ++state.counts.products;
}

void move(const Instruction &at, bool isStore) {
  Tile &tile = configuredTile(at.reg);
  for (int row = 0; row < kRows; ++row) {
    auto *memory = reinterpret_cast<uint8_t *>(at.address + row * at.stride);
    if (row >= tile.rows)
      std::memset(tile.data[row], 0, kBytes);
    else if (isStore)
      std::memcpy(memory, tile.data[row], tile.bytes);
    else
      std::memcpy(tile.data[row], memory, tile.bytes);
  }
  ++(isStore ? state.counts.stores : state.counts.loads);
}

bool run(const Instruction &at) {
  enum { None, Ox66, OxF3, OxF2 };
  switch (at.opcode) {
  case 0x49:
    if (at.prefix == None && at.isMemory) {
      configure(reinterpret_cast<const uint8_t *>(at.address + at.stride));
    } else if (at.prefix == None && at.reg == 0 && at.rm == 0) {
      state.configured = false;
      ++state.counts.releases;
    } else if (at.prefix == OxF2 && !at.isMemory) {
      std::memset(configuredTile(at.reg).data, 0, sizeof(Tile::data));
      ++state.counts.zeros;
    } else {
      return false;
    }
    return true;
  case 0x4b:
    if (!at.isMemory || at.prefix == None)
      return false;
    move(at, at.prefix == OxF3);
    return true;
  case 0x5e:
    if (at.isMemory || (at.prefix != Ox66 && at.prefix != OxF2))
      return false;
    (at.prefix == Ox66 ? multiplyBytes<uint8_t> : multiplyBytes<int8_t>)(at.reg, at.rm, at.vvvv);
    return true;
  case 0x5c:
    if (at.isMemory || at.prefix != OxF3)
      return false;
    multiply(at.reg, at.rm, at.vvvv);
    return true;
  default:
    return false;
  }
}

void onInvalidOpcode(int, siginfo_t *, void *opaque) {
  auto &context = *static_cast<ucontext_t *>(opaque);
  auto &next = context.uc_mcontext.gregs[REG_RIP];
  Instruction at;
  if (!at.decode(context, reinterpret_cast<const uint8_t *>(next)) || !run(at))
    refuse("an invalid opcode that is none of AMX's");
  next += at.length;
}

} // namespace

void emulateTiles() {
  struct sigaction action = {};
  action.sa_sigaction = onInvalidOpcode;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGILL, &action, nullptr);
  state = {};
}

TileCounts takeTileCounts() {
  TileCounts counts = state.counts;
  state.counts = {};
  return counts;
}

bool holdsTiles() { return state.configured; }

} // namespace attn::test
