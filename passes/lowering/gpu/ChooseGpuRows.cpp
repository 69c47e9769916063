#include "passes/lowering/gpu/ChooseGpuRows.h"
#include "dialects/attn/AttnOps.h"
#include "dialects/attn/CacheOps.h"
#include "passes/Passes.h"
#include "passes/graph/Collect.h"
#include "passes/graph/decompose/Decompose.h"
#include "passes/kernels/gpu/Attention.h"
#include "passes/kernels/gpu/NarrowRows.h"
#include "passes/kernels/gpu/Rows.h"
#include "passes/lowering/choose/KernelCall.h"
#include "passes/lowering/choose/RowsInBytes.h"
#include "passes/lowering/cpu/RoundRows.h"
#include "passes/lowering/gpu/GpuKernelCall.h"
#include "passes/lowering/gpu/HostOps.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace attn {
#define GEN_PASS_DEF_CHOOSEGPUROWSPASS
#include "passes/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {
struct ChooseGpuRowsPass : attn::impl::ChooseGpuRowsPassBase<ChooseGpuRowsPass> {
  using ChooseGpuRowsPassBase::ChooseGpuRowsPassBase;

  void getDependentDialects(DialectRegistry &registry) const override {
    ChooseGpuRowsPassBase::getDependentDialects(registry);
    registry.insert<linalg::LinalgDialect>(); // in front of products, as of recurrent layers, or with blocks
  }

  void runOnOperation() override {
    // int8 is about products by weights, which are others than contractions then.
    bool narrowsRows = precision == "int8";
    if (!readOptions(getOperation(), narrowsRows ? "f32" : StringRef(precision), products, sm90a, images))
      return signalPassFailure();
    if (narrowsRows)
      roundRows(getOperation(), /*multipliesBytes=*/true);
    chooseGpuProducts(getOperation(), getArgument());
    KernelTable kernels(getOperation());
    chooseGpuRecurrent(getOperation(), kernels, getArgument());
    chooseGpuBlocks(getOperation(), kernels, getArgument());
    chooseGpuExtremes(getOperation(), kernels);
    chooseGpuFloat8(getOperation(), getArgument());
    auto target = TargetAttr::lookup(getOperation());
    for (AttentionOp op : collect<AttentionOp>(getOperation()))
      lowerAttention(op, kernels, target);
    SmallVector<Operation *> ops;
    getOperation().walk([&](Operation *op) {
      if (isa<SoftmaxOp, LayerNormOp, NarrowRowsOp>(op))
        ops.push_back(op);
    });
    for (Operation *op : ops)
      lowerRows(op, kernels, target);
  }

  void lowerRows(Operation *op, KernelTable &kernels, TargetAttr target) {
    std::string reason;
    Location loc = op->getLoc();
    FailureOr<func::FuncOp> kernel = failure();
    if (auto softmax = dyn_cast<SoftmaxOp>(op)) {
      auto spec = SoftmaxSpec::get(softmax, target);
      if (!spec.isOverLast())
        reason = "it is not over the last dimension";
      else if (canBuildGpuRows(spec.type, reason))
        kernel = kernels.getOrBuild("gpu_" + spec.symbol(), [&](OpBuilder &b) {
          return buildGpuRowSoftmax(b, loc, "gpu_" + spec.symbol(), spec);
        });
    } else if (auto norm = dyn_cast<LayerNormOp>(op)) {
      auto spec = LayerNormSpec::get(norm, target);
      if (canBuildGpuRows(spec.type, reason))
        kernel = kernels.getOrBuild("gpu_" + spec.symbol(), [&](OpBuilder &b) {
          return buildGpuLayerNorm(b, loc, "gpu_" + spec.symbol(), spec);
        });
    } else {
      auto spec = NarrowRowsSpec::get(cast<NarrowRowsOp>(op), target);
      if (canBuildGpuNarrowRows(spec, &reason))
        kernel = kernels.getOrBuild("gpu_" + spec.symbol(), [&](OpBuilder &b) {
          return buildGpuNarrowRows(b, loc, "gpu_" + spec.symbol(), spec);
        });
    }
    if (failed(kernel))
      return noteMissed(op, getArgument(), "rows", reason.empty() ? "its name is taken" : reason);
    IRRewriter rewriter(op);
    SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(rewriter, loc, op->getOperand(0));
    if (isa<NarrowRowsOp>(op))
      sizes.back() = rewriter.getIndexAttr(cast<RankedTensorType>(op->getResult(0).getType()).getShape().back());
    // A result of the input's sizes may take its buffer.
    SmallVector<int64_t> elementwise(isa<NarrowRowsOp>(op) ? 0 : 1, 0);
    replaceByKernel(rewriter, op, *kernel, op->getOperands(), sizes, elementwise);
  }

  void lowerAttention(AttentionOp op, KernelTable &kernels, TargetAttr target) {
    IRRewriter rewriter(op);
    op = reduceExtraResults(op, rewriter);
    rewriter.setInsertionPoint(op);
    SmallVector<Value> operands = getOperandsInBytes(op, /*readsFloat8=*/true);
    AttentionSpec spec = AttentionSpec::get(op, target, /*narrow=*/false, operands);
    if (!canBuildGpuAttention(spec)) {
      operands.assign(op->operand_begin(), op->operand_end()); // bytes are written out
      spec = AttentionSpec::get(op, target);
    }
    std::string reason, symbol = "gpu_" + spec.symbol();
    WalkResult code =
        op->walk([](Operation *each) { return lacksGpuCode(each) ? WalkResult::interrupt() : WalkResult::advance(); });
    if (code.wasInterrupted())
      reason = "a function of its scores has no code for a GPU";
    if (code.wasInterrupted() || !canBuildGpuAttention(spec, &reason))
      return noteMissed(op, getArgument(), "attention", reason);
    FailureOr<func::FuncOp> kernel = kernels.getOrBuild(
        symbol, [&](OpBuilder &b) { return buildGpuAttention(b, op.getLoc(), symbol, spec, products, images); });
    ReifiedRankedShapedTypeDims shapes;
    if (failed(kernel) || failed(op.reifyResultShapes(rewriter, shapes)))
      return noteMissed(op, getArgument(), "attention", "its name is taken, or its sizes are unknown");
    Location loc = op.getLoc();
    auto sizeOf = [&](int64_t dim) -> Value {
      if (std::optional<int64_t> size = spec.getStaticSize(dim))
        return arith::ConstantIndexOp::create(rewriter, loc, *size);
      for (auto [operand, map] : llvm::zip(operands, spec.maps))
        if (auto n = map.getResultPosition(getAffineDimExpr(dim, map.getContext())))
          return rewriter.createOrFold<tensor::DimOp>(loc, operand, *n);
      llvm_unreachable("canBuildAttention has seen to it that a map names the dimension");
    };
    SmallVector<Value> before(op->getOperands());
    if (Value elements = countGpuAttentionScratch(rewriter, loc, spec, sizeOf, products, images))
      replaceWithScratch(rewriter, op, *kernel, operands, shapes, elements);
    else
      replaceByKernel(rewriter, op, *kernel, operands, shapes);
    readSizesOfBytes(before);
  }

  Precision products = Precision::f32;
  Sm90a images = Sm90a::none;
};
} // namespace
