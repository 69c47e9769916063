#include "passes/graph/Structured.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/LinalgInterfaces.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/IndexingUtils.h"
#include "mlir/Dialect/Utils/StructuredOpsUtils.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include <cmath>

using namespace mlir;

namespace attn {

Value emptyTensor(OpBuilder &b, Location loc, ArrayRef<OpFoldResult> sizes, Type element) {
  return tensor::EmptyOp::create(b, loc, sizes, element);
}

SmallVector<OpFoldResult> madeSizes(OpBuilder &b, Location loc, Value tensor) {
  auto fill = tensor.getDefiningOp<linalg::FillOp>();
  auto empty = (fill ? fill.getOutputs().front() : tensor).getDefiningOp<tensor::EmptyOp>();
  return empty ? empty.getMixedSizes() : tensor::getMixedSizes(b, loc, tensor);
}

Value filledTensor(OpBuilder &b, Location loc, ArrayRef<OpFoldResult> sizes, TypedAttr value) {
  Value empty = emptyTensor(b, loc, sizes, value.getType());
  return linalg::FillOp::create(b, loc, arith::ConstantOp::create(b, loc, value).getResult(), empty).getResult(0);
}

Value filledTensor(OpBuilder &b, Location loc, ArrayRef<OpFoldResult> sizes, Type element, double value) {
  return filledTensor(b, loc, sizes, b.getFloatAttr(element, value));
}

static Value generic(OpBuilder &b, Location loc, ValueRange inputs, ArrayRef<AffineMap> maps, Value init,
                     AffineMap initMap, ScalarBody body) {
  SmallVector<AffineMap> allMaps(maps);
  allMaps.push_back(initMap);
  SmallVector<utils::IteratorType> iterators(initMap.getNumDims(), utils::IteratorType::reduction);
  for (AffineExpr expr : initMap.getResults())
    iterators[cast<AffineDimExpr>(expr).getPosition()] = utils::IteratorType::parallel;
  return linalg::GenericOp::create(
             b, loc, TypeRange{init.getType()}, inputs, ValueRange{init}, allMaps, iterators,
             [&](OpBuilder &b, Location loc, ValueRange args) { linalg::YieldOp::create(b, loc, body(b, loc, args)); })
      .getResult(0);
}

Value elementwise(OpBuilder &b, Location loc, ArrayRef<OpFoldResult> sizes, Type element, ValueRange inputs,
                  ArrayRef<AffineMap> maps, ScalarBody body) {
  // The last argument is what stands in the init.
  auto ofInputs = [&](OpBuilder &b, Location loc, ValueRange args) { return body(b, loc, args.drop_back()); };
  return generic(b, loc, inputs, maps, emptyTensor(b, loc, sizes, element), b.getMultiDimIdentityMap(sizes.size()),
                 ofInputs);
}

Value reduction(OpBuilder &b, Location loc, ValueRange inputs, ArrayRef<AffineMap> maps, Value init, AffineMap initMap,
                ScalarBody body) {
  return generic(b, loc, inputs, maps, init, initMap, body);
}

linalg::GenericOp withBodyOf(OpBuilder &b, linalg::GenericOp from, ValueRange inputs, Value init,
                             ArrayRef<AffineMap> maps) {
  SmallVector<utils::IteratorType> loops(maps.back().getNumDims(), utils::IteratorType::parallel);
  auto op = linalg::GenericOp::create(b, from.getLoc(), init.getType(), inputs, init, maps, loops);
  b.cloneRegionBefore(from.getRegion(), op.getRegion(), op.getRegion().end());
  return op;
}

Value contraction(OpBuilder &b, Location loc, ArrayRef<OpFoldResult> sizes, Type element, Value lhs, Value rhs,
                  ArrayRef<AffineMap> maps) {
  Value zeros = filledTensor(b, loc, sizes, element, 0);
  return linalg::ContractOp::create(b, loc, zeros.getType(), ValueRange{lhs, rhs}, zeros, b.getAffineMapArrayAttr(maps))
      .getResult(0);
}

SmallVector<AffineMap, 3> rowProductMaps(MLIRContext *context, unsigned rank, bool transposed, unsigned numBatch) {
  AffineExpr column = getAffineDimExpr(rank - 1, context), depth = getAffineDimExpr(rank, context);
  AffineMap result = AffineMap::getMultiDimIdentityMap(rank + 1, context).dropResult(rank);
  SmallVector<AffineExpr> row(result.getResults().drop_back()), matrix(result.getResults().take_front(numBatch));
  row.push_back(depth);
  llvm::append_values(matrix, transposed ? column : depth, transposed ? depth : column);
  return {AffineMap::get(rank + 1, 0, row, context), AffineMap::get(rank + 1, 0, matrix, context), result};
}

/// The offsets of what begins at `first` along `dim`, and strides of 1.
static std::pair<SmallVector<OpFoldResult>, SmallVector<OpFoldResult>> beginAlong(OpBuilder &b, Value tensor,
                                                                                  int64_t dim, OpFoldResult first) {
  int64_t rank = cast<RankedTensorType>(tensor.getType()).getRank();
  SmallVector<OpFoldResult> offsets(rank, b.getIndexAttr(0)), strides(rank, b.getIndexAttr(1));
  offsets[dim] = first;
  return {offsets, strides};
}

Value sliceAlong(OpBuilder &b, Location loc, Value tensor, int64_t dim, OpFoldResult first, OpFoldResult count) {
  auto [offsets, strides] = beginAlong(b, tensor, dim, first);
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, loc, tensor);
  sizes[dim] = count;
  return tensor::ExtractSliceOp::create(b, loc, tensor, offsets, sizes, strides);
}

