#ifndef FRONTENDS_SEARCH_SEARCHTENSORS_H
#define FRONTENDS_SEARCH_SEARCHTENSORS_H

#include "mlir/IR/Builders.h"

// Tensors that the entry of a search makes of what it was given.

namespace attn {

mlir::Value sizeOf(mlir::OpBuilder &b, mlir::Location loc, mlir::Value tensor, int64_t dim);

/// The mask [rows, length] with a column of ones behind it, for the token of the first step.
mlir::Value extendMask(mlir::OpBuilder &b, mlir::Location loc, mlir::Value given);

/// `tensor` as `type`, sizes that only the run knows as they are.
mlir::Value castTensor(mlir::OpBuilder &b, mlir::Location loc, mlir::Value tensor, mlir::RankedTensorType type);

/// Integers as integers or floats of another type.
mlir::Value castElements(mlir::OpBuilder &b, mlir::Location loc, mlir::Value tensor, mlir::Type element);

/// `number` everywhere.
mlir::Value filled(mlir::OpBuilder &b, mlir::Location loc, llvm::ArrayRef<mlir::OpFoldResult> sizes,
                   mlir::TypedAttr number);

/// 0, 1, 2, ... in i64 along the last of one or two dimensions.
mlir::Value countUp(mlir::OpBuilder &b, mlir::Location loc, llvm::ArrayRef<mlir::OpFoldResult> sizes);

/// [rows, length] in i64: the number of ones before each position of the mask, so that what is masked on the left does
/// not count.
mlir::Value positionsOf(mlir::OpBuilder &b, mlir::Location loc, mlir::Value mask);

/// [rows]: the column of the first number of a row of integers that is not 0; how many columns there are where all are.
mlir::Value firstNonzeros(mlir::OpBuilder &b, mlir::Location loc, mlir::Value matrix);

/// [rows, count] from column `begin` on.
mlir::Value columns(mlir::OpBuilder &b, mlir::Location loc, mlir::Value matrix, mlir::OpFoldResult begin,
                    mlir::OpFoldResult count);

/// The run ends with `message` unless `a` is `c`; {0} and {1} are both.
void requireEqual(mlir::OpBuilder &b, mlir::Location loc, mlir::Value a, mlir::Value c, const llvm::Twine &message);

/// [rows]: how many ones each row of the integers [rows, length] has.
mlir::Value countOnes(mlir::OpBuilder &b, mlir::Location loc, mlir::Value mask, mlir::OpFoldResult rows);

/// [rows, vocabulary]: the scores of the last position of [rows, positions, vocabulary], which `maker` returned. The
/// run requires that there is one.
mlir::Value lastPosition(mlir::OpBuilder &b, mlir::Location loc, mlir::Value scores, llvm::StringRef maker);

/// The first position of the greatest weight of each token, -1 where all are 0.
mlir::Value mostAligned(mlir::OpBuilder &b, mlir::Location loc, mlir::Value weights);

} // namespace attn

#endif // FRONTENDS_SEARCH_SEARCHTENSORS_H
