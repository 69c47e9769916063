#ifndef FRONTENDS_ONNX_OPS_RUNTIMEAXES_H
#define FRONTENDS_ONNX_OPS_RUNTIMEAXES_H

#include "frontends/onnx/ops/Reduce.h"

// Axes that only the run knows. Exporters write constants; what is here is for
// the models that do not, and trades speed for it.

namespace attn::onnx {

/// Input `input`, a vector, as `length` integers: like Node::exprs, but its
/// length may be open until the run. nullopt where it is something else.
std::optional<llvm::SmallVector<Expr>> exprsOfLength(Node &n, size_t input, int64_t length);

/// Node::exprs for a shape. Where its length is open it is `length`, if that is
/// given and positive: the run checks it.
std::optional<llvm::SmallVector<Expr>> shapeExprs(Node &n, size_t input, std::optional<int64_t> length);

/// The same for a shape of at most `length` sizes, with units in front.
std::optional<llvm::SmallVector<Expr>> paddedShapeExprs(Node &n, size_t input, std::optional<int64_t> length);

/// For each dimension 1 if input `input` names it, else 0. Without any axes
/// each is `whenEmpty`.
mlir::FailureOr<llvm::SmallVector<Expr>> axisFlags(Node &n, size_t input, int64_t rank, int64_t whenEmpty);

/// For each dimension the entry of input `values` at the place where input
/// `axes` (without one: the dimensions in order) names it, and `fallback` where
/// it does not. Of several parts, each with an entry for each axis, one stands
/// behind the other, and so in the result.
mlir::FailureOr<llvm::SmallVector<Expr>> spreadByAxis(Node &n, size_t values, size_t axes, int64_t rank,
                                                      int64_t fallback, int64_t parts = 1);

/// The sizes whose flag is 0, of which there are `count`, in order.
llvm::SmallVector<Expr> unflagged(Node &n, llvm::ArrayRef<Expr> sizes, llvm::ArrayRef<Expr> flags, int64_t count);

/// The sizes, which are as many as there are flags that are 0, with units where
/// the flag is 1.
llvm::SmallVector<Expr> withFlaggedUnits(Node &n, llvm::ArrayRef<Expr> sizes, llvm::ArrayRef<Expr> flags);

/// `x` combined over the flagged dimensions, which stay as units.
Tensor reduceFlagged(Node &n, Combine how, const Tensor &x, llvm::ArrayRef<Expr> flags, Prepare prepare = nullptr);

/// `t`, which has units at the flagged dimensions, repeated along them to `shape`.
Tensor expandFlagged(Node &n, const Tensor &t, llvm::ArrayRef<Expr> flags, llvm::ArrayRef<Expr> shape);

/// Running sums (or products) of `x` over the dimension whose flag is 1.
Tensor runningFlagged(Node &n, const Tensor &x, llvm::ArrayRef<Expr> flags, bool exclusive, bool reverse, bool product);

} // namespace attn::onnx

#endif // FRONTENDS_ONNX_OPS_RUNTIMEAXES_H