Value placeAlong(OpBuilder &b, Location loc, Value tensor, int64_t dim, OpFoldResult place) {
  auto [offsets, strides] = beginAlong(b, tensor, dim, place);
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, loc, tensor);
  sizes[dim] = b.getIndexAttr(1);
  auto type = cast<RankedTensorType>(tensor.getType());
  SmallVector<int64_t> shape(type.getShape());
  shape.erase(shape.begin() + dim);
  return tensor::ExtractSliceOp::create(b, loc, RankedTensorType::get(shape, type.getElementType()), tensor, offsets,
                                        sizes, strides);
}

Value insertAlong(OpBuilder &b, Location loc, Value part, Value tensor, int64_t dim, OpFoldResult first) {
  auto [offsets, strides] = beginAlong(b, tensor, dim, first);
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, loc, part);
  if (sizes.size() < offsets.size())
    sizes.insert(sizes.begin() + dim, b.getIndexAttr(1));
  return tensor::InsertSliceOp::create(b, loc, part, tensor, offsets, sizes, strides);
}

Value castTo(OpBuilder &b, Location loc, Value value, Type type) {
  return value.getType() == type ? value : tensor::CastOp::create(b, loc, type, value).getResult();
}

FloatType accumulatorType(Type element) {
  return element.isF64() ? FloatType(Float64Type::get(element.getContext()))
                         : FloatType(Float32Type::get(element.getContext()));
}

Value rearranged(OpBuilder &b, Location loc, Value tensor, ArrayRef<OpFoldResult> sizes, AffineMap map) {
  return elementwise(b, loc, sizes, getElementTypeOrSelf(tensor), tensor, map,
                     [](OpBuilder &, Location, ValueRange args) { return args.front(); });
}

Value expanded(OpBuilder &b, Location loc, Value value, ArrayRef<ReassociationIndices> groups,
               ArrayRef<OpFoldResult> sizes) {
  if (groups.size() == sizes.size())
    return value;
  auto type = cast<RankedTensorType>(value.getType());
  // A group of one dimension keeps what its type knows. Where a size is known and the type does not say so, the type
  // must: MLIR takes a constant size of a dynamic dimension for an operand.
  SmallVector<OpFoldResult> exact(sizes);
  for (auto [n, group] : llvm::enumerate(groups))
    if (group.size() == 1 && !type.isDynamicDim(n))
      exact[group.front()] = b.getIndexAttr(type.getDimSize(n));
  SmallVector<int64_t> shape;
  for (OpFoldResult &size : exact) {
    shape.push_back(getConstantIntValue(size).value_or(ShapedType::kDynamic));
    if (!ShapedType::isDynamic(shape.back()))
      size = b.getIndexAttr(shape.back());
  }
  // A dimension that is static in the group must be static in the source.
  SmallVector<int64_t> source;
  for (ArrayRef<int64_t> group : groups) {
    int64_t product = 1;
    for (int64_t n : group)
      product =
          ShapedType::isDynamic(product) || ShapedType::isDynamic(shape[n]) ? ShapedType::kDynamic : product * shape[n];
    source.push_back(product);
  }
  value = castTo(b, loc, value, type.clone(source));
  return tensor::ExpandShapeOp::create(b, loc, type.clone(shape), value, groups, exact);
}

