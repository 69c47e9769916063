#ifndef PASSES_KERNELS_SHARED_EXPONENTIAL_H
#define PASSES_KERNELS_SHARED_EXPONENTIAL_H

#include "builders/Code.h"

/// Exponentials of vectors of f32 in a few instructions, for where those of libm's accuracy cost too much.
namespace attn {

/// 2^x with relative error 1.5e-7 for x <= 127; 0 below -126 (down to -149 with hasScalef and denormals) and for -inf;
/// NaN for NaN. Above 127 it gives inf with `hasScalef` and garbage without: vreduceps and vscalefps, of 512-bit
/// vectors with AVX512DQ.
Vec exp2(Code &k, const Vec &x, bool hasScalef);

/// e^2x with relative error 1e-7 for |x| <= 30, garbage beyond.
Vec expTwice(const Vec &x);

} // namespace attn

#endif // PASSES_KERNELS_SHARED_EXPONENTIAL_H
