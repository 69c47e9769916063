#ifndef PASSES_KERNELS_GPU_BYTEPRODUCTS_H
#define PASSES_KERNELS_GPU_BYTEPRODUCTS_H

#include "passes/kernels/gpu/ThreadCode.h"

namespace attn {

// Products of bytes, from 0 to 255 on the left and from -128 to 127 on the right, with sums of i32 that wrap. A word
// has four of them.

/// `sum` plus the products of the four bytes of both words (dp4a).
Num multiplyFours(ThreadCode &k, const Num &left, const Num &right, const Num &sum);

/// `sums` plus A (16 rows, 32 deep) times B (32 deep, 8 columns), by a warp (mma.sync). With g = lane / 4 and t = lane
/// % 4 a lane's words have places 4t to 4t + 3 of the sum, and 4t + 16 to 4t + 19: `left` the first ones of row g and
/// of row g + 8, then the second ones of both, `right` both of column g. Sums are those of
/// ThreadCode::multiplyMatrices. loadMatrices reads such words: what it takes for an element of 16 bits is two bytes.
Nums multiplyBytes(ThreadCode &k, llvm::ArrayRef<Num> left, llvm::ArrayRef<Num> right, llvm::ArrayRef<Num> sums);

} // namespace attn

#endif // PASSES_KERNELS_GPU_BYTEPRODUCTS_H
