#include "dialects/attn/TopKOp.h"
#include "passes/graph/Structured.h"
#include "passes/graph/decompose/Decompose.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;

namespace attn {
namespace {

/// Whether `x` comes before `y` in the order of `op`, whatever their positions.
Value precedes(TopKOp op, OpBuilder &b, Location loc, Value x, Value y) {
  if (op.getSmallest())
    std::swap(x, y);
  if (!isa<FloatType>(x.getType()))
    return arith::CmpIOp::create(b, loc, op.getIsUnsigned() ? arith::CmpIPredicate::ugt : arith::CmpIPredicate::sgt, x,
                                 y);
  // NaN is greater than any number.
  Value greater = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OGT, x, y);
  Value xIsNaN = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::UNO, x, x);
  Value yIsNumber = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::ORD, y, y);
  return arith::OrIOp::create(b, loc, greater, arith::AndIOp::create(b, loc, xIsNaN, yIsNumber));
}

Value indexOf(OpBuilder &b, Location loc, int64_t loop) {
  return arith::IndexCastOp::create(b, loc, b.getI64Type(), linalg::IndexOp::create(b, loc, loop));
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
    counts = reduction(b, loc, {input, input}, {own, other}, counts, own,
                       [&](OpBuilder &b, Location loc, ValueRange args) -> Value {
                         Value before = precedes(op, b, loc, args[1], args[0]);
                         Value after = precedes(op, b, loc, args[0], args[1]);
                         Value isEarlier = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt,
                                                                 linalg::IndexOp::create(b, loc, rank),
                                                                 linalg::IndexOp::create(b, loc, dim));
                         Value no = arith::ConstantIntOp::create(b, loc, b.getI1Type(), 0);
                         Value tie = arith::SelectOp::create(b, loc, after, no, isEarlier);
                         Value wins = arith::OrIOp::create(b, loc, before, tie);
                         return arith::AddIOp::create(b, loc, args[2], arith::ExtUIOp::create(b, loc, i64, wins));
                       });
    ReifiedRankedShapedTypeDims shapes;
    if (failed(op.reifyResultShapes(b, shapes)))
      return failure();
    auto pick = [&](Type type, bool isPosition) {
      return reduction(b, loc, {input, counts}, {other, other}, filledTensor(b, loc, shapes[0], b.getZeroAttr(type)),
                       own, [&](OpBuilder &b, Location loc, ValueRange args) -> Value {
                         Value isIt =
                             arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, args[1], indexOf(b, loc, dim));
                         Value found = isPosition ? indexOf(b, loc, rank) : args[0];
                         return arith::SelectOp::create(b, loc, isIt, found, args[2]);
                       });
    };
    rewriter.replaceOp(op, {pick(element, false), pick(i64, true)});
    return success();
  }
};

} // namespace

void populateDecomposeTopKPatterns(RewritePatternSet &patterns) { patterns.add<DecomposeTopK>(patterns.getContext()); }

} // namespace attn
