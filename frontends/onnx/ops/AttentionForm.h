#ifndef FRONTENDS_ONNX_OPS_ATTENTIONFORM_H
#define FRONTENDS_ONNX_OPS_ATTENTIONFORM_H

#include "frontends/onnx/ops/AttentionScore.h"

// The attention that several operators are: operands, and what becomes of them.

namespace attn::onnx {

/// Query, key or value as a tensor of four dimensions, in the layout it came
/// in: [batch, heads, length, width], or [batch, length, heads, width].
struct HeadTensor {
  Tensor tensor;
  bool headsInside = false;
  const Expr &batch() const { return tensor.shape[0]; }
  const Expr &heads() const { return tensor.shape[headsInside ? 2 : 1]; }
  const Expr &length() const { return tensor.shape[headsInside ? 1 : 2]; }
  const Expr &width() const { return tensor.shape[3]; }
};

/// What an attention computes on.
struct AttentionOperands {
  HeadTensor query, key, value;
  bool isPacked;     // rank 3, and so is the result
  int64_t group = 1; // query heads that share a key head
  std::optional<Expr> past;
  AttentionSizes sizes;
  std::optional<Tensor> presentKey, presentValue;
};

/// [batch, heads, length, width].
Tensor headsOutside(Node &n, const HeadTensor &t);

/// Requires that the operands fit together; sets `group` and `sizes`.
mlir::LogicalResult checkSizes(Node &n, AttentionOperands &o);

/// 1 / sqrt(width of a query), or 1 once the query is divided by it, where only the run knows the width.
mlir::FailureOr<double> defaultScale(Node &n, AttentionOperands &o);

/// One attn.attention (in f64: its parts), in the layout of the query, packed
/// when the operands were.
mlir::FailureOr<Tensor> attend(Node &n, const AttentionOperands &o, const ScoreRule &rule);

/// The same with one more score in each row's softmax, which has no value: `sink` [heads] of them.
mlir::FailureOr<Tensor> attendWithSink(Node &n, const AttentionOperands &o, const ScoreRule &rule, const Tensor &sink);

/// q . k in the type of the computation, [batch, heads, queries, keys].
mlir::FailureOr<Tensor> rawScores(Node &n, const AttentionOperands &o);
/// The scores that the softmax gets, [batch, heads, queries, keys], in the type of the query.
mlir::FailureOr<Tensor> maskedScores(Node &n, const AttentionOperands &o, const ScoreRule &rule);
/// weights . value, in the layout and type of the query.
mlir::FailureOr<Tensor> weightedValues(Node &n, const AttentionOperands &o, const Tensor &weights);

} // namespace attn::onnx

#endif // FRONTENDS_ONNX_OPS_ATTENTIONFORM_H
