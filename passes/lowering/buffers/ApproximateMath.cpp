#include "passes/Passes.h"

#include "mlir/Conversion/MathToLibm/MathToLibm.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Transforms/DialectConversion.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

namespace attn {
#define GEN_PASS_DEF_APPROXIMATEMATHPASS
#include "passes/Passes.h.inc"
} // namespace attn

using namespace mlir;

namespace {
/// What neither a polynomial nor the LLVM dialect knows: f64 mostly.
void callMathLibrary(ModuleOp module, bool &failed) {
  ConversionTarget target(*module.getContext());
  target.markUnknownOpDynamicallyLegal([](Operation *) { return true; });
  target.addIllegalOp<math::ErfOp, math::ErfcOp, math::CbrtOp, math::AsinhOp, math::AcoshOp, math::AtanhOp>();
  RewritePatternSet patterns(module.getContext());
  populateMathToLibmConversionPatterns(patterns);
  failed = mlir::failed(applyPartialConversion(module, target, std::move(patterns)));
}

struct ApproximateMathPass : attn::impl::ApproximateMathPassBase<ApproximateMathPass> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    // f16 and bf16 first go to f32, where the polynomials are.
    populateMathF32ExpansionPatterns(patterns, [](StringRef) { return true; });
    populateMathPolynomialApproximationPatterns(patterns, [](StringRef name) {
      // The hardware has a square root; the approximation is only for AVX2's rsqrtps.
      return name != "math.rsqrt";
    });
    math::populateExpansionPatterns(patterns,
                                    {"sinh", "cosh", "tan", "asinh", "acosh", "atanh", "exp2", "rsqrt", "clampf"});
    GreedyRewriteConfig config;
    config.setRegionSimplificationLevel(GreedySimplifyRegionLevel::Disabled);
    bool failed = mlir::failed(applyPatternsGreedily(getOperation(), std::move(patterns), config));
    if (!failed)
      callMathLibrary(getOperation(), failed);
    if (failed)
      signalPassFailure();
  }
};
} // namespace
