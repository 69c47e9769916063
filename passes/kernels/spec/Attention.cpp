#include "passes/kernels/spec/Attention.h"
#include "passes/kernels/spec/Regions.h"
#include "passes/kernels/spec/Storage.h"

#include "dialects/attn/LoopOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/Matchers.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/xxhash.h"

using namespace mlir;

namespace attn {

using Dim = AttentionOp::Dim;

//===----------------------------------------------------------------------===//
// Buffers
//===----------------------------------------------------------------------===//

/// Whether the buffer of `value` is its own: what a linalg op makes, and who
/// reads it takes slices or sizes.
static bool isOwnBuffer(Value value) {
  auto onlySliced = [](Value value) {
    return llvm::all_of(value.getUsers(), llvm::IsaPred<tensor::ExtractSliceOp, tensor::DimOp>);
  };
  if (!onlySliced(value))
    return false;
  while (value.getDefiningOp<tensor::ExpandShapeOp>() || value.getDefiningOp<tensor::CastOp>()) {
    value = value.getDefiningOp()->getOperand(0);
    if (!value.hasOneUse())
      return false;
  }
  auto made = value.getDefiningOp<linalg::LinalgOp>();
  if (!made || made.getNumDpsInits() != 1)
    return false;
  Value init = made.getDpsInits()[0];
  if (auto fill = init.getDefiningOp<linalg::FillOp>())
    init = fill.getOutputs()[0];
  return init.getDefiningOp<tensor::EmptyOp>() != nullptr;
}

/// The layout of a slice of what has a buffer of its own, or null.
static MemRefType getSliceType(Value value) {
  if (auto expand = value.getDefiningOp<tensor::ExpandShapeOp>()) {
    MemRefType source = getSliceType(expand.getSrc());
    if (!source)
      return {};
    FailureOr<MemRefType> type = memref::ExpandShapeOp::computeExpandedType(source, expand.getResultType().getShape(),
                                                                            expand.getReassociationIndices());
    return succeeded(type) ? *type : MemRefType();
  }
  auto slice = value.getDefiningOp<tensor::ExtractSliceOp>();
  if (!slice || !isOwnBuffer(slice.getSource()))
    return {};
  RankedTensorType source = slice.getSourceType();
  auto dense = MemRefType::get(source.getShape(), source.getElementType());
  MemRefType type = memref::SubViewOp::inferRankReducedResultType(
      slice.getType().getShape(), dense, slice.getMixedOffsets(), slice.getMixedSizes(), slice.getMixedStrides());
  auto [strides, offset] = type.getStridesAndOffset();
  return !strides.empty() && strides.back() == 1 ? type : MemRefType();
}

/// The dimension in which `value` will be the front of a buffer with more room:
/// a state of the entry, or what a loop gathers.
static std::optional<int64_t> getFrontDim(Value value) {
  if (auto append = value.getDefiningOp<KvAppendOp>())
    return append.getState() ? std::optional<int64_t>(append.getDim()) : std::nullopt;
  if (auto cast = value.getDefiningOp<tensor::CastOp>())
    value = cast.getSource();
  auto slice = value.getDefiningOp<tensor::ExtractSliceOp>();
  if (!slice || !slice.hasUnitStride() || slice.getSourceType().getRank() != slice.getType().getRank() ||
      !llvm::all_of(slice.getMixedOffsets(), [](OpFoldResult offset) { return isConstantIntValue(offset, 0); }))
    return std::nullopt;
  Value buffer = slice.getSource();
  while (auto insert = buffer.getDefiningOp<tensor::InsertSliceOp>())
    buffer = insert.getDest();
  auto grow = buffer.getDefiningOp<GrowOp>();
  return grow ? std::optional<int64_t>(grow.getDim()) : std::nullopt;
}

MemRefType getBufferType(Value operand) {
  auto type = cast<RankedTensorType>(operand.getType());
  if (std::optional<int64_t> dim = getFrontDim(operand))
    return getFrontType(type, *dim);
  MemRefType slice = getSliceType(operand);
  return slice ? slice : bufferOf(operand);
}

//===----------------------------------------------------------------------===//
// AttentionSpec
//===----------------------------------------------------------------------===//

static Block *blockOf(Region &region) {
  if (region.empty())
    return nullptr;
  Block &block = region.front();
  return block.getTerminator()->getOperand(0) == block.getArgument(0) ? nullptr : &block;
}

AttentionSpec AttentionSpec::get(AttentionOp op, TargetAttr target, bool narrow, ValueRange operands) {
  AttentionSpec spec;
  auto addType = [&](Value value) { spec.types.push_back(getBufferType(value)); };
  llvm::for_each(operands, addType);
  llvm::for_each(op->getResults(), addType);
  for (unsigned n = 0; n < op.getIndexingMaps().size(); ++n)
    spec.maps.push_back(op.getMap(n));
  spec.kind = op.getKind();
  spec.normalizer = op.getNormalizer();
  spec.maskedRows = op.getMaskedRows();
  if (op.getSoftmaxType() && !op.getSoftmaxType()->isF32())
    spec.softmaxType = *op.getSoftmaxType();
  spec.keyOperand = 1;
  spec.value = op.getKey() ? 2 : 1;
  spec.alignment = 3;
  // Captures, then mask operands, end the list of operands.
  size_t firstMask = op.getNumOperands() - op.getMaskOperands().size();
  spec.numCaptures = op.getCaptures().size();
  spec.firstCapture = firstMask - spec.numCaptures;
  spec.result = op.getNumOperands();
  for (unsigned n = 0; n < op.getExtraResults().size(); ++n) {
    if (op.getExtra(n).getReduction() != Reduction::none)
      spec.unsupported = "no kernel for reductions of the weights";
    spec.extras.push_back({op.getExtra(n).getSource(), spec.result + 1 + n});
  }
  spec.score = &op.getScore().front();
  spec.weight = blockOf(op.getWeight());
  spec.activation = blockOf(op.getActivation());
  spec.masked = blockOf(op.getMasked());
  size_t operand = firstMask;
  for (Attribute term : op.getMask()) {
    int64_t position = takesMaskOperand(term) ? static_cast<int64_t>(operand++) : -1;
    if (isa<DenseMaskAttr>(term))
      spec.denseMasks.push_back(position);
    else if (auto blocks = dyn_cast<BlocksAttr>(term))
      spec.blockLists.push_back({blocks.getRows(), blocks.getColumns(), static_cast<size_t>(position)});
    else
      for (const KeyBound &bound : getKeyBounds(term))
        spec.limits.push_back({bound, getMaskJoin(term), position});
  }
  if (spec.letsHiddenTakePart() && spec.wants(ExtraSource::masked_scores))
    spec.unsupported = "no kernel for masked scores as a result where hidden keys may take part";
  spec.lanes = target.getF32Lanes();
  spec.hasSlowDivision = spec.lanes == 16 && !target.getDividesFast();
  spec.keyTile = spec.valueTile = spec.lanes == 16 ? 8 : 4;
  bool isAllBf16 = llvm::all_of(ArrayRef<size_t>{spec.query, spec.keyOperand, spec.value},
                                [&](size_t n) { return spec.types[n].getElementType().isBF16(); });
  spec.hasNarrowProducts = narrow && attn::hasNarrowProducts(target) && spec.readsPairs() && isAllBf16;
  // Scratch for values that are widened stays in L2.
  std::optional<int64_t> width = spec.getStaticSize(Dim::E);
  if (width && !spec.types[spec.value].getElementType().isF32())
    while (spec.keyBlock > 32 && spec.keyBlock * *width > 32 << 10)
      spec.keyBlock /= 2;
  if (spec.hasWeightSweep() && spec.normalizer != Normalizer::none) {
    int64_t most = target.getL2() / 4 / (spec.queryVectors * spec.lanes * sizeof(float));
    int64_t keys = llvm::alignTo(spec.getStaticSize(Dim::J).value_or(most), spec.keyTile);
    most = llvm::alignDown(most, spec.keyTile);
    spec.storedKeys = !spec.getStaticSize(Dim::J) ? most : keys <= most ? keys : 0;
  }
  return spec;
}

bool AttentionSpec::canMask() const {
  if (hasMask())
    return true;
  if (normalizer == Normalizer::softmax)
    return !getPureScale();
  return normalizer == Normalizer::sum && (maskedRows == MaskedRows::zero || maskedRows == MaskedRows::uniform);
}

bool AttentionSpec::readsPairs() const {
  if (!formula().isProduct || getStaticSize(Dim::D).value_or(1) % 2 || !blockLists.empty())
    return false;
  auto isDense = [&](size_t operand, unsigned dim) {
    AffineMap map = maps[operand];
    return map.getNumResults() && map.getResults().back() == getAffineDimExpr(dim, map.getContext());
  };
  return isDense(keyOperand, Dim::D) && isDense(value, Dim::E);
}

bool AttentionSpec::needsAllKeys() const {
  bool givesWeights = wants(ExtraSource::weights) || wants(ExtraSource::final_weights);
  bool givesTiles = llvm::any_of(extras, [](const Extra &extra) { return extra.source != ExtraSource::lse; });
  return (givesTiles && (!blockLists.empty() || !denseMasks.empty())) || wants(ExtraSource::raw_scores) ||
         wants(ExtraSource::scores) || (hasWeightSweep() && maskedRows == MaskedRows::uniform) ||
         (givesWeights && maskedRows == MaskedRows::nan);
}

bool AttentionSpec::isTanh() const {
  if (kind != ScoreKind::additive || !activation)
    return false;
  Operation *tanh = activation->getTerminator()->getOperand(0).getDefiningOp();
  return isa_and_nonnull<math::TanhOp>(tanh) && tanh->getOperand(0) == activation->getArgument(0);
}

bool AttentionSpec::isWindow() const {
  return llvm::any_of(limits, [](const KeyLimit &limit) { return !limit.isUpper && limit.movesWithQuery; });
}

std::optional<int64_t> AttentionSpec::getStaticSize(int64_t dim) const {
  bool isNamed = false;
  for (auto [operand, type] : llvm::enumerate(types))
    for (auto [n, expr] : llvm::enumerate(maps[operand].getResults())) {
      if (expr != getAffineDimExpr(dim, expr.getContext()))
        continue;
      bool endsInScale = isInBytes(operand) && n + 1 == maps[operand].getNumResults();
      if (!type.isDynamicDim(n))
        return type.getDimSize(n) - (endsInScale ? kScaleBytes : 0);
      isNamed = true;
    }
  return isNamed ? std::nullopt : std::optional<int64_t>(1);
}

std::optional<double> AttentionSpec::getPureScale() const {
  if (!formula().isProduct || normalizer != Normalizer::softmax || softmaxType || wants(ExtraSource::raw_scores) ||
      wants(ExtraSource::scores) || wants(ExtraSource::masked_scores))
    return std::nullopt;
  double scale = 1;
  Value value = score->getTerminator()->getOperand(0);
  while (value != score->getArgument(0)) {
    Operation *op = value.getDefiningOp();
    if (!isa_and_nonnull<arith::MulFOp, arith::DivFOp>(op))
      return std::nullopt;
    bool isProduct = isa<arith::MulFOp>(op);
    Value left = op->getOperand(0), right = op->getOperand(1);
    APFloat factor(0.0f);
    if (!matchPattern(right, m_ConstantFloat(&factor))) {
      std::swap(left, right);
      if (!isProduct || !matchPattern(right, m_ConstantFloat(&factor)))
        return std::nullopt;
    }
    double c = factor.convertToDouble();
    scale = isProduct ? scale * c : scale / c;
    value = left;
  }
  // 0 or inf would make NaN of what the graph keeps apart.
  float rounded = static_cast<float>(scale);
  return std::isnormal(rounded) ? std::optional<double>(scale) : std::nullopt;
}

std::string AttentionSpec::key() const {
  std::string text;
  llvm::raw_string_ostream os(text);
  for (auto [type, map] : llvm::zip_equal(types, maps))
    os << type << map << ';';
  os << stringifyScoreKind(kind) << stringifyNormalizer(normalizer) << stringifyMaskedRows(maskedRows) << ';' << lanes
     << (lanes == 16 ? "s" : "") << (hasNarrowProducts ? "p" : "") << (hasSlowDivision ? "r" : "") << ','
     << queryVectors << ',' << keyTile << ',' << valueTile << ',' << keyBlock << ';';
  if (softmaxType)
    os << softmaxType;
  if (storedKeys)
    os << "k" << storedKeys;
  for (Block *block : {score, weight, activation, masked}) {
    os << '|';
    if (block)
      os << blockSignature(*block);
  }
  os << '|' << firstCapture << ',' << numCaptures;
  for (size_t operand : denseMasks)
    os << "|d" << operand;
  for (const BlockList &list : blockLists)
    os << "|b" << list.rows << 'x' << list.columns << '@' << list.operand;
  for (const Extra &extra : extras)
    os << '|' << stringifyExtraSource(extra.source);
  for (const KeyLimit &limit : limits) {
    os << '|'
       << (limit.isPrefix() ? 'p'
           : limit.isUpper  ? 'u'
                            : 'l')
       << (limit.movesWithQuery ? 'i' : '-') << (limit.join == MaskJoin::always ? '-' : 'w') << limit.offset << '@'
       << limit.operand;
    if (limit.step != 1)
      os << '/' << limit.step;
  }
  return text;
}

std::string AttentionSpec::symbol() const {
  auto size = [&](int64_t dim) {
    std::optional<int64_t> n = getStaticSize(dim);
    return n ? std::to_string(*n) : std::string("n");
  };
  std::string text;
  llvm::raw_string_ostream(text) << types.front().getElementType();
  return llvm::formatv("attention_{3}_d{0}_e{1}_{2:x-16}", size(Dim::D), size(Dim::E), llvm::xxh3_64bits(key()), text);
}

//===----------------------------------------------------------------------===//
// canBuildAttention
//===----------------------------------------------------------------------===//

/// `rows`: queries that share a list, where the operand holds lists.
static bool checkMap(AffineMap map, std::optional<int64_t> rows, std::string *reason) {
  for (AffineExpr result : map.getResults()) {
    if (isa<AffineDimExpr>(result))
      continue;
    if (auto constant = dyn_cast<AffineConstantExpr>(result); constant && constant.getValue() == 0)
      continue;
    auto group = dyn_cast<AffineBinaryOpExpr>(result);
    auto ratio = group ? dyn_cast<AffineConstantExpr>(group.getRHS()) : nullptr;
    bool isGroup = ratio && ratio.getValue() > 0 && group.getKind() == AffineExprKind::FloorDiv;
    auto isOf = [&](unsigned dim) { return isGroup && group.getLHS() == getAffineDimExpr(dim, map.getContext()); };
    if (isOf(Dim::H) || (isOf(Dim::I) && rows == ratio.getValue()))
      continue;
    return fail(reason, "an indexing map has a result that is no dimension, group of heads or 0");
  }
  return true;
}

/// Whether what is in bytes is so in whole rows, and keys are factors of products.
static bool hasRowsOfBytes(const AttentionSpec &spec) {
  auto isRow = [&](size_t operand, unsigned dim) {
    AffineMap map = spec.maps[operand];
    return !spec.isInBytes(operand) ||
           (map.getNumResults() && map.getResults().back() == getAffineDimExpr(dim, map.getContext()));
  };
  bool hasKeys = spec.isInBytes(spec.keyOperand) && spec.formula().hasKey;
  return isRow(spec.value, Dim::E) && (!hasKeys || (spec.formula().isProduct && isRow(spec.keyOperand, Dim::D)));
}

bool canBuildAttention(const AttentionSpec &spec, std::string *reason) {
  if (!spec.unsupported.empty())
    return fail(reason, spec.unsupported);
  if (spec.types.size() != spec.maps.size() || spec.result >= spec.types.size())
    return fail(reason, "the number of maps differs from that of the operands");
  size_t lastInput = 1 + spec.formula().hasKey + spec.formula().hasAlignment;
  for (size_t n = 0; n < spec.types.size(); ++n) {
    MemRefType type = spec.types[n];
    Type element = type.getElementType();
    bool isFloat = element.isF32() || element.isBF16() || element.isF16() || spec.isInBytes(n);
    if ((n <= lastInput || n >= spec.result) && !isFloat)
      return fail(reason, "only attention on f32, f16 and bf16 has a kernel");
    if (!element.isIndex() && (!element.isIntOrFloat() || element.getIntOrFloatBitWidth() % 8))
      return fail(reason, "an operand's elements are no whole bytes");
    const BlockList *list = llvm::find_if(spec.blockLists, [&](const BlockList &l) { return l.operand == n; });
    bool isList = list != spec.blockLists.end();
    if (spec.maps[n].getNumDims() != 6 || spec.maps[n].getNumResults() + isList != type.getRank())
      return fail(reason, "a map does not fit its operand");
    if (!checkMap(spec.maps[n], isList ? std::optional(list->rows) : std::nullopt, reason))
      return false;
  }
  if ((spec.isInBytes(spec.keyOperand) || spec.isInBytes(spec.value)) && !hasRowsOfBytes(spec))
    return fail(reason, "keys or values in bytes are no rows of a product");
  if (spec.softmaxType && !spec.softmaxType.isF16() && !spec.softmaxType.isBF16())
    return fail(reason, "a softmax in f64 has no kernel");
  // Scratch of a block lies on the stack: 128 bytes for each of d and e.
  for (int64_t dim : {Dim::D, Dim::E}) {
    std::optional<int64_t> size = spec.getStaticSize(dim);
    const char *name = dim == Dim::D ? "key" : "value";
    if (!size)
      return fail(reason, "the " + Twine(name) + " width is dynamic");
    if (*size < 1 || *size > 1024)
      return fail(reason, "the " + Twine(name) + " width " + Twine(*size) + " is outside [1, 1024]");
  }
  for (int64_t dim : {Dim::B, Dim::H})
    if (spec.getStaticSize(dim) != 1 && !spec.maps[spec.result].isFunctionOfDim(dim))
      return fail(reason, "the result lacks a batch or head dimension that an operand has");
  for (Block *block : {spec.score, spec.weight, spec.activation, spec.masked})
    if (block && !canVectorizeBlock(*block, reason))
      return false;
  return true;
}

} // namespace attn
