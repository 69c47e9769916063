#include "dialects/attn/AttnOps.h"
#include "passes/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/Transforms/DialectConversion.h"
#include "mlir/Transforms/WalkPatternRewriteDriver.h"

namespace attn {
#define GEN_PASS_DEF_EXPANDHALFFLOATSPASS
#include "passes/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {
/// Integer and f32 arithmetic on scalars or vectors of the shape of `like`.
struct Bits {
  OpBuilder &b;
  Location loc;
  Type like;

  Type type(Type element) const {
    auto vector = dyn_cast<VectorType>(like);
    return vector ? Type(vector.clone(element)) : element;
  }
  Type i16() const { return type(b.getI16Type()); }
  Type i32() const { return type(b.getI32Type()); }
  Type f32() const { return type(b.getF32Type()); }
  Value number(uint32_t value) const {
    TypedAttr scalar = b.getI32IntegerAttr(static_cast<int32_t>(value));
    if (auto vector = dyn_cast<VectorType>(i32()))
      scalar = DenseElementsAttr::get(vector, Attribute(scalar));
    return arith::ConstantOp::create(b, loc, scalar);
  }
  Value add(Value x, Value y) const { return arith::AddIOp::create(b, loc, x, y); }
  Value band(Value x, uint32_t mask) const { return arith::AndIOp::create(b, loc, x, number(mask)); }
  Value bor(Value x, Value y) const { return arith::OrIOp::create(b, loc, x, y); }
  Value shl(Value x, uint32_t by) const { return arith::ShLIOp::create(b, loc, x, number(by)); }
  Value shr(Value x, uint32_t by) const { return arith::ShRUIOp::create(b, loc, x, number(by)); }
  Value cast(Type to, Value x) const { return arith::BitcastOp::create(b, loc, to, x); }
  Value less(Value x, uint32_t y) const {
    return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, x, number(y));
  }
  Value select(Value condition, Value x, Value y) const { return arith::SelectOp::create(b, loc, condition, x, y); }
};

/// Shifts exponent and mantissa into place and corrects the bias; a denormal
/// is normalised by a float subtraction, infinity and NaN get the bias twice.
struct WidenHalf : OpRewritePattern<arith::ExtFOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(arith::ExtFOp op, PatternRewriter &rewriter) const override {
    if (!getElementTypeOrSelf(op.getIn().getType()).isF16())
      return rewriter.notifyMatchFailure(op, "not from f16");
    Bits bits{rewriter, op.getLoc(), op.getType()};
    Value half = arith::ExtUIOp::create(rewriter, op.getLoc(), bits.i32(), bits.cast(bits.i16(), op.getIn()));
    Value magnitude = bits.shl(bits.band(half, 0x7fff), 13);
    Value biased = bits.add(magnitude, bits.number(112u << 23));
    Value special = bits.add(biased, bits.number(112u << 23));
    Value denormal =
        bits.cast(bits.i32(), arith::SubFOp::create(rewriter, op.getLoc(),
                                                    bits.cast(bits.f32(), bits.add(biased, bits.number(1u << 23))),
                                                    bits.cast(bits.f32(), bits.number(113u << 23))));
    Value result = bits.select(bits.less(magnitude, 0x7c00u << 13), biased, special);
    result = bits.select(bits.less(magnitude, 0x0400u << 13), denormal, result);
    result = bits.cast(bits.f32(), bits.bor(result, bits.shl(bits.band(half, 0x8000), 16)));
    if (!getElementTypeOrSelf(op.getType()).isF32())
      result = arith::ExtFOp::create(rewriter, op.getLoc(), op.getType(), result);
    rewriter.replaceOp(op, result);
    return success();
  }
};

/// Rounds to the nearest even: a denormal by adding 0.5, whose mantissa then
/// ends where the result's does, all else by integer addition with carry.
struct NarrowToHalf : OpRewritePattern<arith::TruncFOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(arith::TruncFOp op, PatternRewriter &rewriter) const override {
    if (!getElementTypeOrSelf(op.getType()).isF16() || !getElementTypeOrSelf(op.getIn().getType()).isF32())
      return rewriter.notifyMatchFailure(op, "not from f32 to f16");
    Bits bits{rewriter, op.getLoc(), op.getType()};
    Value word = bits.cast(bits.i32(), op.getIn());
    Value magnitude = bits.band(word, 0x7fffffff);
    Value sign = bits.shr(bits.band(word, 0x80000000), 16);
    Value odd = bits.band(bits.shr(magnitude, 13), 1);
    Value normal = bits.shr(bits.add(bits.add(magnitude, bits.number(0xc8000fff)), odd), 13);
    Value half = bits.number(0x3f000000); // 0.5
    Value denormal = arith::SubIOp::create(
        rewriter, op.getLoc(),
        bits.cast(bits.i32(), arith::AddFOp::create(rewriter, op.getLoc(), bits.cast(bits.f32(), magnitude),
                                                    bits.cast(bits.f32(), half))),
        half);
    Value special = bits.select(bits.less(magnitude, 0x7f800001), bits.number(0x7c00), bits.number(0x7e00));
    Value result = bits.select(bits.less(magnitude, 0x38800000), denormal, normal);
    result = bits.bor(bits.select(bits.less(magnitude, 0x47800000), result, special), sign);
    Value narrow = arith::TruncIOp::create(rewriter, op.getLoc(), bits.i16(), result);
    rewriter.replaceOp(op, bits.cast(op.getType(), narrow));
    return success();
  }
};

