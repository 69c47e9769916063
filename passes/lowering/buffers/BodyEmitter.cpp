#include "passes/lowering/buffers/BodyEmitter.h"
#include "dialects/attn/AttnOps.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace attn;

static bool involves(AffineExpr expr, int64_t loop) { return loop >= 0 && expr.isFunctionOfDim(loop); }

/// The factor of dimension `loop` in `expr`, when it stands there linearly.
static std::optional<int64_t> linearFactor(AffineExpr expr, int64_t loop) {
  if (!involves(expr, loop))
    return 0;
  if (isa<AffineDimExpr>(expr))
    return 1;
  auto binary = dyn_cast<AffineBinaryOpExpr>(expr);
  if (!binary)
    return std::nullopt;
  std::optional<int64_t> lhs = linearFactor(binary.getLHS(), loop), rhs = linearFactor(binary.getRHS(), loop);
  if (!lhs || !rhs)
    return std::nullopt;
  if (expr.getKind() == AffineExprKind::Add)
    return *lhs + *rhs;
  if (expr.getKind() == AffineExprKind::Mul)
    if (auto constant = dyn_cast<AffineConstantExpr>(binary.getRHS()))
      return *lhs * constant.getValue();
  return std::nullopt;
}

static bool hasUnitStride(Value buffer) {
  auto type = cast<MemRefType>(buffer.getType());
  SmallVector<int64_t> strides;
  int64_t offset;
  return type.getRank() && succeeded(type.getStridesAndOffset(strides, offset)) && strides.back() == 1;
}

static int64_t costOf(Operation &op) {
  if (isa<math::MathDialect>(op.getDialect()))
    return isa<math::AbsFOp, math::FmaOp, math::CopySignOp, math::FloorOp, math::CeilOp>(op) ? 1 : 10;
  if (isa<arith::DivFOp, arith::DivSIOp, arith::DivUIOp, arith::RemSIOp, arith::RemUIOp, arith::RemFOp>(op))
    return 5;
  return isa<arith::ConstantOp, linalg::IndexOp, linalg::YieldOp>(op) ? 0 : 1;
}

BodyEmitter::BodyEmitter(linalg::GenericOp op, int64_t loop) : op(op), loop(loop) {
  Block *body = op.getBody();
  for (OpOperand &operand : op->getOpOperands()) {
    AffineMap map = op.getMatchingIndexingMap(&operand);
    Access access = isa<MemRefType>(operand.get().getType()) ? accessOf(operand.get(), map) : Access::Same;
    accesses.push_back(access);
    if (access == Access::Irregular)
      vectorizable = false;
    bool varies = access != Access::Same || (op.isDpsInit(&operand) && loop >= 0);
    kinds[body->getArgument(operand.getOperandNumber())] = varies ? Lanes::Varying : Lanes::Same;
    if (op.payloadUsesValueFromOperand(&operand) || op.isDpsInit(&operand))
      ++cost;
  }
  for (Operation &inner : *body)
    classify(inner);
}

Access BodyEmitter::accessOf(Value buffer, AffineMap map) const {
  Access access = Access::Same;
  for (auto [i, expr] : llvm::enumerate(map.getResults())) {
    std::optional<int64_t> factor = linearFactor(expr, loop);
    if (!factor)
      return Access::Irregular;
    if (*factor == 0)
      continue;
    bool neighbours = *factor == 1 && i + 1 == map.getNumResults() && hasUnitStride(buffer);
    access = access == Access::Same && neighbours ? Access::Contiguous : Access::Strided;
  }
  return access;
}

