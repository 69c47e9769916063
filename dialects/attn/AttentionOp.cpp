#include "dialects/attn/AttnOps.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/IR/AffineMap.h"
#include "mlir/IR/OpImplementation.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace attn;

#define GET_OP_CLASSES
#include "dialects/attn/AttnOps.cpp.inc"

//===----------------------------------------------------------------------===//
// AttentionOp
//===----------------------------------------------------------------------===//

static constexpr unsigned kDims = 6;
static constexpr StringLiteral kDimNames = "bhijde";

int64_t AttentionOp::getDivisor(AffineExpr expr) {
  if (auto binary = dyn_cast<AffineBinaryOpExpr>(expr))
    if (binary.getKind() == AffineExprKind::FloorDiv)
      return cast<AffineConstantExpr>(binary.getRHS()).getValue();
  return 1;
}

std::optional<unsigned> AttentionOp::getNamedDim(AffineExpr expr) {
  if (auto binary = dyn_cast<AffineBinaryOpExpr>(expr))
    expr = binary.getLHS();
  if (auto dim = dyn_cast<AffineDimExpr>(expr))
    return dim.getPosition();
  return std::nullopt;
}

static bool mapNames(AffineMap map, unsigned dim) {
  return llvm::any_of(map.getResults(), [&](AffineExpr e) { return AttentionOp::getNamedDim(e) == dim; });
}

bool AttentionOp::isNamed(unsigned dim) {
  return llvm::any_of(getIndexingMaps().getAsValueRange<AffineMapAttr>(),
                      [&](AffineMap map) { return mapNames(map, dim); });
}

SmallVector<OpFoldResult> AttentionOp::getIterationSizes(OpBuilder &b, Location loc) {
  SmallVector<OpFoldResult> sizes(kDims);
  // A static size wins over a dynamic one, and a plain dimension over h floordiv c.
  auto offer = [&](Value operand, ShapedType type, AffineMap map, bool dynamic, bool divided) {
    for (auto [n, expr] : llvm::enumerate(map.getResults())) {
      std::optional<unsigned> dim = getNamedDim(expr);
      int64_t divisor = getDivisor(expr);
      if (!dim || sizes[*dim] || type.isDynamicDim(n) != dynamic || (divisor > 1) != divided)
        continue;
      OpFoldResult size = b.getIndexAttr(type.getDimSize(n) * divisor);
      if (dynamic) {
        size = tensor::getMixedSize(b, loc, operand, n);
        if (divided)
          size = affine::makeComposedFoldedAffineApply(b, loc, b.getAffineDimExpr(0) * divisor, {size});
      }
      sizes[*dim] = size;
    }
  };
  for (bool dynamic : {false, true})
    for (bool divided : {false, true}) {
      for (auto [n, operand] : llvm::enumerate(getMappedOperands()))
        offer(operand, cast<ShapedType>(operand.getType()), getMap(n), dynamic, divided);
      if (!dynamic)
        offer(Value(), cast<ShapedType>(getResult().getType()), getResultMap(), dynamic, divided);
    }
  for (OpFoldResult &size : sizes)
    if (!size)
      size = b.getIndexAttr(1);
  return sizes;
}

LogicalResult AttentionOp::reifyResultShapes(OpBuilder &b, ReifiedRankedShapedTypeDims &shapes) {
  auto type = cast<RankedTensorType>(getResult().getType());
  SmallVector<OpFoldResult> sizes = getIterationSizes(b, getLoc()), shape;
  for (auto [n, expr] : llvm::enumerate(getResultMap().getResults())) {
    std::optional<unsigned> dim = getNamedDim(expr);
    OpFoldResult size = dim ? sizes[*dim] : b.getIndexAttr(1);
    // The interface wants an attribute exactly where the type is static.
    if (!type.isDynamicDim(n))
      size = b.getIndexAttr(type.getDimSize(n));
    else
      size = getValueOrCreateConstantIndexOp(b, getLoc(), size);
    shape.push_back(size);
  }
  shapes.push_back(std::move(shape));
  return success();
}

