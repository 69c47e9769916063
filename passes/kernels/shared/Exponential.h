#ifndef PASSES_KERNELS_SHARED_EXPONENTIAL_H
#define PASSES_KERNELS_SHARED_EXPONENTIAL_H

#include "builders/Code.h"

/// Exponentials of vectors of f32 in a few instructions, for where those of libm's accuracy cost too much.
namespace attn {

/// 2^x with relative error 1.5e-7 for x <= 127; 0 below -126 and for -inf; NaN for NaN. 16 lanes have vreduceps and
/// vscalefps (AVX512DQ): inf above 127, where others have garbage, and with denormals numbers down to -149.
Vec exp2(Code &k, const Vec &x);

/// e^2x with relative error 1e-7 for |x| <= 30, garbage beyond.
Vec expTwice(const Vec &x);

} // namespace attn

#endif // PASSES_KERNELS_SHARED_EXPONENTIAL_H
