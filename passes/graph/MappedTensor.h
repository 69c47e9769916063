#ifndef PASSES_GRAPH_MAPPEDTENSOR_H
#define PASSES_GRAPH_MAPPEDTENSOR_H

#include "mlir/IR/AffineMap.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/ArrayRef.h"

namespace attn {

/// A tensor and its map from the six dimensions of attn.attention.
struct MappedTensor {
  mlir::Value value;
  mlir::AffineMap map;
};

/// `value`, read through `map`, as a tensor whose map has plain dimensions
/// only: without the dimensions that are read at 0, and with the heads repeated
/// that are read through h floordiv c. linalg.contract takes plain dimensions
/// only, and tiling a generic is wrong for a floordiv (a tile of h that starts
/// off a multiple of c spans one more element than its size says).
MappedTensor readPlainly(mlir::OpBuilder &b, mlir::Location loc, mlir::Value value, mlir::AffineMap map,
                         llvm::ArrayRef<mlir::OpFoldResult> sizes);

/// Puts back the dimensions that `map`, the map of a result of type `type`,
/// reads at 0. A last dimension that the map lacks (top-k) stays.
mlir::Value restoreUnitDims(mlir::OpBuilder &b, mlir::Location loc, mlir::Value value, mlir::RankedTensorType type,
                            mlir::AffineMap map);

} // namespace attn

#endif // PASSES_GRAPH_MAPPEDTENSOR_H
