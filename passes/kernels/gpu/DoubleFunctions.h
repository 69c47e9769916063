#ifndef PASSES_KERNELS_GPU_DOUBLEFUNCTIONS_H
#define PASSES_KERNELS_GPU_DOUBLEFUNCTIONS_H

#include "builders/Code.h"
#include "llvm/ADT/StringRef.h"

namespace attn {

/// Emits a function of f64 by instructions that a GPU has: sums, products, fma, quotients, square roots, bits.
using DoubleFunction = Num (*)(Code &, llvm::ArrayRef<Num>);

/// What computes the function of an op of the math dialect ("math.exp"); null: nothing does. Results are within three
/// units in the last place, for arguments of any size; zeros' signs, infinities and NaN are those of C.
DoubleFunction findDoubleFunction(llvm::StringRef op);

} // namespace attn

#endif // PASSES_KERNELS_GPU_DOUBLEFUNCTIONS_H
