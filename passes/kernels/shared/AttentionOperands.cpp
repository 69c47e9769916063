#include "passes/kernels/shared/AttentionOperands.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;

namespace attn {

using Dim = AttentionOp::Dim;

OperandView viewHead(Code &k, Value buffer, AffineMap map, const Index &batch, const Index &head) {
  Buffer whole = k.asBuffer(buffer);
  OperandView view{whole.flat(), k.index(0), {}};
  Index stride = k.index(1);
  // A view of a larger buffer says its strides, a dense one has them from its sizes.
  MemRefType type = whole.memref();
  SmallVector<int64_t> known;
  ValueRange given;
  if (!type.getLayout().isIdentity()) {
    known = type.getStridesAndOffset().first;
    auto metadata = memref::ExtractStridedMetadataOp::create(k.b, k.loc, buffer);
    given = metadata.getStrides();
    if (type.getStridesAndOffset().second != 0)
      view.base = k.asIndex(metadata.getOffset());
  }
  for (int64_t n = type.getRank(); n-- > 0;) {
    if (!known.empty())
      stride = ShapedType::isDynamic(known[n]) ? k.asIndex(given[n]) : k.index(known[n]);
    AffineExpr result = n < map.getNumResults() ? map.getResult(n) : getAffineConstantExpr(0, map.getContext());
    if (auto dim = dyn_cast<AffineDimExpr>(result)) {
      if (dim.getPosition() == Dim::B || dim.getPosition() == Dim::H) {
        view.base = view.base + (dim.getPosition() == Dim::B ? batch : head) * stride;
      } else {
        Index &sum = view.strides[dim.getPosition()];
        sum = sum.value() ? sum + stride : stride;
      }
    } else if (AttentionOp::getNamedDim(result) == unsigned(Dim::I)) {
      view.strides[Dim::I] = stride;
    } else if (auto group = dyn_cast<AffineBinaryOpExpr>(result)) {
      int64_t ratio = cast<AffineConstantExpr>(group.getRHS()).getValue();
      view.base = view.base + head / ratio * stride;
    }
    if (n && known.empty())
      stride = stride * whole.dim(n);
  }
  return view;
}

Index getDimSize(Code &k, const AttentionSpec &spec, ValueRange buffers, int64_t dim) {
  if (std::optional<int64_t> size = spec.getStaticSize(dim))
    return k.index(*size);
  for (auto [buffer, map] : llvm::zip_equal(buffers, spec.maps))
    for (auto [n, result] : llvm::enumerate(map.getResults())) {
      if (result == getAffineDimExpr(dim, result.getContext()))
        return k.asBuffer(buffer).dim(static_cast<int64_t>(n));
    }
  return {}; // canBuildAttention has seen to it that a map names the dimension
}

} // namespace attn
