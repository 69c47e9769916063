#ifndef PASSES_LOWERING_CHOOSE_RANGES_H
#define PASSES_LOWERING_CHOOSE_RANGES_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace attn {

/// Both extremes of one tensor of f32, in one block.
struct TensorRange {
  mlir::linalg::GenericOp greatest, least;

  mlir::Value tensor() const { return mlir::linalg::GenericOp(greatest).getDpsInputs()[0]; }
  /// That of both ops which stands in front.
  mlir::Operation *first() const;
};

/// Of all tensors of which both are asked for.
llvm::SmallVector<TensorRange> findRanges(mlir::ModuleOp module);

/// Replaces both by a call of `kernel`, with the arguments (input, parts, greatest, least): memref<2xPxf32> for what P
/// parts give, and memref<f32> twice.
void callRange(const TensorRange &range, mlir::func::FuncOp kernel, int64_t parts);

} // namespace attn

#endif // PASSES_LOWERING_CHOOSE_RANGES_H
