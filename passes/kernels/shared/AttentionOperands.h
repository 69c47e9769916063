#ifndef PASSES_KERNELS_SHARED_ATTENTIONOPERANDS_H
#define PASSES_KERNELS_SHARED_ATTENTIONOPERANDS_H

#include "passes/kernels/shared/LaneBuilder.h"
#include "passes/kernels/spec/Attention.h"

namespace attn {

/// An operand of the kernel as seen from one (batch, head): element
/// (i, j, d, e) stands at base + i*strides[I] + j*strides[J] + ... of `flat`.
struct HeadView {
  mlir::Value flat;
  mlir::Value base;
  /// By iteration dimension; null where the operand does not vary with it.
  mlir::Value strides[6];

  bool has(int64_t dim) const { return static_cast<bool>(strides[dim]); }
  bool isContiguous(int64_t dim) const { return has(dim) && LaneBuilder::constant(strides[dim]) == 1; }
  mlir::Type elementType() const { return mlir::cast<mlir::MemRefType>(flat.getType()).getElementType(); }
  /// `offset` moved by `count` along `dim`; unchanged where it does not vary.
  mlir::Value along(LaneBuilder &k, mlir::Value offset, int64_t dim, mlir::Value count) const {
    return has(dim) ? k.add(offset, k.mul(count, strides[dim])) : offset;
  }
};

/// Views `buffer` through `map` at batch `batch` and head `head`. Dimensions
/// behind those of the map are at 0; a group of queries counts as a query.
HeadView viewHead(LaneBuilder &k, mlir::Value buffer, mlir::AffineMap map, mlir::Value batch, mlir::Value head);

/// The size of iteration dimension `dim`, from the buffers of `spec` in `buffers`.
mlir::Value getDimSize(LaneBuilder &k, const AttentionSpec &spec, mlir::ValueRange buffers, int64_t dim);

/// The queries of a block: lane n of vector v is row first + v*lanes + n,
/// clamped to the last row where the whole input has fewer rows than a block.
struct QueryBlock {
  mlir::Value first;
  mlir::Value numRows; ///< of the whole input
  int64_t vectors;
  bool mayClamp;

  mlir::Value row(LaneBuilder &k, int64_t lane) const { return row(k, k.index(lane)); }
  mlir::Value row(LaneBuilder &k, mlir::Value lane) const {
    mlir::Value row = k.add(first, lane);
    return mayClamp ? k.min(row, k.sub(numRows, k.index(1))) : row;
  }
};

/// One element of each row of query vector `vector`; `offset` is that of row 0.
mlir::Value gatherRows(LaneBuilder &k, const HeadView &view, const QueryBlock &queries, mlir::Value offset,
                       int64_t vector);

/// Reads one captured tensor for tiles of keys x query vectors.
class CaptureReader {
public:
  /// Emits what does not change from key to key.
  CaptureReader(LaneBuilder &k, const HeadView &view, const QueryBlock &queries);

  /// The capture for keys [key, key + count) by key, then by query vector:
  /// scalars where the lanes agree. With `isEdge`, keys from numKeys on are
  /// some value of a key before it.
  llvm::SmallVector<LaneBuilder::Values> read(mlir::Value key, int64_t count, bool isEdge, mlir::Value numKeys);

private:
  LaneBuilder::Values transposedTile(mlir::Value key, int64_t count, int64_t vector, bool isEdge, mlir::Value numKeys);

  LaneBuilder &k;
  const HeadView &view;
  const QueryBlock &queries;
  LaneBuilder::Values hoisted; ///< by vector, where the keys agree
};

} // namespace attn

#endif // PASSES_KERNELS_SHARED_ATTENTIONOPERANDS_H
