#ifndef PASSES_KERNELS_SHARED_POLYNOMIAL_H
#define PASSES_KERNELS_SHARED_POLYNOMIAL_H

#include "builders/Operators.h"

#include "llvm/ADT/ArrayRef.h"

namespace attn {

/// The polynomial with these coefficients, the highest first, by Horner's scheme: a chain of fused multiply-adds.
template <typename T> T horner(const T &x, llvm::ArrayRef<double> coefficients) {
  T sum = constantLike(x, coefficients.front());
  for (double each : coefficients.drop_front())
    sum = fma(sum, x, constantLike(x, each));
  return sum;
}

} // namespace attn

#endif // PASSES_KERNELS_SHARED_POLYNOMIAL_H
