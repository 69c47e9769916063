#ifndef PASSES_KERNELS_CPU_REGIONVECTORIZER_H
#define PASSES_KERNELS_CPU_REGIONVECTORIZER_H

#include "mlir/IR/Builders.h"
#include "passes/kernels/spec/Regions.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace attn {

/// Gives the value of dimension `dim` (of `attn.index` or `linalg.index`) for
/// the lanes at hand: `vector<lanes x index>`, or `index` where all lanes agree.
using IndexVectorFn = llvm::function_ref<mlir::Value(mlir::OpBuilder &, mlir::Location, int64_t dim)>;

/// Clones the ops of `block`, a block of scalar elementwise ops that ends in a
/// yield of one value, at vector type and returns the vector that the yield
/// would have: `vector<lanes x T>`.
///
/// Each block argument takes the value of `args` at its position: a
/// `vector<lanes x T>`, or a scalar `T` that all lanes share. What depends on
/// shared scalars only is computed once, as a scalar, and broadcast where a
/// vector meets it; constants (also those that stand outside the block) become
/// splats. Index ops ask `indexVector`, which may be null when there are none.
///
/// Of a block for which `canVectorizeBlock` holds.
mlir::Value vectorizeBlock(mlir::OpBuilder &builder, mlir::Block &block, mlir::ValueRange args, int64_t lanes,
                           IndexVectorFn indexVector = nullptr);

} // namespace attn

#endif // PASSES_KERNELS_CPU_REGIONVECTORIZER_H
