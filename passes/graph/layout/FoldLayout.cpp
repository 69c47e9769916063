#include "dialects/attn/AttnOps.h"
#include "passes/Passes.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/IR/Remarks.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

using namespace mlir;

namespace attn {
#define GEN_PASS_DEF_FOLDLAYOUTPASS
#include "passes/Passes.h.inc"

namespace {

/// The map that reads the input of `transpose` where `map` reads its result:
/// result dimension n is input dimension permutation[n].
AffineMap readThrough(AffineMap map, linalg::TransposeOp transpose) {
  SmallVector<AffineExpr> exprs(map.getNumResults());
  for (auto [n, source] : llvm::enumerate(transpose.getPermutation()))
    exprs[source] = map.getResult(n);
  return AffineMap::get(map.getNumDims(), 0, exprs, map.getContext());
}

linalg::TransposeOp getTranspose(Value value) {
  auto transpose = value.getDefiningOp<linalg::TransposeOp>();
  return transpose && transpose.hasPureTensorSemantics() ? transpose : linalg::TransposeOp();
}

/// attention(transpose(x), map) -> attention(x, map')
struct FoldOperandIntoAttention : OpRewritePattern<AttentionOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(AttentionOp op, PatternRewriter &rewriter) const override {
    SmallVector<AffineMap> maps(op.getIndexingMaps().getAsValueRange<AffineMapAttr>());
    bool changed = false;
    SmallVector<Value> operands(op.getOperands());
    for (auto [operand, map] : llvm::zip(operands, maps))
      // A list of blocks has a dimension that its map does not name.
      if (linalg::TransposeOp transpose = getTranspose(operand);
          transpose && transpose.getPermutation().size() == map.getNumResults()) {
        operand = transpose.getInput();
        map = readThrough(map, transpose);
        changed = true;
      }
    if (!changed)
      return rewriter.notifyMatchFailure(op, "no operand is a transpose");
    rewriter.modifyOpInPlace(op, [&] {
      op->setOperands(operands);
      op.setIndexingMapsAttr(rewriter.getAffineMapArrayAttr(maps));
    });
    remark::passed(op.getLoc(), remark::RemarkOpts::name("Layout").category("attn-fold-layout"))
        << "reads an operand before its transpose";
    return success();
  }
};

/// transpose(attention(..., map)) -> attention(..., map')
struct FoldResultIntoAttention : OpRewritePattern<linalg::TransposeOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(linalg::TransposeOp transpose, PatternRewriter &rewriter) const override {
    auto op = transpose.getInput().getDefiningOp<AttentionOp>();
    if (!op || !op.getResult().hasOneUse() || transpose->getNumResults() != 1 || transpose.getInput() != op.getResult())
      return rewriter.notifyMatchFailure(transpose, "not the only use of an attention's result");
    AttentionParts parts = op.getParts();
    AffineMap &map = parts.maps[op->getNumOperands()];
    SmallVector<AffineExpr> exprs;
    for (int64_t source : transpose.getPermutation())
      exprs.push_back(map.getResult(source));
    map = AffineMap::get(6, 0, exprs, op.getContext());
    parts.types.front() = transpose->getResult(0).getType();
    rewriter.setInsertionPoint(op);
    auto moved = AttentionOp::create(rewriter, op.getLoc(), parts);
    for (auto [from, to] : llvm::zip_equal(op->getRegions(), moved->getRegions()))
      rewriter.inlineRegionBefore(from, to, to.end());
    rewriter.replaceOp(transpose, moved.getResult());
    for (auto [from, to] : llvm::zip_equal(op.getExtraResults(), moved.getExtraResults()))
      rewriter.replaceAllUsesWith(from, to);
    rewriter.eraseOp(op);
    return success();
  }
};

/// contract(transpose(x), y) -> contract(x, y). Where one side is a weight the
/// GEMM wants the other in rows, so there the transpose stays an op of its own.
struct FoldOperandIntoContract : OpRewritePattern<linalg::ContractOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(linalg::ContractOp op, PatternRewriter &rewriter) const override {
    if (llvm::any_of(op.getInputs(), [](Value input) { return input.getDefiningOp<WeightOp>(); }))
      return rewriter.notifyMatchFailure(op, "one operand is a weight");
    SmallVector<AffineMap> maps = op.getIndexingMapsArray();
    SmallVector<Value> inputs(op.getInputs());
    bool changed = false;
    for (auto [n, input] : llvm::enumerate(inputs))
      if (linalg::TransposeOp transpose = getTranspose(input)) {
        input = transpose.getInput();
        maps[n] = readThrough(maps[n], transpose);
        changed = true;
      }
    if (!changed)
      return rewriter.notifyMatchFailure(op, "no operand is a transpose");
    rewriter.replaceOpWithNewOp<linalg::ContractOp>(op, op.getResultTypes(), inputs, op.getOutputs(),
                                                    rewriter.getAffineMapArrayAttr(maps));
    return success();
  }
};

struct FoldLayoutPass : impl::FoldLayoutPassBase<FoldLayoutPass> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<FoldOperandIntoAttention, FoldResultIntoAttention, FoldOperandIntoContract>(&getContext());
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      signalPassFailure();
  }
};

} // namespace
} // namespace attn
