#include "dialects/attn/NodeLocation.h"
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

/// Replaces `op` by a kernel; otherwise it stays, to be decomposed, and the
/// reason comes back.
std::string lower(AttentionOp op, KernelTable &kernels, TargetAttr target) {
  std::string reason = unsupported(op);
  if (!reason.empty())
    return reason;
  AttentionSpec spec = AttentionSpec::get(op, target);
  if (!canBuildAttention(spec, &reason))
    return reason;
  FailureOr<func::FuncOp> kernel =
      kernels.getOrBuild(spec.symbol(), [&](OpBuilder &builder) { return buildAttention(builder, op.getLoc(), spec); });
  if (failed(kernel))
    return "the name '" + spec.symbol() + "' is taken";
  IRRewriter rewriter(op);
  ReifiedRankedShapedTypeDims shapes;
  if (failed(op.reifyResultShapes(rewriter, shapes)))
    return "the sizes of the result are unknown";
  remark::passed(op.getLoc(), remarkOpts()) << remark::add("{0}", spec.symbol());
  replaceByKernel(rewriter, op, *kernel, op->getOperands(), shapes.front());
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
      addToReport(nodeName(loc), reason);
    }
  }

  /// Completes the verdict on a fused attention: fusion without a kernel is worth little.
  void addToReport(StringRef node, StringRef reason) {
    auto report = getOperation()->getAttrOfType<ArrayAttr>(AttnDialect::kFusionReportAttr);
    if (!report)
      return;
    Builder b(&getContext());
    SmallVector<Attribute> verdicts(report.getValue());
    for (Attribute &verdict : verdicts) {
      auto fields = dyn_cast<DictionaryAttr>(verdict);
      if (!fields || fields.contains("kernel") || fields.getAs<BoolAttr>("fused") != b.getBoolAttr(true) ||
          fields.getAs<StringAttr>("node") != b.getStringAttr(node))
        continue;
      NamedAttrList list(fields);
      list.set("kernel", b.getBoolAttr(reason.empty()));
      list.set("kernel_reason", b.getStringAttr(reason));
      verdict = list.getDictionary(&getContext());
      break;
    }
    getOperation()->setAttr(AttnDialect::kFusionReportAttr, b.getArrayAttr(verdicts));
  }
};

} // namespace
