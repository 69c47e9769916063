#ifndef PASSES_KERNELS_GPU_FLOAT8_H
#define PASSES_KERNELS_GPU_FLOAT8_H

#include "passes/kernels/gpu/ThreadCode.h"

// Numbers of e4m3, which are exact in f16, bf16 and f32.

namespace attn {

/// Two of them, an i16 with the first one in its low bits, as f32.
Nums fromFloat8(ThreadCode &k, const Num &pair);
/// The four of a word, i32, the first one in its low bits, as f32.
Nums fromFloat8Word(ThreadCode &k, const Num &word);
/// The nearest one to an f32 of at most 240, ties to even, in the low bits of an i32; of NaN any number.
Num toFloat8(ThreadCode &k, const Num &x);

} // namespace attn

#endif // PASSES_KERNELS_GPU_FLOAT8_H