std::optional<int64_t> BodyEmitter::smallStep(unsigned operand) const {
  constexpr int64_t kMost = 4;
  if (accesses[operand] != Access::Strided)
    return std::nullopt;
  OpOperand &read = op->getOpOperand(operand);
  SmallVector<int64_t> strides;
  int64_t offset, step = 0;
  if (failed(cast<MemRefType>(read.get().getType()).getStridesAndOffset(strides, offset)))
    return std::nullopt;
  for (auto [expr, stride] : llvm::zip_equal(op.getMatchingIndexingMap(&read).getResults(), strides)) {
    int64_t factor = *linearFactor(expr, loop);
    if (factor && ShapedType::isDynamic(stride))
      return std::nullopt;
    step += factor ? factor * stride : 0;
  }
  return step > 1 && step <= kMost ? std::optional(step) : std::nullopt;
}

Lanes BodyEmitter::lanesOf(Value value) const {
  auto it = kinds.find(value);
  return it == kinds.end() ? Lanes::Same : it->second;
}

void BodyEmitter::classify(Operation &inner) {
  cost += costOf(inner);
  if (isa<linalg::YieldOp>(inner))
    return;
  if (auto index = dyn_cast<linalg::IndexOp>(inner)) {
    kinds[index] = static_cast<int64_t>(index.getDim()) == loop ? Lanes::Consecutive : Lanes::Same;
    return;
  }
  bool same = llvm::all_of(inner.getOperands(), [&](Value v) { return lanesOf(v) == Lanes::Same; });
  if (isa<arith::DivSIOp, arith::DivUIOp, arith::RemSIOp, arith::RemUIOp, arith::CeilDivSIOp, arith::FloorDivSIOp,
          arith::CeilDivUIOp>(inner))
    trapping |= !same;
  Lanes kind = same ? Lanes::Same : Lanes::Varying;
  if (!same && isa<arith::AddIOp>(inner)) {
    Lanes a = lanesOf(inner.getOperand(0)), b = lanesOf(inner.getOperand(1));
    if ((a == Lanes::Same && b == Lanes::Consecutive) || (a == Lanes::Consecutive && b == Lanes::Same))
      kind = Lanes::Consecutive;
  } else if (!same && isa<arith::SubIOp>(inner)) {
    if (lanesOf(inner.getOperand(0)) == Lanes::Consecutive && lanesOf(inner.getOperand(1)) == Lanes::Same)
      kind = Lanes::Consecutive;
  } else if (isa<arith::IndexCastOp, arith::IndexCastUIOp>(inner)) {
    auto isWide = [](Type type) { return type.isIndex() || type.isInteger(64); };
    if (isWide(inner.getOperand(0).getType()) && isWide(inner.getResult(0).getType()))
      kind = lanesOf(inner.getOperand(0));
  }
  for (Value result : inner.getResults())
    kinds[result] = kind;
  if (inner.getNumRegions()) {
    vectorizable = false;
  } else if (auto load = dyn_cast<memref::LoadOp>(inner)) {
    if (kind != Lanes::Same) {
      bool neighbours = hasUnitStride(load.getMemRef()) && lanesOf(load.getIndices().back()) == Lanes::Consecutive &&
                        llvm::all_of(load.getIndices().drop_back(), [&](Value v) { return lanesOf(v) == Lanes::Same; });
      gathers += !neighbours;
      kinds[load] = Lanes::Varying;
    }
  } else if (kind != Lanes::Same) {
    if (!OpTrait::hasElementwiseMappableTraits(&inner) || inner.getNumResults() != 1 ||
        !inner.getResult(0).getType().isIntOrIndexOrFloat())
      vectorizable = false;
  }
}

//===----------------------------------------------------------------------===//
// Emission
//===----------------------------------------------------------------------===//

static Value constantIndex(OpBuilder &b, Location loc, int64_t value) {
  return arith::ConstantIndexOp::create(b, loc, value);
}

static Value splatZero(OpBuilder &b, Location loc, VectorType type) {
  return arith::ConstantOp::create(b, loc, type, b.getZeroAttr(type));
}

static Value allLanes(OpBuilder &b, Location loc, int64_t lanes) {
  auto type = VectorType::get({lanes}, b.getI1Type());
  return arith::ConstantOp::create(b, loc, type, DenseElementsAttr::get(type, true));
}

