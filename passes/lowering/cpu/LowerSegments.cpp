#include "dialects/attn/SegmentAttentionOp.h"
#include "passes/Passes.h"
#include "passes/graph/Collect.h"
#include "passes/graph/FusionVerdict.h"
#include "passes/kernels/cpu/SegmentAttention.h"
#include "passes/lowering/choose/KernelCall.h"

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
#define GEN_PASS_DEF_LOWERSEGMENTSPASS
#include "passes/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {

/// Replaces `op` by a kernel, whose name `symbol` becomes; otherwise the reason comes back.
std::string lowerSegments(SegmentAttentionOp op, KernelTable &kernels, TargetAttr target, std::string &symbol) {
  SegmentAttentionSpec spec = SegmentAttentionSpec::get(op, target);
  std::string reason;
  if (!canBuildSegmentAttention(spec, &reason))
    return reason;
  FailureOr<func::FuncOp> kernel = kernels.getOrBuild(spec, op.getLoc(), buildSegmentAttention);
  if (failed(kernel))
    return "the name '" + spec.symbol() + "' is taken";
  IRRewriter rewriter(op);
  ReifiedRankedShapedTypeDims sizes;
  if (failed(op.reifyResultShapes(rewriter, sizes)))
    return "the sizes of the result are unknown";
  symbol = spec.symbol();
  replaceByKernel(rewriter, op, *kernel, op->getOperands(), sizes);
  return "";
}

struct LowerSegmentsPass : attn::impl::LowerSegmentsPassBase<LowerSegmentsPass> {
  void runOnOperation() override {
    KernelTable kernels(getOperation());
    auto named = remark::RemarkOpts::name("segments").category("attn-lower-segments");
    for (SegmentAttentionOp op : collect<SegmentAttentionOp>(getOperation())) {
      Location loc = op.getLoc();
      VerdictName name(op);
      std::string symbol, reason = lowerSegments(op, kernels, TargetAttr::lookup(op), symbol);
      if (reason.empty())
        remark::passed(loc, named) << remark::add("{0}", symbol);
      else
        remark::missed(loc, named) << remark::reason("{0}", reason);
      Builder b(&getContext());
      completeVerdict(getOperation(), name,
                      {b.getNamedAttr("kernel", b.getBoolAttr(reason.empty())),
                       b.getNamedAttr("kernel_reason", b.getStringAttr(reason)),
                       b.getNamedAttr("kernel_symbol", b.getStringAttr(symbol))});
    }
  }
};

} // namespace
