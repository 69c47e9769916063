#include "dialects/attn/AttnOps.h"
#include "dialects/attn/DerivedGlobals.h"
#include "passes/Passes.h"
#include "passes/graph/Collect.h"
#include "passes/graph/Structured.h"
#include "passes/graph/products/QuantizedOperand.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/Transforms/WalkPatternRewriteDriver.h"

using namespace mlir;

namespace attn {
#define GEN_PASS_DEF_VIEWBYTESPASS
#include "passes/Passes.h.inc"

namespace {

/// An elementwise op that reads one tensor of bytes in the order of its result, and numbers beside it.
struct Widening {
  linalg::GenericOp op;
  OpOperand *bytes = nullptr;
  QuantizedOperand numbers;
};

std::optional<Widening> getWidening(Value value) {
  auto op = value.getDefiningOp<linalg::GenericOp>();
  if (!op || !isPointwise(op) || op.hasIndexSemantics() ||
      !op.getMatchingIndexingMap(op.getDpsInitOperand(0)).isIdentity())
    return std::nullopt;
  std::optional<QuantizedOperand> numbers =
      readQuantized(value, AffineMap::getMultiDimIdentityMap(op.getNumLoops(), op.getContext()));
  if (!numbers)
    return std::nullopt;
  for (OpOperand *input : op.getDpsInputOperands())
    if (input->get() == numbers->stored.tensor && op.getMatchingIndexingMap(input).isIdentity())
      return Widening{op, input, *numbers};
  return std::nullopt;
}

/// An op that moves elements, and where a number that goes along a dimension of its source stands in its result: an
/// index for each dimension, null where it is none of one dimension.
struct View {
  Operation *op = nullptr;
  Value source;
  SmallVector<AffineExpr> places;
};

/// Of a dimension that is a group of others, and the other way around.
void placeGroups(View &view, RankedTensorType wide, ArrayRef<ReassociationIndices> groups, bool isCollapse) {
  MLIRContext *context = wide.getContext();
  AffineExpr first = getAffineConstantExpr(0, context);
  if (isCollapse)
    view.places.assign(wide.getRank(), first);
  for (auto [n, group] : llvm::enumerate(groups)) {
    auto large = llvm::make_filter_range(group, [&](int64_t dim) { return wide.getDimSize(dim) != 1; });
    int64_t count = std::distance(large.begin(), large.end());
    if (!isCollapse)
      view.places.push_back(count == 0 ? first : count == 1 ? getAffineDimExpr(*large.begin(), context) : AffineExpr());
    else
      for (int64_t dim : large)
        view.places[dim] = count == 1 ? getAffineDimExpr(n, context) : AffineExpr();
  }
}

/// Of a dimension that is cut at the start or at the end, or padded, none.
void placeWhole(View &view, ArrayRef<int64_t> starts) {
  auto from = cast<RankedTensorType>(view.source.getType()),
       to = cast<RankedTensorType>(view.op->getResult(0).getType());
  for (auto [dim, start] : llvm::enumerate(starts)) {
    bool isWhole = start == 0 && !from.isDynamicDim(dim) && from.getDimSize(dim) == to.getDimSize(dim);
    view.places.push_back(isWhole ? getAffineDimExpr(dim, view.op->getContext()) : AffineExpr());
  }
}

std::optional<View> getView(Value value) {
  Operation *op = value.getDefiningOp();
  if (!op || !isa<RankedTensorType>(value.getType()))
    return std::nullopt;
  View view{op, op->getNumOperands() ? op->getOperand(0) : Value(), {}};
  auto type = cast<RankedTensorType>(value.getType());
  if (auto collapse = dyn_cast<tensor::CollapseShapeOp>(op)) {
    placeGroups(view, collapse.getSrcType(), collapse.getReassociationIndices(), /*isCollapse=*/true);
  } else if (auto expand = dyn_cast<tensor::ExpandShapeOp>(op)) {
    placeGroups(view, type, expand.getReassociationIndices(), /*isCollapse=*/false);
  } else if (auto slice = dyn_cast<tensor::ExtractSliceOp>(op)) {
    bool isPlain = slice.hasUnitStride() && slice.getSourceType().getRank() == type.getRank();
    if (!isPlain)
      return std::nullopt;
    placeWhole(view, slice.getStaticOffsets());
  } else if (auto pad = dyn_cast<tensor::PadOp>(op)) {
    Value padding = pad.getConstantPaddingValue();
    if (!padding || !(matchPattern(padding, m_AnyZeroFloat()) || matchPattern(padding, m_Zero())))
      return std::nullopt;
    placeWhole(view, pad.getStaticLow());
  } else if (isa<tensor::CastOp>(op)) {
    llvm::append_range(view.places, AffineMap::getMultiDimIdentityMap(type.getRank(), op->getContext()).getResults());
  } else if (auto moving = dyn_cast<linalg::LinalgOp>(op)) {
    OpOperand *input = isa<linalg::TransposeOp, linalg::GenericOp>(op) ? getMovedInput(moving) : nullptr;
    if (!input)
      return std::nullopt;
    view.source = input->get();
    AffineMap loops = inversePermutation(moving.getMatchingIndexingMap(moving.getDpsInitOperand(0)));
    for (AffineExpr expr : moving.getMatchingIndexingMap(input).compose(loops).getResults())
      view.places.push_back(isa<AffineDimExpr, AffineConstantExpr>(expr) ? expr : AffineExpr());
  } else {
    return std::nullopt;
  }
  return view;
}

/// Puts views of widened bytes before the ops that widen them.
class ByteViews {
public:
  explicit ByteViews(ModuleOp module) : symbols(module), globals(module, symbols), rewriter(module.getContext()) {}