Value scalarTensor(OpBuilder &b, Location loc, Value scalar) {
  if (scalar.getType().isIndex())
    scalar = arith::IndexCastOp::create(b, loc, b.getI64Type(), scalar);
  return tensor::FromElementsOp::create(b, loc, RankedTensorType::get({}, scalar.getType()), ValueRange(scalar));
}

Value transposed(OpBuilder &b, Location loc, Value tensor, ArrayRef<int64_t> permutation) {
  SmallVector<OpFoldResult> sizes = applyPermutation(tensor::getMixedSizes(b, loc, tensor), permutation);
  Value empty = emptyTensor(b, loc, sizes, getElementTypeOrSelf(tensor));
  return linalg::TransposeOp::create(b, loc, tensor, empty, permutation)->getResult(0);
}

Value remadeView(OpBuilder &b, Operation *view, Value source) {
  Location loc = view->getLoc();
  Type element = getElementTypeOrSelf(source);
  auto moving = dyn_cast<linalg::LinalgOp>(view);
  if (!moving) {
    SmallVector<Value> operands(view->getOperands());
    operands.front() = source;
    Type type = cast<RankedTensorType>(view->getResult(0).getType()).clone(element);
    return mlir::clone(b, view, type, operands)->getResult(0);
  }
  OpOperand *init = moving.getDpsInitOperand(0);
  Value made = emptyTensor(b, loc, madeSizes(b, loc, init->get()), element);
  if (auto transpose = dyn_cast<linalg::TransposeOp>(view))
    return linalg::TransposeOp::create(b, loc, source, made, transpose.getPermutation())->getResult(0);
  if (auto broadcast = dyn_cast<linalg::BroadcastOp>(view))
    return linalg::BroadcastOp::create(b, loc, source, made, broadcast.getDimensions())->getResult(0);
  return generic(b, loc, source, moving.getMatchingIndexingMap(getMovedInput(moving)), made,
                 moving.getMatchingIndexingMap(init), [](OpBuilder &, Location, ValueRange args) { return args[0]; });
}

Value convertFloat(OpBuilder &b, Location loc, Value scalar, Type to) {
  unsigned from = scalar.getType().getIntOrFloatBitWidth(), width = to.getIntOrFloatBitWidth();
  if (scalar.getType() == to)
    return scalar;
  if (from < width)
    return arith::ExtFOp::create(b, loc, to, scalar);
  if (from > width)
    return arith::TruncFOp::create(b, loc, to, scalar);
  // f16 and bf16
  Value wide = arith::ExtFOp::create(b, loc, b.getF32Type(), scalar);
  return arith::TruncFOp::create(b, loc, to, wide);
}

Value cloneBody(OpBuilder &b, Block &body, ValueRange args) {
  IRMapping mapping;
  mapping.map(body.getArguments().take_front(args.size()), args);
  for (Operation &op : body.without_terminator())
    b.clone(op, mapping);
  return mapping.lookupOrDefault(body.getTerminator()->getOperand(0));
}

Value convertTensor(OpBuilder &b, Location loc, Value tensor, Type element, ArrayRef<OpFoldResult> sizes) {
  SmallVector<OpFoldResult> own;
  if (sizes.empty())
    sizes = own = tensor::getMixedSizes(b, loc, tensor);
  return elementwise(
      b, loc, sizes, element, tensor, b.getMultiDimIdentityMap(sizes.size()),
      [&](OpBuilder &b, Location loc, ValueRange args) { return convertFloat(b, loc, args[0], element); });
}

Value floatConstant(OpBuilder &b, Location loc, Type type, double value) {
  return arith::ConstantOp::create(b, loc, b.getFloatAttr(type, value));
}

