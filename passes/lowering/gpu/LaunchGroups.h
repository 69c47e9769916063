#ifndef PASSES_LOWERING_GPU_LAUNCHGROUPS_H
#define PASSES_LOWERING_GPU_LAUNCHGROUPS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace attn {

/// The linalg ops of `function`, on buffers, in their order. Those of a group may run at the same time, where the last
/// of them stands: none writes what another one reads or writes, and nothing between them has an effect.
llvm::SmallVector<llvm::SmallVector<mlir::linalg::LinalgOp>> groupLaunches(mlir::func::FuncOp function);

} // namespace attn

#endif // PASSES_LOWERING_GPU_LAUNCHGROUPS_H
