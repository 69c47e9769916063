#ifndef FRONTENDS_ONNX_OPS_CONTRIBATTENTION_H
#define FRONTENDS_ONNX_OPS_CONTRIBATTENTION_H

#include "frontends/onnx/ops/AttentionForm.h"

// What the attentions of ONNX Runtime (com.microsoft) share.

namespace attn::onnx {

/// [B, S, heads * width] as heads inside.
mlir::FailureOr<HeadTensor> splitHeads(Node &n, const Tensor &t, int64_t heads);

/// The attribute `name`, a number of heads.
mlir::FailureOr<int64_t> readHeadCount(Node &n, llvm::StringRef name);

/// Input `input`, an integer scalar or a vector of one integer, however long it is declared; messages call it `name`.
mlir::FailureOr<Expr> readNumber(Node &n, size_t input, llvm::StringRef name);

/// The attribute `scale`, or by default that of the operands.
mlir::FailureOr<double> readScale(Node &n, AttentionOperands &o);

/// The mask and the bias (inputs, either of which may be missing) as one mask.
mlir::LogicalResult addMasks(Node &n, ScoreRule &rule, size_t mask, size_t bias, const AttentionSizes &sizes);

/// `t` plus, in its last dimension, input `i` from number `begin` on: a bias, which has to be a vector of `t`'s type
/// that has them.
mlir::FailureOr<Tensor> addBias(Node &n, size_t i, const Tensor &t, const Expr &begin);

/// Fails unless `past` is of the type, batch, heads and width of `next`, both [B, N, length, D].
mlir::LogicalResult expectPast(Node &n, const Tensor &past, const Tensor &next);

/// past [B, N, P, D] and then `t` in the length, heads outside.
mlir::FailureOr<HeadTensor> withPast(Node &n, const Tensor &past, const HeadTensor &t);

/// How many of `all` columns are query, key and value: qkv_hidden_sizes, or a third each.
mlir::LogicalResult readWidths(Node &n, const Expr &all, llvm::SmallVector<Expr, 3> &widths);

} // namespace attn::onnx

#endif // FRONTENDS_ONNX_OPS_CONTRIBATTENTION_H
