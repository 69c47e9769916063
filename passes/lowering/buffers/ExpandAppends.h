#ifndef PASSES_LOWERING_BUFFERS_EXPANDAPPENDS_H
#define PASSES_LOWERING_BUFFERS_EXPANDAPPENDS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Support/LogicalResult.h"
#include "llvm/ADT/DenseMap.h"

namespace attn {

/// The memory of a state, and all of it as a tensor after the rows of the run.
struct AppendedState {
  mlir::Value memory, contents;
};

/// Every attn.kv_append of `entry` becomes slices: of the memory of its state, or
/// of a new tensor where it has none; every attn.kv_open the memory. The states that are written so come back
/// by the number of their output, and `attn.states` tells their dimensions.
/// Fails, with a message, where the states do not fit the entry.
mlir::FailureOr<llvm::DenseMap<int64_t, AppendedState>> expandAppends(mlir::func::FuncOp entry);

} // namespace attn

#endif // PASSES_LOWERING_BUFFERS_EXPANDAPPENDS_H
