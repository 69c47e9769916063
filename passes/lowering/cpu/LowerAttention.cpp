#include "passes/Passes.h"
#include "passes/kernels/cpu/Attention.h"
#include "passes/lowering/cpu/KernelCall.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Remarks.h"

namespace attn {
#define GEN_PASS_DEF_LOWERATTENTIONPASS
#include "passes/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {

remark::RemarkOpts remarkOpts() { return remark::RemarkOpts::name("attention").category("attn-lower-attention"); }

/// What the kernel path has no kernel for yet; attn-decompose takes these ops.
std::string unsupported(AttentionOp op) {
  if (op.isPlain())
    return "";
  if (op.getKind() != ScoreKind::dot)
    return ("no kernel for scores of kind " + stringifyScoreKind(op.getKind())).str();
  if (op.getNormalizer() != Normalizer::softmax)
    return ("no kernel for normalizer " + stringifyNormalizer(op.getNormalizer())).str();
  if (!op.getMask().empty())
    return "no kernel for mask terms";
  if (!op.getExtraResults().empty())
    return "no kernel for extra results";
  return op.getMasked().empty() ? "no kernel for this softmax_type" : "no kernel for a masked region";
}

void lower(AttentionOp op, KernelTable &kernels, TargetAttr target) {
  if (std::string reason = unsupported(op); !reason.empty()) {
    remark::missed(op.getLoc(), remarkOpts()) << remark::reason("{0}", reason);
    return;
  }
  AttentionSpec spec = AttentionSpec::get(op, target);
  std::string reason;
  if (!canBuildAttention(spec, &reason)) {
    remark::missed(op.getLoc(), remarkOpts()) << remark::reason("{0}", reason);
    return;
  }
  FailureOr<func::FuncOp> kernel =
      kernels.getOrBuild(spec.symbol(), [&](OpBuilder &builder) { return buildAttention(builder, op.getLoc(), spec); });
  if (failed(kernel)) {
    remark::missed(op.getLoc(), remarkOpts()) << remark::reason("the name '{0}' is taken", spec.symbol());
    return;
  }
  IRRewriter rewriter(op);
  ReifiedRankedShapedTypeDims shapes;
  if (failed(op.reifyResultShapes(rewriter, shapes))) {
    remark::missed(op.getLoc(), remarkOpts()) << remark::reason("the sizes of the result are unknown");
    return;
  }
  remark::passed(op.getLoc(), remarkOpts()) << remark::add("{0}", spec.symbol());
  replaceByKernel(rewriter, op, *kernel, op->getOperands(), shapes.front());
}

struct LowerAttentionPass : attn::impl::LowerAttentionPassBase<LowerAttentionPass> {
  void runOnOperation() override {
    KernelTable kernels(getOperation());
    SmallVector<AttentionOp> ops;
    getOperation().walk([&](AttentionOp op) { ops.push_back(op); });
    for (AttentionOp op : ops)
      lower(op, kernels, TargetAttr::lookup(op));
  }
};

} // namespace
