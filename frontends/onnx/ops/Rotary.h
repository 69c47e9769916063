#ifndef FRONTENDS_ONNX_OPS_ROTARY_H
#define FRONTENDS_ONNX_OPS_ROTARY_H

#include "frontends/onnx/ops/Formula.h"

// Rotary position embedding, of several operators.

namespace attn::onnx {

/// What is rotated, as four dimensions.
struct Rotated {
  Tensor x;
  int64_t sequence; ///< its dimension: 1 for [B, S, H, D], 2 for [B, H, S, D]
  Expr pairs;       ///< elements of half the rotated width
  bool interleaved;
};

/// Rows of a table [rows, width] chosen by ids [B, S]: [B, S, width].
mlir::FailureOr<Tensor> gatherRows(Node &n, const Tensor &table, const Tensor &ids);
/// Cosines or sines [B, S, pairs] in a shape that broadcasts over the heads.
mlir::FailureOr<Tensor> alignAngles(Node &n, const Tensor &angles, const Rotated &r);
/// `r.x` with its pairs turned by aligned angles.
mlir::FailureOr<Tensor> rotated(Node &n, const Rotated &r, const Tensor &cosine, const Tensor &sine);

} // namespace attn::onnx

#endif // FRONTENDS_ONNX_OPS_ROTARY_H
