#ifndef PASSES_GRAPH_DECOMPOSE_DECOMPOSEMASK_H
#define PASSES_GRAPH_DECOMPOSE_DECOMPOSEMASK_H

#include "dialects/attn/AttnOps.h"
#include "passes/graph/MappedTensor.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/ArrayRef.h"

namespace attn {

/// Which keys the mask of `op` shows: i8, 1 where it does, over those of
/// b, h, i, j that the terms depend on. `sizes` are those of the six dimensions.
MappedTensor emitVisibility(mlir::OpBuilder &b, mlir::Location loc, AttentionOp op,
                            llvm::ArrayRef<mlir::OpFoldResult> sizes);

} // namespace attn

#endif // PASSES_GRAPH_DECOMPOSE_DECOMPOSEMASK_H