void AttentionOp::build(OpBuilder &b, OperationState &state, Type result, Value query, Value key, Value value,
                        ValueRange captures, ArrayRef<AffineMap> maps, MaskedRows maskedRows, AttentionBody score,
                        AttentionBody weight) {
  state.addTypes(result);
  state.addOperands({query, key, value});
  state.addOperands(captures);
  state.addAttribute(getIndexingMapsAttrName(state.name), b.getAffineMapArrayAttr(maps));
  state.addAttribute(getMaskedRowsAttrName(state.name), MaskedRowsAttr::get(b.getContext(), maskedRows));
  SmallVector<Type> types{b.getF32Type()};
  for (Value capture : captures)
    types.push_back(getElementTypeOrSelf(capture));
  SmallVector<Location> locs(types.size(), state.location);
  for (AttentionBody body : {score, weight}) {
    Region *region = state.addRegion();
    if (!body)
      continue;
    OpBuilder::InsertionGuard guard(b);
    Block *block = b.createBlock(region, region->end(), types, locs);
    Value yielded = body(b, state.location, block->getArgument(0), block->getArguments().drop_front());
    YieldOp::create(b, state.location, yielded);
  }
}

template <typename T> static std::string text(T mapOrExpr) {
  std::string s;
  llvm::raw_string_ostream(s) << mapOrExpr;
  return s;
}

static std::string listDims(ArrayRef<unsigned> dims) {
  std::string text;
  for (unsigned dim : dims)
    text += (text.empty() ? "" : ", ") + std::string(1, kDimNames[dim]);
  return text;
}

// C3
static LogicalResult verifyMapResults(AttentionOp op, AffineMap map, StringRef who, bool isResult) {
  unsigned seen = 0;
  for (AffineExpr expr : map.getResults()) {
    if (auto constant = dyn_cast<AffineConstantExpr>(expr)) {
      if (constant.getValue() == 0)
        continue;
    } else if (auto binary = dyn_cast<AffineBinaryOpExpr>(expr)) {
      auto dim = dyn_cast<AffineDimExpr>(binary.getLHS());
      auto divisor = dyn_cast<AffineConstantExpr>(binary.getRHS());
      if (binary.getKind() == AffineExprKind::FloorDiv && dim && dim.getPosition() == AttentionOp::H && divisor &&
          divisor.getValue() > 1) {
        if (isResult)
          return op.emitOpError("expects no floordiv in the map of the result, got ") << text(map);
        if (seen & (1u << AttentionOp::H))
          return op.emitOpError("expects the map of ") << who << " to name h at most once, got " << text(map);
        seen |= 1u << AttentionOp::H;
        continue;
      }
    } else if (auto dim = dyn_cast<AffineDimExpr>(expr)) {
      if (seen & (1u << dim.getPosition()))
        return op.emitOpError("expects the map of ")
               << who << " to name " << kDimNames[dim.getPosition()] << " at most once, got " << text(map);
      seen |= 1u << dim.getPosition();
      continue;
    }
    return op.emitOpError("expects each result of the map of ")
           << who << " to be a dimension, h floordiv c with c > 1 or 0, got " << text(expr) << " in " << text(map);
  }
  return success();
}

// C4
static LogicalResult verifyNames(AttentionOp op, AffineMap map, StringRef who, ArrayRef<unsigned> must,
                                 ArrayRef<unsigned> mustNot) {
  if (llvm::all_of(must, [&](unsigned dim) { return mapNames(map, dim); }) &&
      llvm::none_of(mustNot, [&](unsigned dim) { return mapNames(map, dim); }))
    return success();
  InFlightDiagnostic diag = op.emitOpError("expects the map of ") << who << " to name ";
  if (must.empty())
    diag << "none of " << listDims(mustNot);
  else
    diag << listDims(must) << " and none of " << listDims(mustNot);
  return diag << ", got " << text(map);
}

