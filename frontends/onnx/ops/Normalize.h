#ifndef FRONTENDS_ONNX_OPS_NORMALIZE_H
#define FRONTENDS_ONNX_OPS_NORMALIZE_H

#include "frontends/onnx/Importer.h"

// Normalisations over trailing dimensions, of several domains.

namespace attn::onnx {

/// attn.layer_norm over the dimensions from `axis` on; scale and bias are
/// broadcast to them.
mlir::FailureOr<Tensor> layerNormalized(Node &n, const Tensor &x, const Tensor &scale,
                                        const std::optional<Tensor> &bias, int64_t axis, double epsilon);

/// x / sqrt(mean(x^2) + epsilon), rounded to `result`, times scale.
mlir::FailureOr<Tensor> rmsNormalized(Node &n, const Tensor &x, const Tensor &scale, int64_t axis, double epsilon,
                                      DType result);

} // namespace attn::onnx

#endif // FRONTENDS_ONNX_OPS_NORMALIZE_H
