#ifndef FRONTENDS_ONNX_OPS_NORMALIZE_H
#define FRONTENDS_ONNX_OPS_NORMALIZE_H

#include "frontends/onnx/Importer.h"

// Normalisations of several domains.

namespace attn::onnx {

/// attn.layer_norm over the dimensions from `axis` on; scale and bias are
/// broadcast to them.
mlir::FailureOr<Tensor> layerNormalized(Node &n, const Tensor &x, const Tensor &scale,
                                        const std::optional<Tensor> &bias, int64_t axis, double epsilon);

/// x / sqrt(mean(x^2) + epsilon), rounded to `result`, times scale.
mlir::FailureOr<Tensor> rmsNormalized(Node &n, const Tensor &x, const Tensor &scale, int64_t axis, double epsilon,
                                      DType result);

/// (x - mean) / sqrt(variance + epsilon) of `x` over the dimensions `dims`, in f32 (f64 for f64).
mlir::FailureOr<Tensor> standardized(Node &n, const Tensor &x, llvm::ArrayRef<int64_t> dims, double epsilon);

} // namespace attn::onnx

#endif // FRONTENDS_ONNX_OPS_NORMALIZE_H
