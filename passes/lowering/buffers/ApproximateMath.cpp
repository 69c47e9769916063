#include "passes/Passes.h"
#include "passes/kernels/shared/Angle.h"
#include "passes/kernels/shared/FloatFunctions.h"
#include "passes/lowering/buffers/RewriteChosen.h"

#include "mlir/Conversion/MathToLibm/MathToLibm.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/Transforms/DialectConversion.h"
#include "llvm/ADT/TypeSwitch.h"
#include <cmath>

namespace attn {
#define GEN_PASS_DEF_APPROXIMATEMATHPASS
#include "passes/Passes.h.inc"
} // namespace attn

using namespace mlir;

namespace {
/// erf(x) = x P(x^2), with |x| clamped to `edge`, where erf is 1. P is a minimax
/// fit in s = 2 (x / edge)^2 - 1, whose coefficients are small: no term cancels
/// much, no division. At the edge the result is 1 itself, so that 1 - erf is not
/// the last bit of 1 times a large x.
struct ErfFit {
  float edge;
  ArrayRef<float> coefficients; ///< the highest first
};
constexpr float kErf[] = {9.257656056e-04f,  -2.337429905e-03f, 1.909225830e-03f,  -2.981471131e-03f, 9.383100085e-03f,
                          -1.714233495e-02f, 2.522409521e-02f,  -3.759184852e-02f, 5.394301564e-02f,  -7.181745023e-02f,
                          9.076306969e-02f,  -1.117919162e-01f, 1.389632672e-01f,  -1.875483841e-01f, 3.760567307e-01f};
/// Error 3.6e-6, for results of 8 bits (`afn`).
constexpr float kShortErf[] = {3.934534267e-03f, -9.593757801e-03f, 1.032638457e-02f, -1.720984280e-02f,
                               3.685222566e-02f, -5.935130268e-02f, 8.383833617e-02f, -1.143602431e-01f,
                               1.522036344e-01f, -2.119275182e-01f, 4.287776649e-01f};

struct ErfToPolynomial : OpRewritePattern<math::ErfOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(math::ErfOp op, PatternRewriter &rewriter) const override {
    bool isShort = arith::bitEnumContainsAny(op.getFastmath(), arith::FastMathFlags::afn);
    const ErfFit fit = isShort ? ErfFit{3.295f, kShortErf} : ErfFit{3.76f, kErf};
    Type type = op.getType();
    if (!getElementTypeOrSelf(type).isF32())
      return failure();
    Location loc = op.getLoc();
    auto constant = [&](float value) -> Value {
      TypedAttr number = rewriter.getF32FloatAttr(value);
      if (auto vector = dyn_cast<VectorType>(type))
        number = SplatElementsAttr::get(vector, value);
      return arith::ConstantOp::create(rewriter, loc, number);
    };
    auto smaller = [&](arith::CmpFPredicate predicate, Value bound, Value x) -> Value { // a NaN stays
      Value exceeds = arith::CmpFOp::create(rewriter, loc, predicate, bound, x);
      return arith::SelectOp::create(rewriter, loc, exceeds, bound, x);
    };
    Value x = smaller(arith::CmpFPredicate::OLT, constant(fit.edge), multiply(op.getOperand(), constant, rewriter));
    x = smaller(arith::CmpFPredicate::OGT, constant(-fit.edge), x);
    Value square = arith::MulFOp::create(rewriter, loc, x, x);
    Value s = math::FmaOp::create(rewriter, loc, square, constant(2 / (fit.edge * fit.edge)), constant(-1));
    auto horner = [&](size_t first, size_t step, Value variable) {
      Value p = constant(fit.coefficients[first]);
      for (size_t n = first + step; n < fit.coefficients.size(); n += step)
        p = math::FmaOp::create(rewriter, loc, p, variable, constant(fit.coefficients[n]));
      return p;
    };
    Value p;
    if (isShort) { // even and odd powers side by side: half the latency
      Value t = arith::MulFOp::create(rewriter, loc, s, s);
      p = math::FmaOp::create(rewriter, loc, horner(1, 2, t), s, horner(0, 2, t));
    } else {
      p = horner(0, 1, s);
    }
    rewriter.replaceOpWithNewOp<arith::MulFOp>(op, x, p);
    return success();
  }

  /// `x`; a quotient by a constant (GELU's square root of 2) as a product, whose
  /// last bit the polynomial does not see.
  static Value multiply(Value x, llvm::function_ref<Value(float)> constant, PatternRewriter &rewriter) {
    auto quotient = x.getDefiningOp<arith::DivFOp>();
    APFloat divisor(0.0f);
    if (!quotient || !matchPattern(quotient.getRhs(), m_ConstantFloat(&divisor)))
      return x;
    auto factor = static_cast<float>(1 / divisor.convertToDouble());
    if (!std::isnormal(factor))
      return x;
    return arith::MulFOp::create(rewriter, quotient.getLoc(), quotient.getLhs(), constant(factor));
  }
};

