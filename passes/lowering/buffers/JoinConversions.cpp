#include "passes/Passes.h"
#include "passes/graph/Structured.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

namespace attn {
#define GEN_PASS_DEF_JOINCONVERSIONSPASS
#include "passes/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {

bool isRounded(Value value) { return static_cast<bool>(getConversion<arith::TruncFOp>(value.getDefiningOp())); }

/// widen(insert(round(x), y)) -> insert(widen(round(x)), widen(y))
struct WidenParts : OpRewritePattern<linalg::GenericOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(linalg::GenericOp op, PatternRewriter &rewriter) const override {
    if (!getConversion<arith::ExtFOp>(op))
      return rewriter.notifyMatchFailure(op, "is more than a conversion to wider floats");
    SmallVector<tensor::InsertSliceOp> parts;
    Value base = op.getDpsInputs()[0];
    for (; auto part = base.getDefiningOp<tensor::InsertSliceOp>(); base = part.getDest())
      parts.push_back(part);
    if (!base.getDefiningOp<tensor::EmptyOp>() ||
        llvm::none_of(parts, [](tensor::InsertSliceOp part) { return isRounded(part.getSource()); }))
      return rewriter.notifyMatchFailure(op, "no part was wide before");
    Location loc = op.getLoc();
    Type wide = getElementTypeOrSelf(op.getResult(0));
    Value whole = emptyTensor(rewriter, loc, tensor::getMixedSizes(rewriter, loc, base), wide);
    for (tensor::InsertSliceOp part : llvm::reverse(parts)) {
      Value source = part.getSource();
      int64_t rank = part.getSourceType().getRank();
      SmallVector<AffineMap> maps{rewriter.getMultiDimIdentityMap(rank)};
      Value widened = elementwise(
          rewriter, loc, tensor::getMixedSizes(rewriter, loc, source), wide, source, maps,
          [&](OpBuilder &b, Location at, ValueRange in) -> Value { return arith::ExtFOp::create(b, at, wide, in[0]); });
      whole = tensor::InsertSliceOp::create(rewriter, loc, widened, whole, part.getMixedOffsets(), part.getMixedSizes(),
                                            part.getMixedStrides());
    }
    rewriter.replaceOp(op, castTo(rewriter, loc, whole, op.getResult(0).getType()));
    return success();
  }
};

/// What is rounded, and widened again, is one loop with two results where the rounded floats are read elsewhere, too.
struct JoinWidening : OpRewritePattern<linalg::GenericOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(linalg::GenericOp op, PatternRewriter &rewriter) const override {
    if (!getConversion<arith::ExtFOp>(op))
      return rewriter.notifyMatchFailure(op, "is more than a conversion to wider floats");
    linalg::GenericOp rounding = getConversion<arith::TruncFOp>(op.getDpsInputs()[0].getDefiningOp());
    if (!rounding)
      return rewriter.notifyMatchFailure(op, "what it reads was not wide before");
    rewriter.setInsertionPoint(rounding);
    Location loc = rounding.getLoc();
    Type wide = getElementTypeOrSelf(op.getResult(0));
    Value source = rounding.getDpsInputs()[0], narrow = rounding.getDpsInits()[0];
    Value made = emptyTensor(rewriter, loc, tensor::getMixedSizes(rewriter, loc, source), wide);
    SmallVector<AffineMap> maps(3, rewriter.getMultiDimIdentityMap(rounding.getNumLoops()));
    auto joined = linalg::GenericOp::create(
        rewriter, loc, TypeRange{narrow.getType(), made.getType()}, source, ValueRange{narrow, made}, maps,
        rounding.getIteratorTypesArray(), [&](OpBuilder &b, Location at, ValueRange in) {
          Value rounded = arith::TruncFOp::create(b, at, getElementTypeOrSelf(narrow), in[0]);
          linalg::YieldOp::create(b, at, ValueRange{rounded, arith::ExtFOp::create(b, at, wide, rounded)});
        });
    rewriter.replaceOp(rounding, joined.getResult(0));
    rewriter.replaceOp(op, castTo(rewriter, loc, joined.getResult(1), op.getResult(0).getType()));
    return success();
  }
};

struct JoinConversionsPass : attn::impl::JoinConversionsPassBase<JoinConversionsPass> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<WidenParts, JoinWidening>(&getContext());
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      signalPassFailure();
  }
};

} // namespace
