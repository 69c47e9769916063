#ifndef FRONTENDS_ONNX_OPS_CONTRIBATTENTION_H
#define FRONTENDS_ONNX_OPS_CONTRIBATTENTION_H

#include "frontends/onnx/ops/AttentionForm.h"

// What the attentions of ONNX Runtime (com.microsoft) share.

namespace attn::onnx {

/// [B, S, heads * width] as heads inside.
mlir::FailureOr<HeadTensor> splitHeads(Node &n, const Tensor &t, int64_t heads);

/// The attribute `name`, a number of heads.
mlir::FailureOr<int64_t> readHeadCount(Node &n, llvm::StringRef name);

/// The attribute `scale`, or by default 1 / sqrt(width).
mlir::FailureOr<double> readScale(Node &n, const Expr &width);

/// The mask and the bias (inputs, either of which may be missing) as one mask.
mlir::LogicalResult addMasks(Node &n, ScoreRule &rule, size_t mask, size_t bias, const AttentionSizes &sizes);

/// Input `i` as the bias of `columns` columns of `dtype` from column `begin` on: a vector that has them.
mlir::LogicalResult expectBias(Node &n, size_t i, DType dtype, const Expr &begin, const Expr &columns);

/// How many of `all` columns are query, key and value: qkv_hidden_sizes, or a third each.
mlir::LogicalResult readWidths(Node &n, const Expr &all, llvm::SmallVector<Expr, 3> &widths);

} // namespace attn::onnx

#endif // FRONTENDS_ONNX_OPS_CONTRIBATTENTION_H