bool isPointwise(Operation *op) {
  auto linalgOp = dyn_cast_or_null<linalg::LinalgOp>(op);
  if (!linalgOp || !linalgOp.hasPureTensorSemantics() || linalgOp.getNumDpsInits() != 1)
    return false;
  if (linalgOp.getNumParallelLoops() != linalgOp.getNumLoops())
    return false;
  // A body that reads the init depends on more than the inputs.
  if (linalgOp.payloadUsesValueFromOperand(linalgOp.getDpsInitOperand(0)))
    return false;
  return linalgOp.getMatchingIndexingMap(linalgOp.getDpsInitOperand(0)).isPermutation();
}

AffineMap readThrough(OpOperand &input, AffineMap at) {
  auto op = cast<linalg::LinalgOp>(input.getOwner());
  AffineMap written = op.getMatchingIndexingMap(op.getDpsInitOperand(0));
  return op.getMatchingIndexingMap(&input).compose(inversePermutation(written)).compose(at);
}

std::optional<unsigned> onlyReducedLoop(linalg::LinalgOp op) {
  SmallVector<unsigned> loops;
  op.getReductionDims(loops);
  return loops.size() == 1 ? std::optional(loops.front()) : std::nullopt;
}

OpOperand *getMovedInput(linalg::LinalgOp op) {
  if (!isPointwise(op))
    return nullptr;
  auto yielded = dyn_cast<BlockArgument>(op.getBlock()->getTerminator()->getOperand(0));
  if (!yielded || yielded.getOwner() != op.getBlock())
    return nullptr;
  OpOperand *operand = op.getMatchingOpOperand(yielded);
  return op.isDpsInput(operand) && isa<RankedTensorType>(operand->get().getType()) ? operand : nullptr;
}

Value getViewed(Operation *op) {
  if (isa_and_nonnull<tensor::CollapseShapeOp, tensor::ExpandShapeOp, tensor::CastOp>(op))
    return op->getOperand(0);
  auto linalgOp = dyn_cast_or_null<linalg::LinalgOp>(op);
  OpOperand *moved = linalgOp ? getMovedInput(linalgOp) : nullptr;
  return moved ? moved->get() : Value();
}

bool isView(Operation *op) { return getViewed(op) != nullptr; }

bool isPerElement(Operation *op) { return isView(op) || isPointwise(op); }

Value stripViews(Value value) {
  while (Value viewed = getViewed(value.getDefiningOp()))
    value = viewed;
  return value;
}

bool followTensors(Operation *op, Values &list) {
  if (!isPerElement(op))
    return false;
  llvm::copy_if(op->getOperands(), std::back_inserter(list),
                [](Value operand) { return isa<RankedTensorType>(operand.getType()); });
  return true;
}

bool isMadeOf(Value value, llvm::function_ref<bool(Value)> isSource) {
  return worklist(Values{value}, [&](Value next, Values &list) {
    followTensors(next.getDefiningOp(), list);
    return isSource(next);
  });
}

bool hasUse(Value value, llvm::function_ref<bool(OpOperand &)> isFound, llvm::function_ref<bool(Operation *)> follows) {
  return worklist(Values{value}, [&](Value next, Values &list) {
    for (OpOperand &use : next.getUses()) {
      if (isFound(use))
        return true;
      if (follows(use.getOwner()))
        list.push_back(use.getOwner()->getResult(0));
    }
    return false;
  });
}

bool isComputedFrom(Value value, Value source, DenseSet<Value> &visited) {
  Values seen;
  bool depends = worklist(Values{value}, [&](Value next, Values &list) {
    if (next != source && !visited.contains(next)) {
      seen.push_back(next);
      if (Operation *maker = next.getDefiningOp())
        maker->walk([&](Operation *op) { llvm::append_range(list, op->getOperands()); });
    }
    return next == source;
  });
  if (!depends)
    visited.insert_range(seen);
  return depends;
}

TypedAttr splatConstant(Value value) {
  Attribute constant;
  if (auto fill = value.getDefiningOp<linalg::FillOp>())
    value = fill.getInputs().front();
  if (!matchPattern(value, m_Constant(&constant)))
    return {};
  if (auto dense = dyn_cast<DenseElementsAttr>(constant))
    return dense.isSplat() ? dense.getSplatValue<TypedAttr>() : TypedAttr();
  return isa<FloatAttr, IntegerAttr>(constant) ? cast<TypedAttr>(constant) : TypedAttr();
}