/// `buffer` as a flat array from its allocation on, with its offset and strides.
static Value flatten(OpBuilder &b, Location loc, Value buffer, OpFoldResult &offset,
                     SmallVector<OpFoldResult> &strides) {
  auto metadata = memref::ExtractStridedMetadataOp::create(b, loc, buffer);
  offset = metadata.getConstifiedMixedOffset();
  strides = metadata.getConstifiedMixedStrides();
  auto type = MemRefType::get({ShapedType::kDynamic}, cast<MemRefType>(buffer.getType()).getElementType());
  Value size = constantIndex(b, loc, std::numeric_limits<int64_t>::max());
  return memref::ReinterpretCastOp::create(b, loc, type, metadata.getBaseBuffer(), OpFoldResult(b.getIndexAttr(0)),
                                           ArrayRef<OpFoldResult>{size}, ArrayRef<OpFoldResult>{b.getIndexAttr(1)});
}

/// `sum + a * b`, null sum: 0.
static Value multiplyAdd(OpBuilder &b, Location loc, Value sum, Value x, OpFoldResult y) {
  Value product = x;
  if (getConstantIntValue(y) != 1)
    product = arith::MulIOp::create(b, loc, x, getValueOrCreateConstantIndexOp(b, loc, y));
  return sum ? arith::AddIOp::create(b, loc, sum, product).getResult() : product;
}

static Value splat(OpBuilder &b, Location loc, int64_t lanes, Value scalar) {
  return vector::BroadcastOp::create(b, loc, VectorType::get({lanes}, scalar.getType()), scalar);
}

Value BodyEmitter::widen(const Point &point, Location loc, Value value, Lanes kind) {
  if (point.lanes == 1 || isa<VectorType>(value.getType()))
    return value;
  OpBuilder &b = point.b;
  Value wide = splat(b, loc, point.lanes, value);
  if (kind != Lanes::Consecutive)
    return wide;
  auto type = cast<VectorType>(wide.getType());
  Value step = vector::StepOp::create(b, loc, VectorType::get({point.lanes}, b.getIndexType()));
  if (!type.getElementType().isIndex())
    step = arith::IndexCastOp::create(b, loc, type, step);
  return arith::AddIOp::create(b, loc, wide, step);
}

static SmallVector<Value> applyMap(const BodyEmitter::Point &point, Location loc, AffineMap map) {
  SmallVector<Value> result;
  SmallVector<OpFoldResult> operands(point.indices.begin(), point.indices.end());
  for (AffineExpr expr : map.getResults()) {
    if (auto dim = dyn_cast<AffineDimExpr>(expr)) {
      result.push_back(point.indices[dim.getPosition()]);
      continue;
    }
    OpFoldResult index = affine::makeComposedFoldedAffineApply(
        point.b, loc, map.getSubMap({static_cast<unsigned>(result.size())}), operands);
    result.push_back(getValueOrCreateConstantIndexOp(point.b, loc, index));
  }
  return result;
}

/// The place of lane 0 in the flat buffer, and each lane's distance from it.
static std::pair<Value, Value> stridedLanes(const BodyEmitter::Point &point, Location loc, AffineMap map, int64_t loop,
                                            OpFoldResult offset, ArrayRef<OpFoldResult> strides) {
  OpBuilder &b = point.b;
  Value start = getValueOrCreateConstantIndexOp(b, loc, offset), stride;
  for (auto [index, expr, step] : llvm::zip(applyMap(point, loc, map), map.getResults(), strides)) {
    start = multiplyAdd(b, loc, start, index, step);
    int64_t factor = *linearFactor(expr, loop);
    if (factor)
      stride = multiplyAdd(b, loc, stride, constantIndex(b, loc, factor), step);
  }
  Value lanes = vector::StepOp::create(b, loc, VectorType::get({point.lanes}, b.getIndexType()));
  return {start, arith::MulIOp::create(b, loc, lanes, splat(b, loc, point.lanes, stride))};
}

