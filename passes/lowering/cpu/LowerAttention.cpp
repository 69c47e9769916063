#include "dialects/attn/NodeLocation.h"
#include "passes/Passes.h"
#include "passes/graph/Decompose.h"
#include "passes/kernels/cpu/Attention.h"
#include "passes/lowering/cpu/FusionVerdict.h"
#include "passes/lowering/cpu/KernelCall.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
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

/// Notes what the products of `op` cost, for profiles, where its sizes are
/// fixed: of all pairs, though masks may hide some.
void noteFlops(AttentionOp op, RewriterBase &rewriter) {
  int64_t sizes[6];
  for (auto [i, size] : llvm::enumerate(op.getIterationSizes(rewriter, op.getLoc()))) {
    std::optional<int64_t> number = getConstantIntValue(size);
    if (!number)
      return;
    sizes[i] = *number;
  }
  auto [b, h, i, j, d, e] = sizes;
  op->setAttr(AttnDialect::kFlopsAttr, rewriter.getI64IntegerAttr(2 * b * h * i * j * (d + e)));
}

/// Replaces `op` by a kernel; otherwise it stays, to be decomposed, and the
/// reason comes back.
std::string lower(AttentionOp op, KernelTable &kernels, TargetAttr target) {
  std::string reason;
  IRRewriter rewriter(op);
  op = reduceExtraResults(op, rewriter);
  rewriter.setInsertionPoint(op);
  AttentionSpec spec = AttentionSpec::get(op, target);
  if (!canBuildAttention(spec, &reason))
    return reason;
  FailureOr<func::FuncOp> kernel =
      kernels.getOrBuild(spec.symbol(), [&](OpBuilder &builder) { return buildAttention(builder, op.getLoc(), spec); });
  if (failed(kernel))
    return "the name '" + spec.symbol() + "' is taken";
  ReifiedRankedShapedTypeDims shapes;
  if (failed(op.reifyResultShapes(rewriter, shapes)))
    return "the sizes of the result are unknown";
  remark::passed(op.getLoc(), remarkOpts()) << remark::add("{0}", spec.symbol());
  noteFlops(op, rewriter);
  replaceByKernel(rewriter, op, *kernel, op->getOperands(), shapes);
  return "";
}

struct LowerAttentionPass : attn::impl::LowerAttentionPassBase<LowerAttentionPass> {
  void runOnOperation() override {
    KernelTable kernels(getOperation());
    SmallVector<AttentionOp> ops;
    getOperation().walk([&](AttentionOp op) { ops.push_back(op); });
    for (AttentionOp op : ops) {
      Location loc = op.getLoc();
      std::string reason = lower(op, kernels, TargetAttr::lookup(op));
      if (!reason.empty())
        remark::missed(loc, remarkOpts()) << remark::reason("{0}", reason);
      // Fusion without a kernel is worth little.
      Builder b(&getContext());
      completeVerdict(getOperation(), nodeName(loc),
                      {b.getNamedAttr("kernel", b.getBoolAttr(reason.empty())),
                       b.getNamedAttr("kernel_reason", b.getStringAttr(reason))});
    }
  }
};

} // namespace
