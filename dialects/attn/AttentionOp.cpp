#include "dialects/attn/AttnOps.h"
#include "dialects/attn/RecurrentLayer.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/AffineMap.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace attn;

static ParseResult parseInputs(OpAsmParser &parser, OpAsmParser::UnresolvedOperand &query,
                               std::optional<OpAsmParser::UnresolvedOperand> &key,
                               OpAsmParser::UnresolvedOperand &value,
                               std::optional<OpAsmParser::UnresolvedOperand> &alignment, Type &queryType, Type &keyType,
                               Type &valueType, Type &alignmentType);
static void printInputs(OpAsmPrinter &printer, Operation *op, Value query, Value key, Value value, Value alignment,
                        Type queryType, Type keyType, Type valueType, Type alignmentType);

#define GET_OP_CLASSES
#include "dialects/attn/AttnOps.cpp.inc"

//===----------------------------------------------------------------------===//
// AttentionOp
//===----------------------------------------------------------------------===//

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

bool AttentionOp::names(AffineMap map, unsigned dim) {
  return llvm::any_of(map.getResults(), [&](AffineExpr e) { return getNamedDim(e) == dim; });
}

bool AttentionOp::isNamed(unsigned dim) {
  return llvm::any_of(getIndexingMaps().getAsValueRange<AffineMapAttr>(),
                      [&](AffineMap map) { return names(map, dim); });
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
      if (divisor > 1 && *dim != H)
        continue; // blocks of queries: the last one may be short
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
  SmallVector<OpFoldResult> sizes = getIterationSizes(b, getLoc());
  for (auto [number, result] : llvm::enumerate(getResults())) {
    auto type = cast<RankedTensorType>(result.getType());
    AffineMap map = getMap(getNumOperands() + number);
    SmallVector<OpFoldResult> shape;
    // The interface wants an attribute exactly where the type is static. (A
    // top-k result has one dimension more than its map, and that is static.)
    for (int64_t n = 0; n != type.getRank(); ++n) {
      if (!type.isDynamicDim(n)) {
        shape.push_back(b.getIndexAttr(type.getDimSize(n)));
        continue;
      }
      std::optional<unsigned> dim = getNamedDim(map.getResult(n));
      OpFoldResult size = dim ? sizes[*dim] : b.getIndexAttr(1);
      shape.push_back(getValueOrCreateConstantIndexOp(b, getLoc(), size));
    }
    shapes.push_back(std::move(shape));
  }
  return success();
}

FloatType AttentionOp::getComputeType() {
  if (getElementTypeOrSelf(getQuery()).isF64())
    return Float64Type::get(getContext());
  return Float32Type::get(getContext());
}

SmallVector<MaskTerm> AttentionOp::getMaskTerms() {
  SmallVector<MaskTerm> terms;
  unsigned next = 0;
  for (Attribute term : getMask()) {
    if (takesMaskOperand(term)) {
      terms.push_back({term, getMaskOperands()[next], getMaskMap(next)});
      ++next;
    } else {
      terms.push_back({term, Value(), AffineMap()});
    }
  }
  return terms;
}

bool AttentionOp::isPlain() {
  return getKind() == ScoreKind::dot && getNormalizer() == Normalizer::softmax && getMask().empty() &&
         getExtraResults().empty() && getMasked().empty() &&
         (!getSoftmaxType() || *getSoftmaxType() == getComputeType());
}

AttentionParts AttentionOp::getParts() {
  AttentionParts parts;
  parts.kind = getKind();
  parts.normalizer = getNormalizer();
  parts.maskedRows = getMaskedRows();
  parts.query = getQuery();
  parts.key = getKey();
  parts.value = getValue();
  parts.alignment = getAlignment();
  parts.captures.assign(getCaptures().begin(), getCaptures().end());
  parts.maskOperands.assign(getMaskOperands().begin(), getMaskOperands().end());
  parts.mask.assign(getMask().begin(), getMask().end());
  parts.extras.assign(getExtras().begin(), getExtras().end());
  parts.softmaxType = getSoftmaxType().value_or(Type());
  parts.axes = getAxesAttr();
  parts.maps.assign(getIndexingMaps().getAsValueRange<AffineMapAttr>().begin(),
                    getIndexingMaps().getAsValueRange<AffineMapAttr>().end());
  parts.types.assign(getResultTypes().begin(), getResultTypes().end());
  return parts;
}

