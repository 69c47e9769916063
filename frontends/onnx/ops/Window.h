#ifndef FRONTENDS_ONNX_OPS_WINDOW_H
#define FRONTENDS_ONNX_OPS_WINDOW_H

#include "frontends/onnx/ops/Formula.h"

// What Conv and the pooling operators have in common: a window that slides
// over the spatial dimensions 2.. of [N, C, spatial...].

namespace attn::onnx {

/// The greatest kernel size, stride, dilation and pad: index arithmetic on them
/// stays in 64 bits.
inline constexpr int64_t kMaxStep = int64_t(1) << 31;

/// One entry a spatial dimension.
struct Window {
  llvm::SmallVector<Expr> kernel;
  llvm::SmallVector<int64_t> strides, dilations;
  llvm::SmallVector<Expr> padBegin, padEnd;
  llvm::SmallVector<Expr> overhang; // what the last position of ceil_mode needs beyond padEnd
  llvm::SmallVector<Expr> output;   // number of positions

  size_t rank() const { return kernel.size(); }
  /// Neither padding, nor overlap, nor gaps.
  bool tiles() const;
};

/// Reads strides, dilations, pads, auto_pad (and ceil_mode) for a window of
/// size `kernel` over the dimensions 2.. of `x`. `mayBeNone`: a window of stride 1 that is one too long has no
/// position.
mlir::FailureOr<Window> readWindow(Node &n, const Tensor &x, llvm::ArrayRef<Expr> kernel, bool mayBeNone = false);

/// `x` with `value` around its spatial dimensions, `first` and those behind it, enough for every position of the
/// window.
Tensor padded(Node &n, const Tensor &x, const Window &window, const Num &value, size_t first = 2);

/// [N, spatial..., C] as [N, C, spatial...], and back.
Tensor channelsFirst(Node &n, const Tensor &x);
Tensor channelsLast(Node &n, const Tensor &x);

/// channelsLast by a transpose of three dimensions, [N, C, places]: that of one convolution cancels what stands behind
/// another.
mlir::FailureOr<Tensor> withChannelsLast(Node &n, const Tensor &x);

/// What the node says as an AveragePool, of `x`: floats.
mlir::FailureOr<Tensor> averagePool(Node &n, const Tensor &x);

/// The index expression of spatial dimension `d`: position * stride + offset *
/// dilation, for the loop dimensions `position` and `offset`.
mlir::AffineExpr windowIndex(mlir::MLIRContext *context, const Window &window, size_t d, unsigned position,
                             unsigned offset);

} // namespace attn::onnx

#endif // FRONTENDS_ONNX_OPS_WINDOW_H