/// What lanes read of the flat `buffer` from `start` on, `step` elements apart: `step` loads of neighbours, which go as
/// far as the last lane does, and a shuffle for each load but one.
static Value loadSteps(const BodyEmitter::Point &point, Location loc, Value buffer, Value start, int64_t step) {
  OpBuilder &b = point.b;
  int64_t last = point.lanes - 1;
  auto type = VectorType::get({point.lanes}, cast<MemRefType>(buffer.getType()).getElementType());
  Value end; // behind what the last lane that counts reads
  if (point.mask) {
    Value used = point.mask.getDefiningOp<vector::CreateMaskOp>().getOperand(0);
    used = arith::MinSIOp::create(b, loc, used, constantIndex(b, loc, point.lanes));
    end = arith::SubIOp::create(b, loc, multiplyAdd(b, loc, Value(), used, b.getIndexAttr(step)),
                                constantIndex(b, loc, step - 1));
  }
  auto load = [&](int64_t begin) -> Value {
    Value index = arith::AddIOp::create(b, loc, start, constantIndex(b, loc, begin));
    if (!point.mask)
      return vector::LoadOp::create(b, loc, type, buffer, index);
    Value left = arith::SubIOp::create(b, loc, end, constantIndex(b, loc, begin));
    Value mask = vector::CreateMaskOp::create(b, loc, point.mask.getType(), left);
    return vector::MaskedLoadOp::create(b, loc, type, buffer, index, mask, splatZero(b, loc, type));
  };
  Value result = load(0);
  for (int64_t n = 1; n != step; ++n) {
    SmallVector<int64_t> from; // lanes of what there is, and of load n
    for (int64_t lane = 0; lane <= last; ++lane) {
      int64_t place = lane * step, owner = std::min(place / last, step - 1);
      from.push_back(owner == n ? point.lanes + place - n * last : n > 1 ? lane : std::min(place, last));
    }
    result = vector::ShuffleOp::create(b, loc, result, load(n * last), from);
  }
  return result;
}

Value BodyEmitter::loadOperand(const Point &point, OpOperand &operand) {
  OpBuilder &b = point.b;
  Location loc = op.getLoc();
  auto type = dyn_cast<MemRefType>(operand.get().getType());
  if (!type)
    return operand.get();
  AffineMap map = op.getMatchingIndexingMap(&operand);
  Access access = accesses[operand.getOperandNumber()];
  if (point.lanes == 1 || access == Access::Same)
    return memref::LoadOp::create(b, loc, operand.get(), applyMap(point, loc, map));
  auto vectorType = VectorType::get({point.lanes}, type.getElementType());
  if (access == Access::Contiguous) {
    SmallVector<Value> indices = applyMap(point, loc, map);
    if (!point.mask)
      return vector::LoadOp::create(b, loc, vectorType, operand.get(), indices);
    return vector::MaskedLoadOp::create(b, loc, vectorType, operand.get(), indices, point.mask,
                                        splatZero(b, loc, vectorType));
  }
  OpFoldResult offset;
  SmallVector<OpFoldResult> strides;
  Value flat = flatten(b, loc, operand.get(), offset, strides);
  auto [start, lanes] = stridedLanes(point, loc, map, loop, offset, strides);
  if (std::optional<int64_t> step = smallStep(operand.getOperandNumber()))
    return loadSteps(point, loc, flat, start, *step);
  return vector::GatherOp::create(b, loc, vectorType, flat, ValueRange{start}, lanes,
                                  point.mask ? point.mask : allLanes(b, loc, point.lanes),
                                  splatZero(b, loc, vectorType));
}

Value BodyEmitter::loadOutput(const Point &point, unsigned number) {
  if (Value start = starts.lookup(number))
    return widen(point, op.getLoc(), start, Lanes::Same);
  return loadOperand(point, *op.getDpsInitOperand(number));
}

