#ifndef TEST_KERNELS_TILEEMULATOR_H
#define TEST_KERNELS_TILEEMULATOR_H

#include <cstdint>

namespace attn::test {

/// Tile instructions that the emulator ran.
struct TileCounts {
  int64_t configs = 0, releases = 0, zeros = 0, loads = 0, stores = 0, products = 0;
};

/// Lets a machine without AMX run its instructions: each is an invalid opcode,
/// whose signal is answered by doing what Intel's manual says. Ends the process
/// where an instruction is wrong by that: tiles that are not configured or do not
/// fit each other. For one thread; a machine with AMX runs them itself.
void emulateTiles();

/// Since emulateTiles or the last call.
TileCounts takeTileCounts();

/// Whether tiles are in use: no TILERELEASE since the last LDTILECFG.
bool holdsTiles();

} // namespace attn::test

#endif // TEST_KERNELS_TILEEMULATOR_H
