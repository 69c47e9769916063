#include "passes/graph/MappedTensor.h"
#include "dialects/attn/AttnOps.h"
#include "passes/graph/Structured.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;

namespace attn {

/// `value` without the dimensions that `map` reads at 0: a collapse_shape,
/// which stays contiguous, where the types say that their size is 1.
static Value dropUnitDims(OpBuilder &b, Location loc, Value value, AffineMap map, RankedTensorType reduced,
                          ArrayRef<OpFoldResult> extents) {
  auto type = cast<RankedTensorType>(value.getType());
  SmallVector<ReassociationIndices> groups(reduced.getRank());
  int64_t group = -1;
  bool isStatic = true;
  for (auto [n, expr] : llvm::enumerate(map.getResults())) {
    bool dropped = isa<AffineConstantExpr>(expr);
    group += !dropped;
    isStatic &= !dropped || type.getDimSize(n) == 1;
    if (!groups.empty())
      groups[std::max<int64_t>(group, 0)].push_back(n);
  }
  if (isStatic)
    return tensor::CollapseShapeOp::create(b, loc, reduced, value, groups);
  SmallVector<OpFoldResult> offsets(type.getRank(), b.getIndexAttr(0)), strides(type.getRank(), b.getIndexAttr(1));
  return tensor::ExtractSliceOp::create(b, loc, reduced, value, offsets, extents, strides);
}

MappedTensor readPlainly(OpBuilder &b, Location loc, Value value, AffineMap map, ArrayRef<OpFoldResult> sizes) {
  auto type = cast<RankedTensorType>(value.getType());
  SmallVector<AffineExpr> exprs;
  SmallVector<OpFoldResult> extents;
  SmallVector<int64_t> shape;
  bool divided = false;
  for (auto [n, expr] : llvm::enumerate(map.getResults())) {
    if (isa<AffineConstantExpr>(expr)) {
      extents.push_back(b.getIndexAttr(1));
      continue;
    }
    extents.push_back(tensor::getMixedSize(b, loc, value, n));
    shape.push_back(type.getDimSize(n));
    exprs.push_back(expr);
    divided |= AttentionOp::getDivisor(expr) > 1;
  }
  if (static_cast<int64_t>(exprs.size()) != type.getRank())
    value = dropUnitDims(b, loc, value, map, RankedTensorType::get(shape, type.getElementType()), extents);
  if (divided) {
    SmallVector<OpFoldResult> loops;
    for (AffineExpr expr : exprs)
      loops.push_back(sizes[*AttentionOp::getNamedDim(expr)]);
    Value source = value;
    value =
        elementwise(b, loc, loops, type.getElementType(), {}, {}, [&](OpBuilder &b, Location loc, ValueRange) -> Value {
          SmallVector<Value> indices;
          for (auto [n, expr] : llvm::enumerate(exprs)) {
            Value index = linalg::IndexOp::create(b, loc, n);
            if (int64_t c = AttentionOp::getDivisor(expr); c > 1)
              index = arith::DivUIOp::create(b, loc, index, arith::ConstantIndexOp::create(b, loc, c));
            indices.push_back(index);
          }
          return tensor::ExtractOp::create(b, loc, source, indices);
        });
    for (AffineExpr &expr : exprs)
      expr = b.getAffineDimExpr(*AttentionOp::getNamedDim(expr));
  }
  return {value, AffineMap::get(AttentionOp::kDims, 0, exprs, b.getContext())};
}

Value restoreUnitDims(OpBuilder &b, Location loc, Value value, RankedTensorType type, AffineMap map) {
  auto have = cast<RankedTensorType>(value.getType());
  if (have.getRank() != type.getRank()) {
    SmallVector<OpFoldResult> sizes, source = tensor::getMixedSizes(b, loc, value);
    SmallVector<ReassociationIndices> groups(have.getRank());
    // The unit dimensions before the first named one join its group, the others the group before them.
    int64_t group = -1;
    for (int64_t n = 0; n != type.getRank(); ++n) {
      bool named = n >= map.getNumResults() || AttentionOp::getNamedDim(map.getResult(n)).has_value();
      group += named;
      sizes.push_back(named ? source[group] : b.getIndexAttr(1));
      if (!groups.empty())
        groups[std::max<int64_t>(group, 0)].push_back(n);
    }
    value = expanded(b, loc, value, groups, sizes);
  }
  return castTo(b, loc, value, type);
}

} // namespace attn
