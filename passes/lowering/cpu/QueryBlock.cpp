#include "passes/lowering/cpu/QueryBlock.h"
#include "passes/graph/Formulas.h"

#include "dialects/attn/MaskTerms.h"
#include "passes/graph/Structured.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Dialect/Utils/StructuredOpsUtils.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;

namespace attn {

using Dim = AttentionOp::Dim;

bool QueryBlockOps::canTake(AttentionOp op, int64_t block, std::string &reason) {
  for (Attribute term : op.getMask())
    for (const KeyBound &bound : getKeyBounds(term))
      if (block % bound.step) {
        reason = "blocks of queries of another size";
        return false;
      }
  for (unsigned n = 0; n != op.getNumOperands(); ++n)
    for (AffineExpr expr : op.getMap(n).getResults())
      if (AttentionOp::getNamedDim(expr) == unsigned(Dim::I) && block % AttentionOp::getDivisor(expr)) {
        reason = "blocks of queries of another size";
        return false;
      }
  return true;
}

RankedTensorType QueryBlockOps::typeOf(Type type, int64_t dim) {
  auto tensor = cast<RankedTensorType>(type);
  if (dim < 0)
    return tensor;
  SmallVector<int64_t> shape(tensor.getShape());
  shape[dim] = getConstantIntValue(rows).value_or(ShapedType::kDynamic);
  return tensor.clone(shape);
}

Value QueryBlockOps::slice(Value tensor, int64_t dim, int64_t divisor) {
  auto divided = [&](OpFoldResult value, bool up) {
    AffineExpr symbol = b.getAffineSymbolExpr(0);
    return affine::makeComposedFoldedAffineApply(b, loc, up ? symbol.ceilDiv(divisor) : symbol.floorDiv(divisor),
                                                 {value});
  };
  OpFoldResult count = divisor == 1 ? rows : divided(rows, true);
  // Of nothing but an unwritten tensor, as of one filled with a number, there is no need for the whole.
  bool isEmpty = tensor.getDefiningOp<tensor::EmptyOp>();
  auto fill = tensor.getDefiningOp<linalg::FillOp>();
  if (isEmpty || (fill && fill.getOutputs()[0].getDefiningOp<tensor::EmptyOp>())) {
    Value empty = isEmpty ? tensor : fill.getOutputs()[0];
    SmallVector<OpFoldResult> sizes = empty.getDefiningOp<tensor::EmptyOp>().getMixedSizes();
    sizes[dim] = count;
    Value part = tensor::EmptyOp::create(b, loc, sizes, getElementTypeOrSelf(tensor));
    return isEmpty ? part : linalg::FillOp::create(b, loc, fill.getInputs()[0], part).getResult(0);
  }
  return sliceAlong(b, loc, tensor, dim, divisor == 1 ? OpFoldResult(offset) : divided(offset, false), count);
}

Value QueryBlockOps::insert(Value part, Value into, int64_t dim) {
  return insertAlong(b, loc, part, into, dim, offset);
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

Value QueryBlockOps::scalar(Value value) {
  return tensor::FromElementsOp::create(b, loc, RankedTensorType::get({}, b.getIndexType()), value);
}

/// The elements of `operand` plus the offset, as index; those that are far stay far.
Value QueryBlockOps::shifted(Value operand) {
  auto type = cast<RankedTensorType>(operand.getType());
  auto body = formula([&](ArrayRef<Num> x) {
    constexpr int64_t kFar = int64_t(1) << 40;
    Num near = maximum(minimum(convert(x[0], b.getIndexType()), kFar), -kFar);
    return near + near.with(offset);
  });
  return elementwise(b, loc, tensor::getMixedSizes(b, loc, operand), b.getIndexType(), operand,
                     b.getMultiDimIdentityMap(type.getRank()), body);
}

/// The mask of `op`, its terms and their operands, whose maps are added to `maps`.
void QueryBlockOps::moveMask(AttentionOp op, AttentionParts &parts, SmallVectorImpl<AffineMap> &maps) {
  parts.mask.clear();
  parts.maskOperands.clear();
  unsigned number = 0;
  auto add = [&](Value operand, AffineMap map) {
    parts.maskOperands.push_back(operand);
    maps.push_back(map);
  };
  AffineMap none = AffineMap::get(AttentionOp::kDims, 0, b.getContext());
  for (Attribute term : op.getMask()) {
    bool moves = !isTable(term) && dependsOnQuery(term);
    if (!takesMaskOperand(term)) {
      if (moves) {
        auto [counted, by] = countFromOperand(term);
        Value first =
            by == 0 ? offset : b.createOrFold<arith::AddIOp>(loc, offset, arith::ConstantIndexOp::create(b, loc, by));
        add(scalar(first), none);
        term = counted;
      }
      parts.mask.push_back(term);
      continue;
    }
    Value operand = op.getMaskOperands()[number];
    AffineMap map = op.getMaskMap(number++);
    for (auto [n, expr] : llvm::enumerate(map.getResults()))
      if (AttentionOp::getNamedDim(expr) == unsigned(Dim::I))
        operand = slice(operand, n, AttentionOp::getDivisor(expr));
    add(moves ? shifted(operand) : operand, map);
    parts.mask.push_back(term);
  }
}

SmallVector<Value> QueryBlockOps::attention(AttentionOp op) {
  AttentionParts parts = op.getParts();
  parts.axes = {}; // of the whole attention
  unsigned firstMask = op.getNumOperands() - op.getMaskOperands().size();
  auto sliced = [&](Value operand, AffineMap map) {
    for (auto [n, expr] : llvm::enumerate(map.getResults()))
      if (operand && AttentionOp::getNamedDim(expr) == unsigned(Dim::I))
        operand = slice(operand, n);
    return operand;
  };
  parts.query = sliced(parts.query, op.getQueryMap());
  for (auto [n, capture] : llvm::enumerate(parts.captures))
    capture = sliced(capture, op.getCaptureMap(n));
  SmallVector<AffineMap> maps(ArrayRef(parts.maps).take_front(firstMask));
  bool readsIndex = false;
  for (Region &region : op->getRegions())
    region.walk([&](IndexOp index) { readsIndex |= index.getDim() == Dim::I; });
  if (readsIndex) {
    parts.captures.push_back(scalar(offset));
    maps.push_back(AffineMap::get(AttentionOp::kDims, 0, b.getContext()));
  }
  moveMask(op, parts, maps);
  llvm::append_range(maps, ArrayRef(parts.maps).drop_front(op.getNumOperands()));
  for (auto [n, type] : llvm::enumerate(parts.types))
    for (auto [dim, expr] : llvm::enumerate(op.getMap(op.getNumOperands() + n).getResults()))
      if (AttentionOp::getNamedDim(expr) == unsigned(Dim::I))
        type = typeOf(type, dim);
  parts.maps = std::move(maps);
  auto twin = AttentionOp::create(b, loc, parts);
  twin->setDiscardableAttrs(llvm::to_vector(op->getDiscardableAttrs()));
  for (auto [to, from] : llvm::zip_equal(twin->getRegions(), op->getRegions())) {
    IRMapping mapping;
    from.cloneInto(&to, mapping);
    if (!readsIndex || to.empty() || &to == &twin.getActivation())
      continue;
    Value first = to.front().addArgument(b.getIndexType(), loc);
    to.walk([&](IndexOp index) {
      if (index.getDim() != Dim::I)
        return;
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointAfter(index);
      auto sum = arith::AddIOp::create(b, loc, index, first);
      index.getResult().replaceAllUsesExcept(sum.getResult(), sum.getOperation());
    });
  }
  return SmallVector<Value>(twin->getResults());
}

//===----------------------------------------------------------------------===//
// Other ops
//===----------------------------------------------------------------------===//

SmallVector<Value> QueryBlockOps::linalg(linalg::LinalgOp op, ArrayRef<Value> operands, std::optional<unsigned> loop) {
  SmallVector<Type> types;
  for (Value init : operands.drop_front(op.getNumDpsInputs()).take_front(op.getNumDpsInits()))
    types.push_back(init.getType());
  Operation *twin = mlir::clone(b, op, types, operands);
  if (loop)
    twin->walk([&](linalg::IndexOp index) {
      if (index.getDim() != *loop)
        return;
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointAfter(index);
      auto sum = arith::AddIOp::create(b, loc, index, offset);
      index.getResult().replaceAllUsesExcept(sum.getResult(), sum.getOperation());
    });
  return SmallVector<Value>(twin->getResults());
}

SmallVector<Value> QueryBlockOps::shaped(Operation *op, ArrayRef<Value> operands, int64_t from,
                                         ArrayRef<int64_t> dims) {
  auto type = typeOf(op->getResult(0).getType(), dims.front());
  if (auto expand = dyn_cast<tensor::ExpandShapeOp>(op)) {
    SmallVector<OpFoldResult> shape = expand.getMixedOutputShape();
    if (dims.front() >= 0)
      shape[dims.front()] = rows;
    return {
        tensor::ExpandShapeOp::create(b, loc, type, operands[0], expand.getReassociationIndices(), shape).getResult()};
  }
  if (auto collapse = dyn_cast<tensor::CollapseShapeOp>(op))
    return {tensor::CollapseShapeOp::create(b, loc, type, operands[0], collapse.getReassociationIndices()).getResult()};
  if (isa<tensor::CastOp>(op))
    return {tensor::CastOp::create(b, loc, type, operands[0]).getResult()};
  if (auto part = dyn_cast<tensor::ExtractSliceOp>(op)) {
    SmallVector<OpFoldResult> sizes = part.getMixedSizes();
    sizes[from] = rows;
    return {
        tensor::ExtractSliceOp::create(b, loc, type, operands[0], part.getMixedOffsets(), sizes, part.getMixedStrides())
            .getResult()};
  }
  SmallVector<Type> types;
  for (auto [result, dim] : llvm::zip_equal(op->getResults(), dims))
    types.push_back(typeOf(result.getType(), dim));
  return SmallVector<Value>(mlir::clone(b, op, types, operands)->getResults());
}

} // namespace attn
