#ifndef PASSES_KERNELS_SHARED_ATTENTIONOPERANDS_H
#define PASSES_KERNELS_SHARED_ATTENTIONOPERANDS_H

#include "builders/Code.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "passes/kernels/spec/Attention.h"
#include <array>

namespace attn {

/// An operand of an attention as seen from one (batch, head): element
/// (i, j, d, e) stands at base + i*strides[I] + j*strides[J] + ... of `flat`.
struct OperandView {
  Buffer flat;
  Index base;
  /// By iteration dimension; null where the operand does not vary with it.
  std::array<Index, 6> strides;

  bool has(int64_t dim) const { return static_cast<bool>(strides[dim].value()); }
  bool isContiguous(int64_t dim) const { return has(dim) && getConstantIntValue(strides[dim].value()) == 1; }
  mlir::Type elementType() const { return flat.memref().getElementType(); }
  int64_t elementBytes() const { return elementType().getIntOrFloatBitWidth() / 8; }
  /// `offset` moved by `count` along `dim`; unchanged where it does not vary.
  template <typename Count> Index along(const Index &offset, int64_t dim, const Count &count) const {
    return has(dim) ? offset + count * strides[dim] : offset;
  }
  /// The place of the element with these indices of the dimensions named.
  Index at(std::initializer_list<std::pair<int64_t, Index>> indices) const {
    Index place = base;
    for (const auto &[dim, index] : indices)
      place = along(place, dim, index);
    return place;
  }
};

/// Views `buffer` through `map` at batch `batch` and head `head`. Dimensions
/// behind those of the map are at 0; a group of queries counts as a query.
OperandView viewHead(Code &k, mlir::Value buffer, mlir::AffineMap map, const Index &batch, const Index &head);

/// The size of iteration dimension `dim`, from the buffers of `spec` in `buffers`.
Index getDimSize(Code &k, const AttentionSpec &spec, mlir::ValueRange buffers, int64_t dim);

/// The queries of a block: lane n of vector v is row first + v*lanes + n,
/// clamped to the last row where the whole input has fewer rows than a block.
struct QueryBlock {
  Index first;
  Index numRows; ///< of the whole input
  int64_t vectors, lanes;
  bool mayClamp;

  template <typename Lane> Index row(const Lane &lane) const {
    Index row = first + lane;
    return mayClamp ? minimum(row, numRows - 1) : row;
  }
};

} // namespace attn

#endif // PASSES_KERNELS_SHARED_ATTENTIONOPERANDS_H
