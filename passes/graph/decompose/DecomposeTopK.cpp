#include "dialects/attn/TopKOp.h"
#include "passes/graph/Formulas.h"
#include "passes/graph/decompose/Decompose.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;

namespace attn {

Mask exceeds(const Num &x, const Num &y) { return (x > y) | (isNaN(x) & (y == y)); }

namespace {

/// Whether `x` comes before `y` in the order of `op`, whatever their positions.
Mask precedes(TopKOp op, Num x, Num y) {
  if (op.getSmallest())
    std::swap(x, y);
  if (x.isFloating())
    return exceeds(x, y);
  if (!op.getIsUnsigned())
    return x > y;
  return x.truth(arith::CmpIOp::create(x.builder(), x.location(), arith::CmpIPredicate::ugt, x, y));
}

/// For each element how many come before it, then for each place who has so
/// many before it: as many comparisons as there are pairs, and no order among them.
struct DecomposeTopK : OpRewritePattern<TopKOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(TopKOp op, PatternRewriter &rewriter) const override {
    Location loc = op.getLoc();
    OpBuilder &b = rewriter;
    Value input = op.getInput();
    int64_t rank = cast<RankedTensorType>(input.getType()).getRank(), dim = op.getDim();
    Type element = getElementTypeOrSelf(input), i64 = b.getI64Type();
    // Loops: the dimensions of the result, then the one that is searched.
    AffineMap own = b.getMultiDimIdentityMap(rank + 1).dropResult(rank);
    SmallVector<AffineExpr> exprs(own.getResults());
    exprs[dim] = b.getAffineDimExpr(rank);
    AffineMap other = AffineMap::get(rank + 1, 0, exprs, b.getContext());
    Value counts = filledTensor(b, loc, tensor::getMixedSizes(b, loc, input), b.getI64IntegerAttr(0));
    counts = reduction(b, loc, {input, input}, {own, other}, counts, own, formula([&](Code &k, ArrayRef<Num> x) {
                         Mask before = precedes(op, x[1], x[0]), after = precedes(op, x[0], x[1]);
                         Mask isEarlier = loopIndex(k, rank) < loopIndex(k, dim);
                         return x[2] + toNum(before | select(after, k.truth(false), isEarlier), i64);
                       }));
    ReifiedRankedShapedTypeDims shapes;
    if (failed(op.reifyResultShapes(b, shapes)))
      return failure();
    auto pick = [&](Type type, bool isPosition) {
      return reduction(b, loc, {input, counts}, {other, other}, filledTensor(b, loc, shapes[0], b.getZeroAttr(type)),
                       own, formula([&](Code &k, ArrayRef<Num> x) {
                         Mask isIt = x[1] == toNum(loopIndex(k, dim), i64);
                         return select(isIt, isPosition ? toNum(loopIndex(k, rank), i64) : x[0], x[2]);
                       }));
    };
    rewriter.replaceOp(op, {pick(element, false), pick(i64, true)});
    return success();
  }
};

} // namespace

void populateDecomposeTopKPatterns(RewritePatternSet &patterns) { patterns.add<DecomposeTopK>(patterns.getContext()); }

} // namespace attn
