#include "passes/Passes.h"
#include "passes/kernels/cpu/Normalization.h"
#include "passes/lowering/cpu/KernelCall.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Remarks.h"

namespace attn {
#define GEN_PASS_DEF_LOWERNORMALIZATIONPASS
#include "passes/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {

class NormalizationLowering {
public:
  explicit NormalizationLowering(ModuleOp module) : kernels(module), target(TargetAttr::lookup(module)) {}

  void lower(SoftmaxOp op) {
    if (static_cast<int64_t>(op.getDim()) + 1 != cast<ShapedType>(op.getInput().getType()).getRank()) {
      missed(op, "softmax", "it is not over the last dimension");
      return;
    }
    RowSoftmaxSpec spec = RowSoftmaxSpec::get(op, target);
    lowerTo(op, "softmax", spec, canBuildRowSoftmax, buildRowSoftmax);
  }
  void lower(LayerNormOp op) {
    LayerNormSpec spec = LayerNormSpec::get(op, target);
    lowerTo(op, "layer_norm", spec, canBuildLayerNorm, buildLayerNorm);
  }

private:
  static remark::RemarkOpts remarkNamed(StringRef name) {
    return remark::RemarkOpts::name(name).category("attn-lower-normalization");
  }
  static void missed(Operation *op, StringRef name, StringRef reason) {
    remark::missed(op->getLoc(), remarkNamed(name)) << remark::reason("{0}", reason);
  }

  template <typename Spec, typename CanBuild, typename Build>
  void lowerTo(Operation *op, StringRef name, const Spec &spec, CanBuild canBuild, Build build) {
    std::string reason;
    if (!canBuild(spec, &reason))
      return missed(op, name, reason);
    FailureOr<func::FuncOp> kernel =
        kernels.getOrBuild(spec.symbol(), [&](OpBuilder &builder) { return build(builder, op->getLoc(), spec); });
    if (failed(kernel))
      return missed(op, name, "the name '" + spec.symbol() + "' is taken");
    remark::passed(op->getLoc(), remarkNamed(name)) << remark::add("{0}", spec.symbol());
    IRRewriter rewriter(op);
    // The result has the input's sizes, and may take its buffer.
    SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(rewriter, op->getLoc(), op->getOperand(0));
    replaceByKernel(rewriter, op, *kernel, op->getOperands(), sizes, /*elementwise=*/{0});
  }

  KernelTable kernels;
  TargetAttr target;
};

struct LowerNormalizationPass : attn::impl::LowerNormalizationPassBase<LowerNormalizationPass> {
  void runOnOperation() override {
    NormalizationLowering lowering(getOperation());
    SmallVector<Operation *> ops;
    getOperation().walk([&](Operation *op) {
      if (isa<SoftmaxOp, LayerNormOp>(op))
        ops.push_back(op);
    });
    for (Operation *op : ops) {
      if (auto softmax = dyn_cast<SoftmaxOp>(op))
        lowering.lower(softmax);
      else
        lowering.lower(cast<LayerNormOp>(op));
    }
  }
};

} // namespace