/// f64 to a half by way of f32, rounded to odd there, so that the second
/// rounding cannot meet a tie that the first one made (Boldo and Melquiond,
/// "Emulation of FMA and correctly rounded sums", 2008).
struct NarrowDoubleToHalf : OpRewritePattern<arith::TruncFOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(arith::TruncFOp op, PatternRewriter &rewriter) const override {
    Type element = getElementTypeOrSelf(op.getType());
    if (!getElementTypeOrSelf(op.getIn().getType()).isF64() || !(element.isF16() || element.isBF16()))
      return rewriter.notifyMatchFailure(op, "not from f64 to a half");
    Location loc = op.getLoc();
    Bits bits{rewriter, loc, op.getType()};
    Value input = op.getIn();
    Value near = arith::TruncFOp::create(rewriter, loc, bits.f32(), input);
    Value back = arith::ExtFOp::create(rewriter, loc, input.getType(), near);
    auto compare = [&](arith::CmpFPredicate predicate, Value x, Value y) -> Value {
      return arith::CmpFOp::create(rewriter, loc, predicate, x, y);
    };
    Value zero = arith::ConstantOp::create(rewriter, loc, rewriter.getZeroAttr(input.getType()));
    Value above = compare(arith::CmpFPredicate::OGT, back, input),
          below = compare(arith::CmpFPredicate::OLT, back, input);
    Value away = bits.select(compare(arith::CmpFPredicate::OGT, input, zero), above, below);
    Value inexact = compare(arith::CmpFPredicate::UNE, back, input);
    auto toWord = [&](Value flag) -> Value { return arith::ExtUIOp::create(rewriter, loc, bits.i32(), flag); };
    Value truncated = arith::SubIOp::create(rewriter, loc, bits.cast(bits.i32(), near), toWord(away));
    Value odd = bits.cast(bits.f32(), bits.bor(truncated, toWord(inexact)));
    rewriter.replaceOpWithNewOp<arith::TruncFOp>(op, op.getType(), odd);
    return success();
  }
};

struct ExpandHalfFloatsPass : attn::impl::ExpandHalfFloatsPassBase<ExpandHalfFloatsPass> {
  void runOnOperation() override {
    MLIRContext *context = &getContext();
    bool any = false;
    auto isHalf = [](Type type) {
      Type element = getElementTypeOrSelf(type);
      return element.isF16() || element.isBF16();
    };
    getOperation().walk([&](Operation *op) {
      any |= llvm::any_of(op->getOperandTypes(), isHalf) || llvm::any_of(op->getResultTypes(), isHalf);
    });
    if (!any)
      return;
    {
      TypeConverter converter;
      Type sources[] = {Float16Type::get(context), BFloat16Type::get(context)};
      arith::populateEmulateUnsupportedFloatsConversions(converter, sources, Float32Type::get(context));
      RewritePatternSet patterns(context);
      arith::populateEmulateUnsupportedFloatsPatterns(patterns, converter);
      ConversionTarget target(*context);
      arith::populateEmulateUnsupportedFloatsLegality(target, converter);
      if (failed(applyPartialConversion(getOperation(), target, std::move(patterns))))
        return signalPassFailure();
    }
    RewritePatternSet doubles(context);
    doubles.add<NarrowDoubleToHalf>(context);
    walkAndApplyPatterns(getOperation(), std::move(doubles));

    RewritePatternSet patterns(context);
    arith::populateExpandBFloat16Patterns(patterns);
    if (TargetAttr::lookup(getOperation()).getIsa() == "portable")
      patterns.add<WidenHalf, NarrowToHalf>(context);
    walkAndApplyPatterns(getOperation(), std::move(patterns));
  }
};
} // namespace