void AttentionOp::build(OpBuilder &b, OperationState &state, const AttentionParts &parts, AttentionBody score,
                        AttentionBody weight) {
  state.addTypes(parts.types);
  SmallVector<int32_t> segments;
  auto add = [&](ValueRange values) {
    state.addOperands(values);
    segments.push_back(values.size());
  };
  auto addOptional = [&](Value value) { add(value ? ValueRange(value) : ValueRange()); };
  add(parts.query);
  addOptional(parts.key);
  add(parts.value);
  addOptional(parts.alignment);
  add(parts.captures);
  add(parts.maskOperands);
  MLIRContext *context = b.getContext();
  Properties &properties = state.getOrAddProperties<Properties>();
  llvm::copy(segments, properties.operandSegmentSizes.begin());
  properties.setKind(ScoreKindAttr::get(context, parts.kind));
  properties.setNormalizer(NormalizerAttr::get(context, parts.normalizer));
  properties.setMaskedRows(MaskedRowsAttr::get(context, parts.maskedRows));
  properties.setMask(b.getArrayAttr(parts.mask));
  properties.setExtras(b.getArrayAttr(parts.extras));
  if (parts.softmaxType)
    properties.setSoftmaxType(TypeAttr::get(parts.softmaxType));
  properties.setAxes(parts.axes);
  properties.setIndexingMaps(b.getAffineMapArrayAttr(parts.maps));

  Type compute = b.getF32Type();
  if (getElementTypeOrSelf(parts.query).isF64())
    compute = b.getF64Type();
  SmallVector<Type> types{compute};
  for (Value capture : parts.captures)
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
  state.addRegion(); // activation
  state.addRegion(); // masked
}

void AttentionOp::build(OpBuilder &b, OperationState &state, Type result, Value query, Value key, Value value,
                        ValueRange captures, ArrayRef<AffineMap> maps, MaskedRows maskedRows, AttentionBody score,
                        AttentionBody weight) {
  AttentionParts parts;
  parts.maskedRows = maskedRows;
  parts.query = query;
  parts.key = key;
  parts.value = value;
  parts.captures.assign(captures.begin(), captures.end());
  parts.maps.assign(maps.begin(), maps.end());
  parts.types.push_back(result);
  build(b, state, parts, score, weight);
}

//===----------------------------------------------------------------------===//
// Textual form
//===----------------------------------------------------------------------===//

// ins( query, key, value, alignment : types ), where the number of operands
// says which of them there are: 2 (given), 3 (dot) or 4 (additive).

using Unresolved = OpAsmParser::UnresolvedOperand;

static ParseResult parseInputs(OpAsmParser &parser, Unresolved &query, std::optional<Unresolved> &key,
                               Unresolved &value, std::optional<Unresolved> &alignment, Type &queryType, Type &keyType,
                               Type &valueType, Type &alignmentType) {
  SmallVector<Unresolved> operands;
  SmallVector<Type> types;
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseOperandList(operands) || parser.parseColonTypeList(types))
    return failure();
  if (operands.size() < 2 || operands.size() > 4 || operands.size() != types.size())
    return parser.emitError(loc) << "expects 2 to 4 operands and as many types, got " << operands.size() << " and "
                                 << types.size();
  bool hasKey = operands.size() > 2;
  query = operands[0];
  queryType = types[0];
  if (hasKey) {
    key = operands[1];
    keyType = types[1];
  }
  value = operands[1 + hasKey];
  valueType = types[1 + hasKey];
  if (operands.size() == 4) {
    alignment = operands[3];
    alignmentType = types[3];
  }
  return success();
}

static void printInputs(OpAsmPrinter &printer, Operation *, Value query, Value key, Value value, Value alignment, Type,
                        Type, Type, Type) {
  SmallVector<Value> operands{query};
  if (key)
    operands.push_back(key);
  operands.push_back(value);
  if (alignment)
    operands.push_back(alignment);
  printer << operands << " : " << TypeRange(ValueRange(operands));
}
