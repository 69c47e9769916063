#ifndef FRONTENDS_ONNX_OPS_REDUCE_H
#define FRONTENDS_ONNX_OPS_REDUCE_H

#include "frontends/onnx/ops/Formula.h"

namespace attn::onnx {

enum class Combine { Sum, Product, Max, Min };

/// What leaves every element as it is, of the dtype of `x`.
Num neutralOf(Combine how, const Num &x);
Num combineTwo(Combine how, const Num &x, const Num &y);

/// What is done to an element before it is combined.
using Prepare = llvm::function_ref<Num(const Num &)>;

/// `x` combined over the dimensions `dims`, which the result does not have.
/// f16 and bf16 are combined in f32 and the result is f32; bool counts as
/// uint8. Over no elements the result is the neutral element: 0, 1, the lowest
/// or the highest value (infinities for floats).
Tensor reduce(Node &n, Combine how, const Tensor &x, llvm::ArrayRef<int64_t> dims, Prepare prepare = nullptr);

/// `t`, which lacks the dimensions `dims` of a tensor of rank `rank`, with
/// units in their place.
mlir::FailureOr<Tensor> keepDims(Node &n, const Tensor &t, llvm::ArrayRef<int64_t> dims, int64_t rank);

/// Product of the sizes of `dims`.
Expr countOf(const Tensor &x, llvm::ArrayRef<int64_t> dims);
/// `sum / count` in the dtype of `sum`; integers truncate.
mlir::FailureOr<Tensor> divideByCount(Node &n, const Tensor &sum, const Expr &count);

/// Mean and biased variance over `dims`, with units in their place, in f32
/// (f64 for f64).
struct Moments {
  Tensor mean, variance;
};
mlir::FailureOr<Moments> moments(Node &n, const Tensor &x, llvm::ArrayRef<int64_t> dims);

/// int64 position of the greatest (or least) element over dimension `dim`,
/// which the result does not have: the first such, or the last. The first NaN
/// counts as greatest and as least. Over no elements the position is 0.
struct ArgChoice {
  bool least = false, last = false;
};
Tensor argReduce(Node &n, const Tensor &x, int64_t dim, ArgChoice choice);

/// Sums of what stands before each element of `x` in dimension `dim` and itself, in its dtype.
Tensor runningSum(Node &n, const Tensor &x, int64_t dim);

/// 0..rank-1 from `first` on.
llvm::SmallVector<int64_t> dimsFrom(int64_t first, int64_t rank);

} // namespace attn::onnx

#endif // FRONTENDS_ONNX_OPS_REDUCE_H
