#include "passes/graph/Structured.h"
#include "passes/graph/decompose/Decompose.h"
#include "passes/graph/products/Blocks.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/TypeUtilities.h"
#include <limits>

using namespace mlir;

namespace attn {

/// The number that a byte of float8e4m3fn is, in f32.
static Value widenE4M3(OpBuilder &b, Location loc, Value byte) {
  Type i32 = b.getI32Type(), f32 = b.getF32Type();
  auto number = [&](int64_t value) -> Value { return arith::ConstantIntOp::create(b, loc, i32, value); };
  auto asFloat = [&](Value bits) -> Value { return arith::BitcastOp::create(b, loc, f32, bits); };
  constexpr int64_t kNaN = 0x7f, kLeastNormal = 8, kFraction = 20, kBias = 120, kExponent = 23;
  Value word = arith::ExtUIOp::create(b, loc, i32, byte);
  Value code = arith::AndIOp::create(b, loc, word, number(0x7f));
  Value bits = arith::ShLIOp::create(b, loc, code, number(kFraction));
  auto withBias = [&](int64_t bias) { return asFloat(arith::AddIOp::create(b, loc, bits, number(bias << kExponent))); };
  // Below the normal numbers the exponent is one more, and there is no leading 1.
  Value tiny = arith::SubFOp::create(b, loc, withBias(kBias + 1), floatConstant(b, loc, f32, 0x1p-6));
  auto isLess = [&](Value x, int64_t bound) -> Value {
    return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, x, number(bound));
  };
  Value value = arith::SelectOp::create(b, loc, isLess(code, kLeastNormal), tiny, withBias(kBias));
  Value nan = floatConstant(b, loc, f32, std::numeric_limits<double>::quiet_NaN());
  value = arith::SelectOp::create(b, loc, isLess(code, kNaN), value, nan);
  Value negative = arith::NegFOp::create(b, loc, value);
  return arith::SelectOp::create(b, loc, isLess(word, 0x80), value, negative);
}

/// What a code stands for with what these give, `zero` nothing where there is none.
static Value dequantized(OpBuilder &b, Location loc, DequantizeBlocksOp op, Value code,
                         llvm::function_ref<Value()> zero, llvm::function_ref<Value()> scale) {
  Type element = getElementTypeOrSelf(op.getResult());
  // In f32 and rounded once, as the operators that store halves have it.
  Type wide = element.isF16() || element.isBF16() ? Type(b.getF32Type()) : element;
  auto widened = [&](Value x) -> Value {
    if (isa<FloatType>(x.getType()))
      return convertFloat(b, loc, x, wide);
    if (op.getIsE4m3())
      return convertFloat(b, loc, widenE4M3(b, loc, x), wide);
    return op.getIsUnsigned() ? arith::UIToFPOp::create(b, loc, wide, x).getResult()
                              : arith::SIToFPOp::create(b, loc, wide, x).getResult();
  };
  Value x = widened(code), given = zero();
  if (given)
    x = arith::SubFOp::create(b, loc, x, widened(given));
  else if (op.getZeroPoint())
    x = arith::SubFOp::create(b, loc, x, floatConstant(b, loc, wide, static_cast<int64_t>(op.getZeroPoint())));
  return convertFloat(b, loc, arith::MulFOp::create(b, loc, x, widened(scale())), element);
}

Value emitDequantized(OpBuilder &b, Location loc, DequantizeBlocksOp op, ValueRange at) {
  SmallVector<Value> block(at);
  Value size = arith::ConstantIndexOp::create(b, loc, op.getBlock());
  block[op.getAxis()] = arith::DivUIOp::create(b, loc, at[op.getAxis()], size);
  auto ofBlock = [&](Value tensor) -> Value {
    return tensor ? tensor::ExtractOp::create(b, loc, tensor, block).getResult() : Value();
  };
  Value code = tensor::ExtractOp::create(b, loc, op.getCodes(), at);
  return dequantized(b, loc, op, code, [&] { return ofBlock(op.getZeros()); }, [&] { return ofBlock(op.getScales()); });
}

namespace {

struct DecomposeDequantization : OpRewritePattern<DequantizeBlocksOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(DequantizeBlocksOp op, PatternRewriter &rewriter) const override {
    auto type = cast<RankedTensorType>(op.getResult().getType());
    ReifiedRankedShapedTypeDims sizes;
    if (failed(op.reifyResultShapes(rewriter, sizes)))
      return rewriter.notifyMatchFailure(op, "the sizes of the result are unknown");
    auto atPlace = [&](OpBuilder &b, Location loc, ValueRange) {
      SmallVector<Value> at;
      for (int64_t dim = 0; dim < type.getRank(); ++dim)
        at.push_back(linalg::IndexOp::create(b, loc, dim));
      return emitDequantized(b, loc, op, at);
    };
    // Of one block each element has its scale where its column (row) is: nothing is divided.
    auto ofOneBlock = [&](OpBuilder &b, Location loc, ValueRange parts) {
      return dequantized(b, loc, op, parts[0], [] { return Value(); }, [&] { return parts[1]; });
    };
    AffineMap each = rewriter.getMultiDimIdentityMap(type.getRank());
    SmallVector<AffineExpr> scale(each.getResults());
    scale[op.getAxis()] = rewriter.getAffineConstantExpr(0);
    SmallVector<AffineMap> maps = {each, AffineMap::get(type.getRank(), 0, scale, rewriter.getContext())};
    bool isOneBlock = !op.getZeros() && !type.isDynamicDim(op.getAxis()) &&
                      type.getDimSize(op.getAxis()) <= static_cast<int64_t>(op.getBlock());
    Value result = isOneBlock
                       ? elementwise(rewriter, op.getLoc(), sizes.front(), type.getElementType(),
                                     {op.getCodes(), op.getScales()}, maps, ofOneBlock)
                       : elementwise(rewriter, op.getLoc(), sizes.front(), type.getElementType(), {}, {}, atPlace);
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
                                             op.getIsUnsigned(), /*narrow_rows=*/false, /*is_e4m3=*/false);
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
