#ifndef PASSES_LOWERING_CPU_ROWPRODUCT_H
#define PASSES_LOWERING_CPU_ROWPRODUCT_H

#include "dialects/attn/AttnOps.h"
#include "dialects/attn/DerivedGlobals.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/PatternMatch.h"
#include "passes/lowering/choose/Epilogue.h"

namespace attn {

/// A kernel's product of rows by K x N matrices.
struct RowProduct {
  mlir::Value lhs;             ///< its last dimension is K
  mlir::RankedTensorType type; ///< of the result, with the epilogue
  int64_t m = 0, k = 0, n = 0; ///< as the kernel has them: m may be dynamic
  mlir::Value columns;         ///< how many there are, where n is dynamic

  unsigned leading() const { return mlir::cast<mlir::RankedTensorType>(lhs.getType()).getRank() - 1; }
};

/// A K x N matrix (N x K when transposed) that is a weight or a constant in panels of `width` columns, as
/// #attn.pack_panels has them.
mlir::Value readPanels(mlir::RewriterBase &rewriter, mlir::Location loc, DerivedGlobals &globals, mlir::Value matrix,
                       bool transposed, int64_t width);

/// Adds the operands of an epilogue to a kernel's `inputs`, and to `elementwise` which of them may be its result.
void addEpilogueInputs(mlir::RewriterBase &rewriter, mlir::Location loc, const Epilogue &epilogue, mlir::Type result,
                       unsigned leading, llvm::SmallVectorImpl<mlir::Value> &inputs,
                       llvm::SmallVectorImpl<int64_t> &elementwise);

/// Calls `kernel` on `inputs`, cast to its arguments, and returns the result as `product.type`. What the kernel writes
/// for itself, tensors of as many rows as the product, are results before it: of types `scratch`.
mlir::Value emitRowProduct(mlir::RewriterBase &rewriter, mlir::Location loc, const RowProduct &product,
                           mlir::func::FuncOp kernel, llvm::SmallVector<mlir::Value> inputs,
                           llvm::ArrayRef<int64_t> elementwise, llvm::ArrayRef<mlir::RankedTensorType> scratch = {});

} // namespace attn

#endif // PASSES_LOWERING_CPU_ROWPRODUCT_H