std::optional<double> numberOf(Value value) {
  auto number = dyn_cast_or_null<FloatAttr>(splatConstant(value));
  return number ? std::optional(number.getValueAsDouble()) : std::nullopt;
}

bool isZeroFill(Value value) { return numberOf(value) == 0; }

bool isContraction(Operation *op) {
  auto linalgOp = dyn_cast_or_null<linalg::LinalgOp>(op);
  return linalgOp && linalgOp.hasPureTensorSemantics() && linalg::isaContractionOpInterface(linalgOp) &&
         isa<FloatType>(getElementTypeOrSelf(op->getResult(0)));
}

Value stripConversions(Value scalar) {
  while (Operation *op = scalar.getDefiningOp()) {
    if (!isa<arith::ExtFOp, arith::TruncFOp>(op))
      break;
    scalar = op->getOperand(0);
  }
  return scalar;
}

std::optional<Combiner> getReduction(Operation *op) {
  auto linalgOp = dyn_cast_or_null<linalg::LinalgOp>(op);
  if (!linalgOp || !linalgOp.hasPureTensorSemantics() || linalgOp.getNumDpsInputs() != 1 ||
      linalgOp.getNumDpsInits() != 1 || linalgOp.getNumReductionLoops() == 0 ||
      linalgOp.getNumReductionLoops() + linalgOp.getNumParallelLoops() != linalgOp.getNumLoops())
    return std::nullopt;
  Block *body = linalgOp.getBlock();
  Operation *combine = body->getTerminator()->getOperand(0).getDefiningOp();
  if (!combine || combine->getNumOperands() != 2)
    return std::nullopt;
  Value element = stripConversions(combine->getOperand(0)), sum = combine->getOperand(1);
  if (combine->getOperand(0) == body->getArgument(1)) {
    element = stripConversions(combine->getOperand(1));
    sum = combine->getOperand(0);
  }
  if (element != body->getArgument(0) || sum != body->getArgument(1))
    return std::nullopt;
  auto start = dyn_cast_or_null<FloatAttr>(splatConstant(linalgOp.getDpsInits()[0]));
  if (!start)
    return std::nullopt;
  llvm::APFloat value = start.getValue();
  if (isa<arith::AddFOp>(combine) && value.isZero())
    return Combiner::sum;
  if (isa<arith::MaximumFOp, arith::MaxNumFOp>(combine) && value.isNegative() &&
      (value.isInfinity() || value.isLargest()))
    return Combiner::maximum;
  return std::nullopt;
}

Operation *getScalarOp(linalg::LinalgOp op) {
  return op && isPointwise(op) ? stripConversions(op.getBlock()->getTerminator()->getOperand(0)).getDefiningOp()
                               : nullptr;
}

OpOperand *getInput(linalg::LinalgOp op, Value scalar) {
  auto argument = dyn_cast<BlockArgument>(stripConversions(scalar));
  if (!argument || argument.getOwner() != op.getBlock())
    return nullptr;
  OpOperand *operand = op.getMatchingOpOperand(argument);
  return op.isDpsInput(operand) ? operand : nullptr;
}

std::optional<double> constantFactor(linalg::LinalgOp op) {
  if (!isPointwise(op) || op.getNumDpsInputs() != 1 || !getElementTypeOrSelf(op->getResult(0)).isF32())
    return std::nullopt;
  BlockArgument input = op.getMatchingBlockArgument(op.getDpsInputOperand(0));
  Operation *scale = op.getBlock()->getTerminator()->getOperand(0).getDefiningOp();
  if (!scale || !isa<arith::MulFOp, arith::DivFOp>(scale) || !input.getType().isF32())
    return std::nullopt;
  Value factor = scale->getOperand(1);
  if (scale->getOperand(0) != input) {
    if (isa<arith::DivFOp>(scale) || factor != input)
      return std::nullopt;
    factor = scale->getOperand(0);
  }
  std::optional<double> value = numberOf(factor);
  if (!value || !std::isfinite(*value) || *value == 0)
    return std::nullopt;
  return isa<arith::DivFOp>(scale) ? 1 / *value : *value;
}

} // namespace attn
