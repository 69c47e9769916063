#include "passes/Passes.h"
#include "passes/graph/Structured.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

using namespace mlir;

namespace attn {
#define GEN_PASS_DEF_MOVECONVERSIONSPASS
#include "passes/Passes.h.inc"

namespace {

/// `conversion` of `source`'s elements.
Value convertLike(PatternRewriter &rewriter, linalg::GenericOp conversion, Value source) {
  Location loc = conversion.getLoc();
  Type element = getElementTypeOrSelf(conversion.getResult(0));
  Value made = emptyTensor(rewriter, loc, tensor::getMixedSizes(rewriter, loc, source), element);
  int64_t rank = cast<RankedTensorType>(source.getType()).getRank();
  SmallVector<AffineMap> maps(2, rewriter.getMultiDimIdentityMap(rank));
  linalg::GenericOp op = withBodyOf(rewriter, conversion, source, made, maps);
  op->setDiscardableAttrs(conversion->getDiscardableAttrDictionary());
  return op.getResult(0);
}

/// What a transpose or a reshape reads; null: another op.
Value sourceOf(Operation *layout) {
  if (auto transpose = dyn_cast_or_null<linalg::TransposeOp>(layout))
    return transpose.hasPureTensorSemantics() ? transpose.getInput() : Value();
  return isa_and_nonnull<tensor::ExpandShapeOp, tensor::CollapseShapeOp>(layout) ? layout->getOperand(0) : Value();
}

/// Sizes may be asked for: what tells them can be found without `value`.
bool isReadOnce(Value value) {
  return llvm::count_if(value.getUsers(), [](Operation *user) { return !isa<tensor::DimOp>(user); }) == 1;
}

/// narrow(layout(x)) -> layout(narrow(x))
struct NarrowFirst : OpRewritePattern<linalg::GenericOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(linalg::GenericOp op, PatternRewriter &rewriter) const override {
    if (!getConversion<arith::TruncFOp>(op))
      return rewriter.notifyMatchFailure(op, "narrows nothing");
    Operation *layout = op.getInputs()[0].getDefiningOp();
    Value source = sourceOf(layout);
    if (!source || !isReadOnce(layout->getResult(0)))
      return rewriter.notifyMatchFailure(op, "reads no layout of its own");
    rewriter.setInsertionPoint(layout);
    rewriter.replaceOp(op, remadeView(rewriter, layout, convertLike(rewriter, op, source)));
    return success();
  }
};

/// layout(widen(x)) -> widen(layout(x))
struct WidenLast : RewritePattern {
  explicit WidenLast(MLIRContext *context) : RewritePattern(MatchAnyOpTypeTag(), /*benefit=*/1, context) {}

  LogicalResult matchAndRewrite(Operation *layout, PatternRewriter &rewriter) const override {
    Value source = sourceOf(layout);
    linalg::GenericOp widening = source ? getConversion<arith::ExtFOp>(source.getDefiningOp()) : linalg::GenericOp();
    if (!widening || !isReadOnce(source))
      return rewriter.notifyMatchFailure(layout, "no layout of what was widened for it");
    rewriter.replaceOp(layout, convertLike(rewriter, widening, remadeView(rewriter, layout, widening.getInputs()[0])));
    return success();
  }
};

/// contract(widen(x), widen(y)) -> contract(x, y), which widens them itself.
struct ContractHalves : OpRewritePattern<linalg::ContractOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(linalg::ContractOp op, PatternRewriter &rewriter) const override {
    SmallVector<Value> halves;
    for (Value input : op.getInputs())
      if (linalg::GenericOp widening = getConversion<arith::ExtFOp>(input.getDefiningOp()))
        halves.push_back(widening.getInputs()[0]);
    if (halves.size() != 2 || getElementTypeOrSelf(halves[0]) != getElementTypeOrSelf(halves[1]) ||
        !getElementTypeOrSelf(op->getResult(0)).isF32())
      return rewriter.notifyMatchFailure(op, "not of two factors of one narrow type");
    rewriter.replaceOpWithNewOp<linalg::ContractOp>(op, op.getResultTypes(), halves, op.getOutputs(),
                                                    op.getIndexingMapsAttr());
    return success();
  }
};

struct MoveConversionsPass : impl::MoveConversionsPassBase<MoveConversionsPass> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    tensor::DimOp::getCanonicalizationPatterns(patterns, &getContext());
    patterns.add<NarrowFirst, WidenLast, ContractHalves>(&getContext());
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      signalPassFailure();
  }
};

} // namespace
} // namespace attn
