#include "passes/graph/Structured.h"
#include "passes/graph/decompose/Decompose.h"
#include "passes/graph/products/Blocks.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;

namespace attn {

Value emitDequantized(OpBuilder &b, Location loc, DequantizeBlocksOp op, ValueRange at) {
  Type element = getElementTypeOrSelf(op.getResult());
  // In f32 and rounded once, as the operators that store halves have it.
  Type wide = element.isF16() || element.isBF16() ? Type(b.getF32Type()) : element;
  auto widened = [&](Value x) -> Value {
    if (isa<FloatType>(x.getType()))
      return convertFloat(b, loc, x, wide);
    return op.getIsUnsigned() ? arith::UIToFPOp::create(b, loc, wide, x).getResult()
                              : arith::SIToFPOp::create(b, loc, wide, x).getResult();
  };
  SmallVector<Value> block(at);
  Value size = arith::ConstantIndexOp::create(b, loc, op.getBlock());
  block[op.getAxis()] = arith::DivUIOp::create(b, loc, at[op.getAxis()], size);
  Value x = widened(tensor::ExtractOp::create(b, loc, op.getCodes(), at));
  Value zero;
  if (op.getZeros())
    zero = widened(tensor::ExtractOp::create(b, loc, op.getZeros(), block));
  else if (op.getZeroPoint())
    zero = floatConstant(b, loc, wide, static_cast<int64_t>(op.getZeroPoint()));
  if (zero)
    x = arith::SubFOp::create(b, loc, x, zero);
  Value scale = widened(tensor::ExtractOp::create(b, loc, op.getScales(), block));
  return convertFloat(b, loc, arith::MulFOp::create(b, loc, x, scale), element);
}

namespace {

struct DecomposeDequantization : OpRewritePattern<DequantizeBlocksOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(DequantizeBlocksOp op, PatternRewriter &rewriter) const override {
    auto type = cast<RankedTensorType>(op.getResult().getType());
    ReifiedRankedShapedTypeDims sizes;
    if (failed(op.reifyResultShapes(rewriter, sizes)))
      return rewriter.notifyMatchFailure(op, "the sizes of the result are unknown");
    Value result = elementwise(rewriter, op.getLoc(), sizes.front(), type.getElementType(), {}, {},
                               [&](OpBuilder &b, Location loc, ValueRange) {
                                 SmallVector<Value> at;
                                 for (int64_t dim = 0; dim < type.getRank(); ++dim)
                                   at.push_back(linalg::IndexOp::create(b, loc, dim));
                                 return emitDequantized(b, loc, op, at);
                               });
    rewriter.replaceOp(op, castTo(rewriter, op.getLoc(), result, type));
    return success();
  }
};

struct DecomposeBlockProduct : OpRewritePattern<BlockProductOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(BlockProductOp op, PatternRewriter &rewriter) const override {
    Location loc = op.getLoc();
    OpBuilder &b = rewriter;
    auto type = cast<RankedTensorType>(op.getResult().getType()),
         codes = cast<RankedTensorType>(op.getCodes().getType());
    ReifiedRankedShapedTypeDims sizes;
    if (failed(op.reifyResultShapes(rewriter, sizes)))
      return rewriter.notifyMatchFailure(op, "the sizes of the result are unknown");
    Type scale = getElementTypeOrSelf(op.getScales());
    Value right = DequantizeBlocksOp::create(b, loc, codes.clone(scale), op.getCodes(), op.getScales(), op.getZeros(),
                                             op.getTransposed() ? 1 : 0, op.getBlock(), op.getBits(), op.getZeroPoint(),
                                             op.getIsUnsigned(), /*narrow_rows=*/false);
    Type f32 = b.getF32Type();
    if (scale != f32)
      right =
          elementwise(b, loc, tensor::getMixedSizes(b, loc, right), f32, right, b.getMultiDimIdentityMap(2),
                      [&](OpBuilder &b, Location loc, ValueRange args) { return convertFloat(b, loc, args[0], f32); });
    Value product = contraction(b, loc, sizes.front(), f32, op.getLhs(), right,
                                rowProductMaps(b.getContext(), type.getRank(), op.getTransposed()));
    rewriter.replaceOp(op, castTo(b, loc, product, type));
    return success();
  }
};

} // namespace

void populateDecomposeBlockPatterns(RewritePatternSet &patterns) {
  patterns.add<DecomposeDequantization, DecomposeBlockProduct>(patterns.getContext());
}

} // namespace attn
