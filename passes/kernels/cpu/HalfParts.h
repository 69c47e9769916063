#ifndef PASSES_KERNELS_CPU_HALFPARTS_H
#define PASSES_KERNELS_CPU_HALFPARTS_H

#include "builders/Code.h"
#include "passes/kernels/spec/Storage.h"

// Numbers of f32 as sums of bf16, for tiles that multiply those exactly and sum in f32; and numbers that are stored in
// fewer bits.
namespace attn {

/// Numbers that bf16 holds: the leading 8 bits of x, of what is left the next 8, and so on. Three of them are x, two
/// are what an f16 can be, but for what lies below the least number of bf16. An infinity leaves nothing.
llvm::SmallVector<Vec> splitIntoHalves(const Vec &x, int64_t count);

/// Numbers that bf16 holds, as bf16.
Vec toHalves(const Vec &x);

/// What panels store as f32; of pairs of bf16, the rows of which are side by side, those of row `part`.
Vec widened(const Vec &stored, PanelStorage storage, int64_t part);

/// Of numbers that bf16 holds those of two rows side by side, as words.
Vec toPairs(const Vec &first, const Vec &second);

} // namespace attn

#endif // PASSES_KERNELS_CPU_HALFPARTS_H
