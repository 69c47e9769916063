#ifndef PASSES_KERNELS_GPU_OPERANDVIEW_H
#define PASSES_KERNELS_GPU_OPERANDVIEW_H

#include "passes/kernels/gpu/ThreadCode.h"
#include "passes/kernels/shared/AttentionOperands.h"

namespace attn {

/// An operand of an attention as seen from one (batch, head), with typed places: element (i, j, d, e) stands at
/// base + i * strides[I] + j * strides[J] + ... of `flat`.
struct OperandView {
  Buffer flat;
  Index base, strides[6]; ///< by iteration dimension; null where the operand does not vary with it

  OperandView() = default;
  OperandView(ThreadCode &k, mlir::Value buffer, mlir::AffineMap map, const Index &batch, const Index &head) {
    HeadView view = viewHead(k.raw, buffer, map, batch, head);
    flat = k.asBuffer(view.flat), base = k.asIndex(view.base);
    for (auto [typed, stride] : llvm::zip_equal(strides, view.strides))
      typed = k.asIndex(stride);
  }

  mlir::Type elementType() const { return flat.memref().getElementType(); }
  /// `offset` moved by `count` along `dim`; unchanged where it does not vary.
  Index along(const Index &offset, unsigned dim, const Index &count) const {
    return strides[dim].value() ? offset + count * strides[dim] : offset;
  }
  /// The place of the element with these indices of the dimensions named.
  Index at(std::initializer_list<std::pair<unsigned, Index>> indices) const {
    Index place = base;
    for (const auto &[dim, index] : indices)
      place = along(place, dim, index);
    return place;
  }
};

} // namespace attn

#endif // PASSES_KERNELS_GPU_OPERANDVIEW_H
