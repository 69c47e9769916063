#ifndef FRONTENDS_ONNX_OPS_MATMUL_H
#define FRONTENDS_ONNX_OPS_MATMUL_H

#include "frontends/onnx/Importer.h"
#include "llvm/ADT/SmallVector.h"
#include <map>

// Contractions whose dimensions have labels, as in an einsum: what MatMul,
// Gemm, Einsum and Conv have in common.

namespace attn::onnx {

using Label = int;
using LabelSizes = std::map<Label, Expr>;

struct LabelledTensor {
  Tensor tensor;
  llvm::SmallVector<Label> labels; // one a dimension, each once
};

/// Enters the sizes of the labels of `t`. A size of 1 gives way to another;
/// other sizes must be equal.
mlir::LogicalResult collectSizes(Node &n, const LabelledTensor &t, LabelSizes &sizes);

/// `t` without the unit dimensions that are broadcast to another size.
mlir::FailureOr<LabelledTensor> dropBroadcast(Node &n, LabelledTensor t, const LabelSizes &sizes);

/// result[out] = sum over the other labels of a * b. At least one label is in
/// both operands and not in `out`, and none is in one operand alone and not in
/// `out`. Sizes are checked here.
mlir::FailureOr<Tensor> contractLabels(Node &n, DType result, LabelledTensor a, LabelledTensor b,
                                       llvm::ArrayRef<Label> out);

/// numpy.matmul(a, b), summed and returned in `result` (f32 for f16 and bf16).
mlir::FailureOr<Tensor> matmul(Node &n, const Tensor &a, const Tensor &b, DType result);

/// `x` as int32 minus its zero point, input `zeroPoint` of the node if it is
/// there. One zero point a row or filter (dimension `dim`) is a vector, as is
/// one a column (`dim` = last).
mlir::FailureOr<Tensor> withoutZeroPoint(Node &n, const Tensor &x, size_t zeroPoint, int64_t dim);

/// Elementwise what is made of a convolution's sums, whose dimension `filters` is the filters.
using FinishSums = llvm::function_ref<mlir::FailureOr<Tensor>(const Tensor &sums, int64_t filters)>;

/// A convolution as ONNX Conv describes it, of the node's attributes, without
/// its bias: x [N, C, spatial...], w [M, C / group, window...], of one type.
/// `finish` sees the sums before they are put in the order of the result.
mlir::FailureOr<Tensor> convolve(Node &n, const Tensor &x, const Tensor &w, FinishSums finish);

/// What the node says as a Conv of `x` and `w`, its inputs X and W, and, where there is one, the bias B.
mlir::FailureOr<Tensor> convolution(Node &n, const Tensor &x, const Tensor &w);
/// Error unless it has X and W, of one float type with B.
mlir::LogicalResult expectConvolution(Node &n);

/// What the node says as a Gemm: alpha A B + beta C, with inputs A, B and, where there is one, C.
mlir::FailureOr<Tensor> gemm(Node &n);

/// A vector of `channels` elements upright, for a result whose dimension `dim`
/// is the channels.
mlir::FailureOr<Tensor> uprightBias(Node &n, const Tensor &bias, const Expr &channels, int64_t rank, int64_t dim = 1);

} // namespace attn::onnx

#endif // FRONTENDS_ONNX_OPS_MATMUL_H