LogicalResult AttentionOp::verify() {
  SmallVector<Value> mapped(getMappedOperands());
  mapped.push_back(getResult());
  SmallVector<std::string> names{"query", "key", "value"};
  for (size_t n = 0; n != getCaptures().size(); ++n)
    names.push_back("capture " + std::to_string(n));
  names.push_back("result");

  // C1
  Type element = getElementTypeOrSelf(getQuery());
  for (size_t n : {size_t(0), size_t(1), size_t(2), names.size() - 1}) {
    Type other = getElementTypeOrSelf(mapped[n]);
    if (!isa<FloatType>(other) || other != element)
      return emitOpError("expects query, key, value and result to have one float element type, got ")
             << element << " for query and " << other << " for " << names[n];
  }

  // C2
  if (getIndexingMaps().size() != mapped.size())
    return emitOpError("expects 4 + ") << getCaptures().size() << " maps (query, key, value, captures, result), got "
                                       << getIndexingMaps().size();
  for (auto [n, value] : llvm::enumerate(mapped)) {
    AffineMap map = getMap(n);
    int64_t rank = cast<RankedTensorType>(value.getType()).getRank();
    if (map.getNumDims() != kDims || map.getNumSymbols() != 0 || map.getNumResults() != rank)
      return emitOpError("expects the map of ")
             << names[n] << " to have 6 dimensions, no symbols and " << rank << " results, got " << text(map);
  }

  for (size_t n = 0; n != mapped.size(); ++n)
    if (failed(verifyMapResults(*this, getMap(n), names[n], n + 1 == mapped.size())))
      return failure();

  if (failed(verifyNames(*this, getQueryMap(), "query", {I, D}, {J, E})) ||
      failed(verifyNames(*this, getKeyMap(), "key", {J, D}, {I, E})) ||
      failed(verifyNames(*this, getValueMap(), "value", {J, E}, {I, D})) ||
      failed(verifyNames(*this, getResultMap(), "result", {I, E}, {J, D})))
    return failure();
  for (size_t n = 0; n != getCaptures().size(); ++n)
    if (failed(verifyNames(*this, getCaptureMap(n), names[3 + n], {}, {D, E})))
      return failure();
  for (unsigned dim : {unsigned(B), unsigned(H)}) {
    bool operandNames = false;
    for (size_t n = 0; n + 1 != mapped.size(); ++n)
      operandNames |= mapNames(getMap(n), dim);
    if (operandNames != mapNames(getResultMap(), dim))
      return emitOpError("expects the result to name ")
             << kDimNames[dim] << " exactly when an operand does, got " << (operandNames ? "an operand" : "no operand")
             << " that names it and the result's map " << text(getResultMap());
  }

  // C5
  int64_t sizes[kDims];
  size_t from[kDims];
  std::fill(std::begin(sizes), std::end(sizes), ShapedType::kDynamic);
  for (auto [n, value] : llvm::enumerate(mapped)) {
    auto type = cast<RankedTensorType>(value.getType());
    for (auto [position, expr] : llvm::enumerate(getMap(n).getResults())) {
      int64_t size = type.getDimSize(position);
      if (ShapedType::isDynamic(size))
        continue;
      std::optional<unsigned> dim = getNamedDim(expr);
      if (!dim) {
        if (size != 1)
          return emitOpError("expects size 1 where the map of ")
                 << names[n] << " is the constant 0, got " << size << " in dimension " << position;
        continue;
      }
      size *= getDivisor(expr);
      if (ShapedType::isDynamic(sizes[*dim])) {
        sizes[*dim] = size;
        from[*dim] = n;
      } else if (sizes[*dim] != size) {
        return emitOpError("expects one size of ") << kDimNames[*dim] << ", got " << sizes[*dim] << " by "
                                                   << names[from[*dim]] << " and " << size << " by " << names[n];
      }
    }
  }
  return success();
}

// C6
LogicalResult AttentionOp::verifyRegions() {
  SmallVector<Type> expected{Float32Type::get(getContext())};
  for (Value capture : getCaptures())
    expected.push_back(getElementTypeOrSelf(capture));
  for (auto [region, name] : {std::pair(&getScore(), "score"), std::pair(&getWeight(), "weight")}) {
    if (region->empty() && region == &getWeight())
      continue;
    if (!region->hasOneBlock())
      return emitOpError("expects one block in the ") << name << " region, got " << region->getBlocks().size();
    Block &block = region->front();
    if (block.getArgumentTypes() != TypeRange(expected))
      return emitOpError("expects the ") << name << " region to take " << TypeRange(expected) << ", got "
                                         << TypeRange(block.getArgumentTypes());
    auto yield = block.empty() ? YieldOp() : dyn_cast<YieldOp>(block.back());
    if (!yield || !yield.getValue().getType().isF32())
      return emitOpError("expects the ") << name << " region to end in an attn.yield of f32, got "
                                         << (yield ? text(yield.getValue().getType()) : "no attn.yield");
  }
  return success();
}
