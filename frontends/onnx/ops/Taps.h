#ifndef FRONTENDS_ONNX_OPS_TAPS_H
#define FRONTENDS_ONNX_OPS_TAPS_H

#include "frontends/onnx/ops/Num.h"
#include "llvm/ADT/SmallVector.h"

// Interpolation: what GridSample, Resize and RoiAlign have in common.

namespace attn::onnx {

/// One element that takes part in an interpolated value along one dimension.
struct Tap {
  Num index;  ///< int64, within the dimension
  Num weight; ///< in the type of the computation
};

/// The integer as an index.
mlir::Value toIndex(const Num &integer);
/// An int64 number from an index.
Num toInteger(mlir::OpBuilder &b, mlir::Location loc, mlir::Value index);
/// The float as int64, for any float: NaN and what is below `low` become
/// `low`, what is above `high` becomes `high`.
Num clampedInteger(const Num &x, const Num &low, const Num &high);

/// Weights of the four taps around a place `fraction` behind the second one
/// (cubic convolution with parameter `a`).
llvm::SmallVector<Num, 4> cubicWeights(const Num &fraction, double a);

/// The two taps around `x`; weight 0 outside of [0, length).
llvm::SmallVector<Tap, 4> linearTaps(const Num &x, const Num &length);

/// Sum over all combinations of taps, one list a dimension, of the product of
/// the weights and the element of `source` at `lead`, the indices and `trail`,
/// converted to the weights' type.
Num interpolate(mlir::Value source, DType dtype, llvm::ArrayRef<mlir::Value> lead,
                llvm::ArrayRef<llvm::SmallVector<Tap, 4>> taps, llvm::ArrayRef<mlir::Value> trail = {});

} // namespace attn::onnx

#endif // FRONTENDS_ONNX_OPS_TAPS_H
