#include "passes/graph/Formulas.h"
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
static Num widenE4M3(Code &k, const Num &byte) {
  Type i32 = k.b.getI32Type(), f32 = k.b.getF32Type();
  constexpr int64_t kNaN = 0x7f, kLeastNormal = 8, kFraction = 20, kBias = 120, kExponent = 23;
  Num word = convertUnsigned(byte, i32), code = word & 0x7f, bits = code << kFraction;
  auto withBias = [&](int64_t bias) { return bitcast(bits + (bias << kExponent), f32); };
  // Below the normal numbers the exponent is one more, and there is no leading 1.
  Num tiny = withBias(kBias + 1) - 0x1p-6;
  Num value = select(code < kLeastNormal, tiny, withBias(kBias));
  value = select(code < kNaN, value, k.f32(std::numeric_limits<double>::quiet_NaN()));
  return select(word < 0x80, value, -value);
}

/// What a code stands for with what these give, `zero` nothing where there is none.
static Value dequantized(Code &k, DequantizeBlocksOp op, Value code, llvm::function_ref<Value()> zero,
                         llvm::function_ref<Value()> scale) {
  Type element = getElementTypeOrSelf(op.getResult());
  // In f32 and rounded once, as the operators that store halves have it.
  Type wide = element.isF16() || element.isBF16() ? Type(k.b.getF32Type()) : element;
  auto widened = [&](Value number) {
    Num x = k.asNum(number);
    if (x.isFloating())
      return convert(x, wide);
    if (op.getIsE4m3())
      return convert(widenE4M3(k, x), wide);
    return op.getIsUnsigned() ? convertUnsigned(x, wide) : convert(x, wide);
  };
  Num x = widened(code);
  if (Value given = zero())
    x = x - widened(given);
  else if (op.getZeroPoint())
    x = x - static_cast<int64_t>(op.getZeroPoint());
  return convert(x * widened(scale()), element);
}

Value emitDequantized(OpBuilder &b, Location loc, DequantizeBlocksOp op, ValueRange at) {
  Code k(b, loc);
  SmallVector<Value> block(at);
  block[op.getAxis()] = k.asIndex(at[op.getAxis()]) / op.getBlock();
  auto ofBlock = [&](Value tensor) { return tensor ? elementAt(k, tensor, block) : Value(); };
  return dequantized(
      k, op, elementAt(k, op.getCodes(), at), [&] { return ofBlock(op.getZeros()); },
      [&] { return ofBlock(op.getScales()); });
}

namespace {

struct DecomposeDequantization : OpRewritePattern<DequantizeBlocksOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(DequantizeBlocksOp op, PatternRewriter &rewriter) const override {
    auto type = cast<RankedTensorType>(op.getResult().getType());
    ReifiedRankedShapedTypeDims sizes;
    if (failed(op.reifyResultShapes(rewriter, sizes)))
      return rewriter.notifyMatchFailure(op, "the sizes of the result are unknown");
    auto atPlace = formula([&](Code &k, ArrayRef<Num>) {
      SmallVector<Value> at;
      for (int64_t dim = 0; dim < type.getRank(); ++dim)
        at.push_back(loopIndex(k, dim));
      return emitDequantized(k.b, k.loc, op, at);
    });
    // Of one block each element has its scale where its column (row) is: nothing is divided.
    auto ofOneBlock = formula([&](Code &k, ArrayRef<Num> x) {
      return dequantized(k, op, x[0], [] { return Value(); }, [&] { return x[1]; });
    });
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
      right = convertTensor(b, loc, right, f32);
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
