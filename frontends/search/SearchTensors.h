#ifndef FRONTENDS_SEARCH_SEARCHTENSORS_H
#define FRONTENDS_SEARCH_SEARCHTENSORS_H

#include "mlir/IR/Builders.h"

// Tensors that the entry of a search makes of what it was given.

namespace attn {

mlir::Value sizeOf(mlir::OpBuilder &b, mlir::Location loc, mlir::Value tensor, int64_t dim);

/// The mask [rows, length] with a column of ones behind it, for the token of the first step.
mlir::Value extendMask(mlir::OpBuilder &b, mlir::Location loc, mlir::Value given);

/// [rows]: how many ones each row of the integers [rows, length] has.
mlir::Value countOnes(mlir::OpBuilder &b, mlir::Location loc, mlir::Value mask, mlir::OpFoldResult rows);

/// [rows, vocabulary]: the scores of the last position of [rows, positions, vocabulary], which `maker` returned. The
/// run requires that there is one.
mlir::Value lastPosition(mlir::OpBuilder &b, mlir::Location loc, mlir::Value scores, llvm::StringRef maker);

/// The first position of the greatest weight of each token, -1 where all are 0.
mlir::Value mostAligned(mlir::OpBuilder &b, mlir::Location loc, mlir::Value weights);

} // namespace attn

#endif // FRONTENDS_SEARCH_SEARCHTENSORS_H
