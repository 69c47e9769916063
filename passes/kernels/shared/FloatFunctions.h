#ifndef PASSES_KERNELS_SHARED_FLOATFUNCTIONS_H
#define PASSES_KERNELS_SHARED_FLOATFUNCTIONS_H

#include "mlir/IR/Builders.h"

namespace attn {

enum class FloatFunction { Exponential, Logarithm, Arcsine, Arctangent };

/// The function of `x`, f32 or a vector of it with one dimension, within 2 units in the last place, denormal arguments
/// and results included: MLIR's polynomials take the first for the least normal number and the second for 0, and its
/// arctangent is off by 40 units.
mlir::Value emitFloatFunction(mlir::OpBuilder &builder, mlir::Location loc, FloatFunction function, mlir::Value x);

} // namespace attn

#endif // PASSES_KERNELS_SHARED_FLOATFUNCTIONS_H
