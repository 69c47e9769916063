#include "dialects/attn/IntegerProductOp.h"
#include "passes/graph/Formulas.h"
#include "passes/graph/decompose/Decompose.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;

namespace attn {
namespace {

struct DecomposeProduct : OpRewritePattern<IntegerProductOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(IntegerProductOp op, PatternRewriter &rewriter) const override {
    Location loc = op.getLoc();
    OpBuilder &b = rewriter;
    int64_t rank = cast<RankedTensorType>(op.getResult().getType()).getRank();
    SmallVector<AffineMap> maps(rowProductMaps(b.getContext(), rank, op.getTransposed(), op.getNumBatch()));
    AffineMap result = maps.pop_back_val();
    auto mapOf = [&](ArrayRef<AffineExpr> exprs) { return AffineMap::get(rank + 1, 0, exprs, b.getContext()); };
    SmallVector<Value> inputs = {op.getLhs(), op.getRhs()};
    if (Value zero = op.getLhsZero()) {
      inputs.push_back(zero);
      maps.push_back(mapOf({}));
    }
    if (Value zero = op.getRhsZero()) {
      bool isByColumn = cast<RankedTensorType>(zero.getType()).getRank() == 1;
      inputs.push_back(zero);
      maps.push_back(isByColumn ? mapOf(b.getAffineDimExpr(rank - 1)) : mapOf({}));
    }
    ReifiedRankedShapedTypeDims sizes;
    if (failed(op.reifyResultShapes(rewriter, sizes)))
      return rewriter.notifyMatchFailure(op, "the sizes of the result are unknown");
    Type i32 = b.getI32Type();
    Value zeros = filledTensor(b, loc, sizes.front(), b.getI32IntegerAttr(0));
    auto widen = [&](const Num &x, bool isUnsigned) { return isUnsigned ? convertUnsigned(x, i32) : convert(x, i32); };
    auto body = formula([&](ArrayRef<Num> x) {
      Num left = widen(x[0], true), right = widen(x[1], op.getIsUnsigned());
      if (op.getLhsZero())
        left = left - widen(x[2], true);
      if (op.getRhsZero())
        right = right - widen(x[inputs.size() - 1], op.getIsUnsigned());
      return x.back() + left * right;
    });
    rewriter.replaceOp(op, reduction(b, loc, inputs, maps, zeros, result, body));
    return success();
  }
};

} // namespace

void populateDecomposeProductPatterns(RewritePatternSet &patterns) {
  patterns.add<DecomposeProduct>(patterns.getContext());
}

} // namespace attn
