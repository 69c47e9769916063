// What a loop of this machine reaches.
#ifndef TOOLS_ATTN_BENCH_MACHINE_H
#define TOOLS_ATTN_BENCH_MACHINE_H

#include <cstdint>

namespace attn::tools {

/// FLOP/s of f32 in registers, by fused multiply-adds where there are any, in `threads` threads at once.
double measurePeak(int32_t threads);
/// Bytes/s that `threads` threads at once read from memory, from arrays that no cache holds.
double measureBandwidth(int32_t threads);

} // namespace attn::tools

#endif // TOOLS_ATTN_BENCH_MACHINE_H