void BodyEmitter::storeOutput(const Point &point, unsigned number, Value value) {
  OpBuilder &b = point.b;
  Location loc = op.getLoc();
  OpOperand &operand = *op.getDpsInitOperand(number);
  AffineMap map = op.getMatchingIndexingMap(&operand);
  Access access = accesses[operand.getOperandNumber()];
  if (point.lanes == 1 || access == Access::Same) {
    memref::StoreOp::create(b, loc, value, operand.get(), applyMap(point, loc, map));
    return;
  }
  value = widen(point, loc, value, Lanes::Same);
  if (access == Access::Contiguous) {
    SmallVector<Value> indices = applyMap(point, loc, map);
    if (point.mask)
      vector::MaskedStoreOp::create(b, loc, operand.get(), indices, point.mask, value);
    else if (llvm::is_contained(streamed, number))
      vector::StoreOp::create(b, loc, value, operand.get(), indices, /*nontemporal=*/true,
                              llvm::MaybeAlign(std::min<int64_t>(
                                  point.lanes * getElementTypeOrSelf(value).getIntOrFloatBitWidth() / 8, 64)));
    else
      vector::StoreOp::create(b, loc, value, operand.get(), indices);
    return;
  }
  OpFoldResult offset;
  SmallVector<OpFoldResult> strides;
  Value flat = flatten(b, loc, operand.get(), offset, strides);
  auto [start, lanes] = stridedLanes(point, loc, map, loop, offset, strides);
  vector::ScatterOp::create(b, loc, Type(), flat, ValueRange{start}, lanes,
                            point.mask ? point.mask : allLanes(b, loc, point.lanes), value);
}

Value BodyEmitter::loadBody(const Point &point, memref::LoadOp load, IRMapping &map) {
  OpBuilder &b = point.b;
  Location loc = load.getLoc();
  auto type = load.getMemRefType();
  auto indices = llvm::map_to_vector(load.getIndices(), [&](Value v) { return map.lookupOrDefault(v); });
  if (point.lanes == 1 || lanesOf(load) == Lanes::Same)
    return memref::LoadOp::create(b, loc, load.getMemRef(), indices);
  auto vectorType = VectorType::get({point.lanes}, type.getElementType());
  auto isSame = [&](Value v) { return lanesOf(v) == Lanes::Same; };
  if (hasUnitStride(load.getMemRef()) && lanesOf(load.getIndices().back()) == Lanes::Consecutive &&
      llvm::all_of(load.getIndices().drop_back(), isSame)) {
    if (!point.mask)
      return vector::LoadOp::create(b, loc, vectorType, load.getMemRef(), indices);
    return vector::MaskedLoadOp::create(b, loc, vectorType, load.getMemRef(), indices, point.mask,
                                        splatZero(b, loc, vectorType));
  }
  OpFoldResult offset;
  SmallVector<OpFoldResult> strides;
  Value flat = flatten(b, loc, load.getMemRef(), offset, strides);
  Value start = getValueOrCreateConstantIndexOp(b, loc, offset), lanes;
  for (auto [index, original, stride] : llvm::zip(indices, load.getIndices(), strides)) {
    if (isSame(original)) {
      start = multiplyAdd(b, loc, start, index, stride);
      continue;
    }
    Value wide = widen(point, loc, index, lanesOf(original));
    if (getConstantIntValue(stride) != 1)
      wide = arith::MulIOp::create(b, loc, wide,
                                   splat(b, loc, point.lanes, getValueOrCreateConstantIndexOp(b, loc, stride)));
    lanes = lanes ? arith::AddIOp::create(b, loc, lanes, wide).getResult() : wide;
  }
  return vector::GatherOp::create(b, loc, vectorType, flat, ValueRange{start}, lanes,
                                  point.mask ? point.mask : allLanes(b, loc, point.lanes),
                                  splatZero(b, loc, vectorType));
}