/// What our polynomials make of `op` with the operand `x`, f32 or a vector of it with one dimension; null for other
/// ops.
Value expandFunction(OpBuilder &b, Operation *op, Value x) {
  using attn::AngleFunction, attn::FloatFunction;
  auto angle = [&](AngleFunction which) { return attn::emitAngleFunction(b, op->getLoc(), which, x); };
  auto function = [&](FloatFunction which) { return attn::emitFloatFunction(b, op->getLoc(), which, x); };
  return llvm::TypeSwitch<Operation *, Value>(op)
      .Case([&](math::SinOp) { return angle(AngleFunction::Sine); })
      .Case([&](math::CosOp) { return angle(AngleFunction::Cosine); })
      .Case([&](math::ExpOp) { return function(FloatFunction::Exponential); })
      .Case([&](math::LogOp) { return function(FloatFunction::Logarithm); })
      .Case([&](math::AsinOp) { return function(FloatFunction::Arcsine); })
      .Case([&](math::AtanOp) { return function(FloatFunction::Arctangent); })
      .Default([](Operation *) { return Value(); });
}

/// Functions of f32 for which ours are better than MLIR's. Not patterns: builders fold, which the driver of patterns
/// must hear of.
void expandFunctions(ModuleOp module) {
  SmallVector<Operation *> ops;
  module.walk([&](Operation *op) {
    if (isa<math::SinOp, math::CosOp, math::ExpOp, math::LogOp, math::AsinOp, math::AtanOp>(op) &&
        getElementTypeOrSelf(op->getResult(0)).isF32())
      ops.push_back(op);
  });
  for (Operation *op : ops) {
    OpBuilder b(op);
    Location loc = op->getLoc();
    Type type = op->getResult(0).getType();
    auto vector = dyn_cast<VectorType>(type);
    bool isFlat = !vector || vector.getRank() == 1;
    Value x = op->getOperand(0);
    if (!isFlat)
      x = vector::ShapeCastOp::create(b, loc, VectorType::get(vector.getNumElements(), b.getF32Type()), x);
    Value result = expandFunction(b, op, x);
    if (!isFlat)
      result = vector::ShapeCastOp::create(b, loc, type, result);
    op->getResult(0).replaceAllUsesWith(result);
    op->erase();
  }
}

/// What neither a polynomial nor the LLVM dialect knows: f64 mostly.
void callMathLibrary(ModuleOp module, bool &failed) {
  ConversionTarget target(*module.getContext());
  target.markUnknownOpDynamicallyLegal([](Operation *) { return true; });
  target.addIllegalOp<math::ErfOp, math::ErfcOp, math::CbrtOp, math::AsinhOp, math::AcoshOp, math::AtanhOp,
                      math::ExpM1Op, math::Log1pOp>();
  RewritePatternSet patterns(module.getContext());
  populateMathToLibmConversionPatterns(patterns);
  failed = mlir::failed(applyPartialConversion(module, target, std::move(patterns)));
}

struct ApproximateMathPass : attn::impl::ApproximateMathPassBase<ApproximateMathPass> {
  LogicalResult initialize(MLIRContext *context) override {
    RewritePatternSet set(context);
    // f16 and bf16 first go to f32, where the polynomials are.
    populateMathF32ExpansionPatterns(set, [](StringRef) { return true; });
    populateMathPolynomialApproximationPatterns(set, [](StringRef name) {
      // The hardware has a square root; the approximation is only for AVX2's rsqrtps.
      return !llvm::is_contained<StringRef>(
          {"math.rsqrt", "math.erf", "math.sin", "math.cos", "math.exp", "math.log", "math.asin", "math.atan"}, name);
    });
    set.add<ErfToPolynomial>(context);
    math::populateExpansionPatterns(set, {"sinh", "cosh", "tan", "asinh", "acosh", "atanh", "exp2", "rsqrt", "clampf"});
    patterns = std::move(set);
    return success();
  }

  void runOnOperation() override {
    if (failed(attn::rewriteChosen(getOperation(), patterns, isMath)))
      return signalPassFailure();
    expandFunctions(getOperation()); // after the patterns, which make exponentials and logarithms
    bool isLeft = getOperation()
                      ->walk([](Operation *op) { return isMath(op) ? WalkResult::interrupt() : WalkResult::advance(); })
                      .wasInterrupted();
    bool failed = false;
    if (isLeft)
      callMathLibrary(getOperation(), failed);
    if (failed)
      signalPassFailure();
  }

private:
  static bool isMath(Operation *op) { return isa_and_nonnull<math::MathDialect>(op->getDialect()); }

  FrozenRewritePatternSet patterns;
};
} // namespace