  void run(linalg::LinalgOp op);

private:
  bool isOfWeight(Value value);
  Value moved(Value value);
  Value movedBytes(const View &view, const Widening &widening);
  Value weightView(const View &view, Value bytes, RankedTensorType type);
  Value padByte(const QuantizedOperand &numbers, Location loc);

  SymbolTable symbols;
  DerivedGlobals globals;
  IRRewriter rewriter;
};

/// Whether `value` is a view of a widened weight, or of widened constants.
bool ByteViews::isOfWeight(Value value) {
  return worklist(Values{value}, [&](Value next, Values &list) {
    if (std::optional<Widening> widening = getWidening(next))
      return isa_and_nonnull<WeightOp, arith::ConstantOp>(widening->bytes->get().getDefiningOp());
    if (std::optional<View> view = getView(next))
      list.push_back(view->source);
    return false;
  });
}

/// The byte that stands for 0, which is what a convolution pads with.
Value ByteViews::padByte(const QuantizedOperand &numbers, Location loc) {
  for (const Parameter &scale : numbers.scales) {
    auto number = dyn_cast_or_null<FloatAttr>(scale.constant);
    if (scale.read || !number || !number.getValue().isFinite())
      return {};
  }
  Type i8 = rewriter.getI8Type();
  if (!numbers.zero)
    return arith::ConstantOp::create(rewriter, loc, rewriter.getZeroAttr(i8));
  if (numbers.zero->read) {
    const LoopRead &read = *numbers.zero->read;
    bool isOne = llvm::all_of(read.map.getResults(), llvm::IsaPred<AffineConstantExpr>);
    if (!isOne || numbers.zeroIsUnsigned != numbers.isUnsigned || !getElementTypeOrSelf(read.tensor).isInteger(8))
      return {};
    SmallVector<Value> at(read.map.getNumResults());
    if (!at.empty())
      std::fill(at.begin(), at.end(), arith::ConstantIndexOp::create(rewriter, loc, 0).getResult());
    return tensor::ExtractOp::create(rewriter, loc, read.tensor, at);
  }
  std::optional<int64_t> zero = constantZero(numbers);
  return zero ? arith::ConstantOp::create(rewriter, loc, IntegerAttr::get(i8, APInt(8, *zero & 0xff))).getResult()
              : Value();
}

/// What only gives a weight another order or shape is a weight, and constants of another shape are constants.
Value ByteViews::weightView(const View &view, Value bytes, RankedTensorType type) {
  MLIRContext *context = rewriter.getContext();
  bool isReshape = isa<tensor::CollapseShapeOp, tensor::ExpandShapeOp>(view.op);
  Location loc = view.op->getLoc();
  DenseElementsAttr constants;
  if (isReshape && matchPattern(bytes, m_Constant(&constants)))
    return arith::ConstantOp::create(rewriter, loc, constants.reshape(type));
  auto weight = bytes.getDefiningOp<WeightOp>();
  if (!weight || !type.hasStaticShape())
    return {};
  FlatSymbolRefAttr source = weight.getGlobalAttr();
  Attribute expression;
  if (isReshape)
    expression = ReshapeAttr::get(context, source);
  else if (auto transpose = dyn_cast<linalg::TransposeOp>(view.op))
    expression = TransposeAttr::get(context, source, transpose.getPermutation());
  if (!expression)
    return {};
  return WeightOp::create(rewriter, loc, type, globals.get(source.getValue() + "_view", type, expression, loc));
}

/// `view` of the bytes themselves.
Value ByteViews::movedBytes(const View &view, const Widening &widening) {
  Value bytes = widening.bytes->get();
  Location loc = view.op->getLoc();
  auto type = cast<RankedTensorType>(view.op->getResult(0).getType()).clone(rewriter.getI8Type());
  if (Value value = weightView(view, bytes, type))
    return value;
  auto pad = dyn_cast<tensor::PadOp>(view.op);
  if (!pad)
    return remadeView(rewriter, view.op, bytes);
  Value value = padByte(widening.numbers, loc);
  return value ? tensor::PadOp::create(rewriter, loc, type, bytes, pad.getMixedLowPad(), pad.getMixedHighPad(), value)
                     .getResult()
               : Value();
}

/// `value`, a view of widened bytes, as widened bytes of a view; null where it is none, or numbers beside the bytes
/// would have to be moved otherwise than they.
Value ByteViews::moved(Value value) {
  if (getWidening(value))
    return value;
  std::optional<View> view = getView(value);
  if (!view)
    return {};
  Value source = moved(view->source);
  std::optional<Widening> widening = source ? getWidening(source) : std::nullopt;
  if (!widening)
    return {};
  linalg::GenericOp op = widening->op;
  auto type = cast<RankedTensorType>(value.getType());
  SmallVector<Value> inputs(op.getDpsInputs());
  SmallVector<AffineMap> maps;
  for (OpOperand *input : op.getDpsInputOperands()) {
    if (input == widening->bytes) {
      maps.push_back(rewriter.getMultiDimIdentityMap(type.getRank()));
      continue;
    }
    SmallVector<AffineExpr> exprs;
    for (AffineExpr expr : op.getMatchingIndexingMap(input).getResults()) {
      auto dim = dyn_cast<AffineDimExpr>(expr);
      exprs.push_back(dim ? view->places[dim.getPosition()] : expr);
      if (!exprs.back() || !isa<AffineDimExpr, AffineConstantExpr>(exprs.back()))
        return {};
    }
    maps.push_back(AffineMap::get(type.getRank(), 0, exprs, rewriter.getContext()));
  }
  rewriter.setInsertionPoint(view->op);
  Value bytes = movedBytes(*view, *widening);
  if (!bytes)
    return {};
  inputs[widening->bytes->getOperandNumber()] = bytes;
  Location loc = op.getLoc();
  Value init = emptyTensor(rewriter, loc, tensor::getMixedSizes(rewriter, loc, bytes), type.getElementType());
  maps.push_back(rewriter.getMultiDimIdentityMap(type.getRank()));
  return withBodyOf(rewriter, op, inputs, init, maps)->getResult(0);
}

void ByteViews::run(linalg::LinalgOp op) {
  if (op.getNumDpsInputs() != 2 || llvm::none_of(op.getDpsInputs(), [&](Value input) { return isOfWeight(input); }))
    return;
  for (OpOperand *input : op.getDpsInputOperands()) {
    std::optional<QuantizedOperand> read = readQuantized(input->get(), op.getMatchingIndexingMap(input));
    if (read)
      followViews(read->stored);
    if (read && read->stored.tensor.getDefiningOp<WeightOp>() &&
        llvm::none_of(read->stored.map.getResults(), llvm::IsaPred<AffineConstantExpr>))
      continue; // a matrix as it is, or turned; with dimensions of 1 (filters of one element) it is a view
    if (Value value = moved(input->get()))
      input->set(value);
  }
}

/// Whether a view repeats elements.
bool repeats(const View &view) {
  auto generic = dyn_cast<linalg::GenericOp>(view.op);
  if (!generic)
    return false;
  AffineMap map = generic.getMatchingIndexingMap(getMovedInput(generic));
  return map.isProjectedPermutation(/*allowZeroInResults=*/true) && !map.isPermutation();
}

/// q(view(x)) becomes view(q(x)) where q makes bytes or reads them, and the view transposes or repeats (keys that heads
/// share): an attention, whose operands are followed through such views, then reads its keys as they lie, and what
/// stays of the view moves a quarter.
struct SinkViews : OpRewritePattern<linalg::GenericOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(linalg::GenericOp op, PatternRewriter &rewriter) const override {
    auto fail = [&](StringRef why) { return rewriter.notifyMatchFailure(op, why); };
    if (!isPointwise(op) || op.hasIndexSemantics() || !op.getMatchingIndexingMap(op.getDpsInitOperand(0)).isIdentity())
      return fail("it is not elementwise, in the order of its result");
    OpOperand *moved = nullptr;
    for (OpOperand *input : op.getDpsInputOperands()) {
      AffineMap map = op.getMatchingIndexingMap(input);
      if (llvm::none_of(map.getResults(), [](AffineExpr expr) { return isa<AffineDimExpr>(expr); }))
        continue; // one scale, one zero point
      if (moved || !map.isIdentity())
        return fail("it reads several tensors");
      moved = input;
    }
    auto type = dyn_cast<RankedTensorType>(op->getResult(0).getType());
    if (!moved || !type)
      return fail("it reads no tensor");
    if (!type.getElementType().isInteger(8) && !getElementTypeOrSelf(moved->get()).isInteger(8))
      return fail("it neither makes bytes nor reads them");
    SmallVector<View> views = findViews(moved->get());
    if (views.empty())
      return fail("it reads no view that transposes or repeats, and is its own");
    Location loc = op.getLoc();
    Value source = views.back().source;
    int64_t rank = cast<RankedTensorType>(source.getType()).getRank();
    SmallVector<Value> inputs(op.getDpsInputs());
    inputs[moved->getOperandNumber()] = source;
    SmallVector<AffineMap> maps;
    for (AffineMap map : op.getIndexingMapsArray())
      maps.push_back(map.isIdentity() && map.getNumResults()
                         ? rewriter.getMultiDimIdentityMap(rank)
                         : AffineMap::get(rank, 0, map.getResults(), rewriter.getContext()));
    Value init = emptyTensor(rewriter, loc, tensor::getMixedSizes(rewriter, loc, source), type.getElementType());
    Value result = withBodyOf(rewriter, op, inputs, init, maps)->getResult(0);
    for (const View &view : llvm::reverse(views))
      result = remadeView(rewriter, view.op, result);
    rewriter.replaceOp(op, result);
    return success();
  }

private:
  /// The views that `value` is made by, the last one first, down to the first one that transposes or repeats; none
  /// where another op reads one of them.
  static SmallVector<View> findViews(Value value) {
    SmallVector<View> views;
    size_t count = 0;
    worklist(Values{value}, [&](Value next, Values &list) {
      std::optional<View> view = next.hasOneUse() ? getView(next) : std::nullopt;
      if (!view || isa<tensor::PadOp, tensor::ExtractSliceOp>(view->op))
        return true;
      views.push_back(*view);
      if (isa<linalg::TransposeOp>(view->op) || repeats(*view))
        count = views.size();
      list.push_back(view->source);
      return false;
    });
    views.truncate(count);
    return views;
  }
};

struct ViewBytesPass : impl::ViewBytesPassBase<ViewBytesPass> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<SinkViews>(&getContext());
    walkAndApplyPatterns(getOperation(), std::move(patterns));
    ByteViews views(getOperation());
    for (linalg::LinalgOp op : getContractions(getOperation()))
      if (op.hasPureTensorSemantics())
        views.run(op);
  }
};

} // namespace
} // namespace attn
