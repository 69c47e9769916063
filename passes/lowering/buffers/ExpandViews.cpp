#include "passes/Passes.h"
#include "passes/lowering/buffers/ExpandAccesses.h"
#include "passes/lowering/buffers/RewriteChosen.h"

#include "mlir/Conversion/AffineToStandard/AffineToStandard.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/MemRef/Transforms/Transforms.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace attn {
#define GEN_PASS_DEF_EXPANDVIEWSPASS
#include "passes/Passes.h.inc"
} // namespace attn

using namespace mlir;

namespace {
/// What needs no view expanded: nearly all that kernels do with buffers.
bool isAccess(Operation *op) { return isa<memref::LoadOp, memref::StoreOp, memref::PrefetchOp, memref::DimOp>(op); }

struct ExpandViewsPass : attn::impl::ExpandViewsPassBase<ExpandViewsPass> {
  LogicalResult initialize(MLIRContext *context) override {
    RewritePatternSet ofViews(context), ofSums(context);
    memref::populateExpandStridedMetadataPatterns(ofViews);
    populateAffineToStdConversionPatterns(ofSums);
    populateAffineToVectorConversionPatterns(ofSums);
    views = std::move(ofViews);
    sums = std::move(ofSums);
    return success();
  }

  void runOnOperation() override {
    (void)attn::rewriteChosen(getOperation(), views, [](Operation *op) {
      return isa<memref::MemRefDialect>(op->getDialect()) && !isAccess(op);
    });
    (void)attn::rewriteChosen(getOperation(), sums,
                              [](Operation *op) { return isa<affine::AffineDialect>(op->getDialect()); });
    attn::expandAccesses(getOperation());
  }

  void getDependentDialects(DialectRegistry &registry) const override {
    ExpandViewsPassBase::getDependentDialects(registry);
    registry.insert<LLVM::LLVMDialect>();
  }

private:
  FrozenRewritePatternSet views, sums;
};
} // namespace
