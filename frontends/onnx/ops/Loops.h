#ifndef FRONTENDS_ONNX_OPS_LOOPS_H
#define FRONTENDS_ONNX_OPS_LOOPS_H

#include "frontends/onnx/Importer.h"
#include "frontends/onnx/ops/Num.h"

// Loops that run one after the other and carry tensors or scalars: for what
// writes to computed places or counts as it goes.

namespace attn::onnx {

/// The body of a loop nest: indices, then what is carried; returns what is
/// carried on.
using LoopBody = llvm::function_ref<llvm::SmallVector<mlir::Value>(mlir::OpBuilder &, mlir::Location,
                                                                   mlir::ValueRange indices, mlir::ValueRange carried)>;

/// scf.for nest over [0, bounds), the last dimension innermost.
llvm::SmallVector<mlir::Value> sequential(mlir::OpBuilder &b, mlir::Location loc, llvm::ArrayRef<mlir::Value> bounds,
                                          mlir::ValueRange inits, LoopBody body);

/// Sizes of a shape as index values.
llvm::SmallVector<mlir::Value> sizeValues(Node &n, llvm::ArrayRef<Expr> shape);

/// Element of a tensor as a number; Bool arrives as i1.
Num load(mlir::OpBuilder &b, mlir::Location loc, mlir::Value tensor, DType dtype, mlir::ValueRange at);
/// The tensor with one element replaced.
mlir::Value store(mlir::OpBuilder &b, mlir::Location loc, const Num &element, mlir::Value tensor, mlir::ValueRange at);

/// An index that a tensor gave, counted from the end when negative; the run
/// ends with the node's name where it is outside [-size, size).
mlir::Value checkedIndex(Node &n, mlir::OpBuilder &b, mlir::Location loc, mlir::Value element, mlir::Value size);

/// The same for an index that does not count from the end: in [0, size).
mlir::Value placeIn(Node &n, mlir::OpBuilder &b, mlir::Location loc, mlir::Value element, mlir::Value size);

/// `t` with dimension `dim` of `size`, which it has already, or it is 1: the run
/// knows which. For operands that broadcast by the operator's own words.
mlir::FailureOr<Tensor> expandInRun(Node &n, const Tensor &t, int64_t dim, const Expr &size);

} // namespace attn::onnx

#endif // FRONTENDS_ONNX_OPS_LOOPS_H
