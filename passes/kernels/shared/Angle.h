#ifndef PASSES_KERNELS_SHARED_ANGLE_H
#define PASSES_KERNELS_SHARED_ANGLE_H

#include "mlir/IR/Builders.h"

namespace attn {

enum class AngleFunction { Sine, Cosine };

/// The function of `x`, f32 or a vector of it with one dimension, within 2 units in the last place for x of any size:
/// below 2^20 a polynomial behind a reduction in f64, and where a lane is not (or no number), the math library's.
mlir::Value emitAngleFunction(mlir::OpBuilder &builder, mlir::Location loc, AngleFunction function, mlir::Value x);

} // namespace attn

#endif // PASSES_KERNELS_SHARED_ANGLE_H
