#ifndef PASSES_KERNELS_CPU_TILEHEIGHTS_H
#define PASSES_KERNELS_CPU_TILEHEIGHTS_H

#include "mlir/IR/Builders.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace attn {

/// The heights of tiles that `rows` rows are split into evenly, `most` at most: every one if rows are kDynamic, none
/// if there are no rows.
llvm::SmallVector<int64_t> tileHeights(int64_t rows, int64_t most);

/// Runs what `emitHeight` emits for `height`, which is one of `heights`; the last of them stands for any other number.
void atHeight(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value height, llvm::ArrayRef<int64_t> heights,
              llvm::function_ref<void(int64_t)> emitHeight);

} // namespace attn

#endif // PASSES_KERNELS_CPU_TILEHEIGHTS_H