Value BodyEmitter::emitOp(const Point &point, Operation &inner, IRMapping &map) {
  OpBuilder &b = point.b;
  if (auto index = dyn_cast<linalg::IndexOp>(inner))
    return point.indices[index.getDim()];
  if (auto load = dyn_cast<memref::LoadOp>(inner))
    return loadBody(point, load, map);
  if (point.lanes == 1 || lanesOf(inner.getResult(0)) != Lanes::Varying)
    return b.clone(inner, map)->getResult(0);
  SmallVector<Value> operands;
  for (Value operand : inner.getOperands())
    operands.push_back(widen(point, inner.getLoc(), map.lookupOrDefault(operand), lanesOf(operand)));
  OperationState state(inner.getLoc(), inner.getName());
  state.addOperands(operands);
  state.addTypes(VectorType::get({point.lanes}, inner.getResult(0).getType()));
  state.addAttributes(inner.getDiscardableAttrDictionary().getValue());
  state.propertiesAttr = inner.getPropertiesAsAttribute();
  return b.create(state)->getResult(0);
}

bool BodyEmitter::dependsOn(Value value, ArrayRef<unsigned> loops) const {
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    if (argument.getOwner() != op.getBody())
      return false;
    OpOperand &operand = op->getOpOperand(argument.getArgNumber());
    if (op.isDpsInit(&operand))
      return true;
    AffineMap map = op.getMatchingIndexingMap(&operand);
    return llvm::any_of(loops, [&](unsigned l) { return map.isFunctionOfDim(l); });
  }
  Operation *def = value.getDefiningOp();
  if (def->getBlock() != op.getBody())
    return false;
  if (auto index = dyn_cast<linalg::IndexOp>(def))
    return llvm::is_contained(loops, index.getDim());
  if (def->getNumRegions()) // which may use anything
    return true;
  return llvm::any_of(def->getOperands(), [&](Value v) { return dependsOn(v, loops); });
}

void BodyEmitter::emitInvariants(const Point &point, ArrayRef<unsigned> inner) {
  invariants.clear();
  Block *body = op.getBody();
  for (OpOperand *operand : op.getDpsInputOperands()) {
    Value argument = body->getArgument(operand->getOperandNumber());
    if (lanesOf(argument) == Lanes::Same && !argument.use_empty() && !dependsOn(argument, inner))
      invariants.map(argument, loadOperand(point, *operand));
  }
  for (Operation &each : body->without_terminator())
    if (each.getNumResults() == 1 && !each.getNumRegions() && lanesOf(each.getResult(0)) == Lanes::Same &&
        !dependsOn(each.getResult(0), inner))
      invariants.map(each.getResult(0), emitOp(point, each, invariants));
}

SmallVector<Value> BodyEmitter::emit(const Point &point) {
  IRMapping map = invariants;
  Block *body = op.getBody();
  for (OpOperand *operand : op.getDpsInputOperands()) {
    Value argument = body->getArgument(operand->getOperandNumber());
    if (!argument.use_empty() && !map.contains(argument))
      map.map(argument, loadOperand(point, *operand));
  }
  for (auto [i, argument] : llvm::enumerate(op.getRegionOutputArgs()))
    if (!argument.use_empty())
      map.map(argument, point.accumulators.empty() ? loadOutput(point, i) : point.accumulators[i]);
  for (Operation &inner : body->without_terminator()) {
    if (inner.getNumResults() == 1 && map.contains(inner.getResult(0)))
      continue;
    if (inner.getNumResults() != 1 || inner.getNumRegions()) { // scalar only
      point.b.clone(inner, map)->walk([&](linalg::IndexOp index) {
        index.replaceAllUsesWith(point.indices[index.getDim()]);
        index.erase();
      });
      continue;
    }
    map.map(inner.getResult(0), emitOp(point, inner, map));
  }
  SmallVector<Value> results;
  for (Value value : body->getTerminator()->getOperands())
    results.push_back(widen(point, op.getLoc(), map.lookupOrDefault(value), lanesOf(value)));
  return results;
}
