#include "dialects/attn/NodeLocation.h"
#include "passes/Passes.h"
#include "passes/graph/Collect.h"
#include "passes/graph/FusionVerdict.h"
#include "passes/graph/decompose/Decompose.h"
#include "passes/kernels/cpu/Attention.h"
#include "passes/kernels/cpu/AttentionRow.h"
#include "passes/kernels/cpu/Gemm.h"
#include "passes/lowering/choose/KernelCall.h"
#include "passes/lowering/choose/RowsInBytes.h"
#include "passes/lowering/cpu/BlockWeights.h"
#include "passes/lowering/cpu/NarrowValues.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Remarks.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/SetVector.h"

namespace attn {
#define GEN_PASS_DEF_LOWERATTENTIONPASS
#include "passes/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {

remark::RemarkOpts remarkOpts() { return remark::RemarkOpts::name("attention").category("attn-lower-attention"); }

/// Notes what the products of `op` cost, for profiles: of all pairs, though masks may hide some.
void noteFlops(AttentionOp op, RewriterBase &rewriter) {
  SmallVector<OpFoldResult> sizes = op.getIterationSizes(rewriter, op.getLoc());
  std::optional<int64_t> d = getConstantIntValue(sizes[AttentionOp::D]), e = getConstantIntValue(sizes[AttentionOp::E]);
  if (!d || !e)
    return;
  // A number, and the operand and the dimension of each size that is open.
  SmallVector<int64_t> factors{2 * (*d + *e)};
  for (unsigned dim : {AttentionOp::B, AttentionOp::H, AttentionOp::I, AttentionOp::J}) {
    if (std::optional<int64_t> size = getConstantIntValue(sizes[dim])) {
      factors.front() *= *size;
      continue;
    }
    size_t known = factors.size();
    for (unsigned n = 0; n != op->getNumOperands() && factors.size() == known; ++n)
      for (auto [place, expr] : llvm::enumerate(op.getMap(n).getResults()))
        if (AttentionOp::getNamedDim(expr) == dim && AttentionOp::getDivisor(expr) == 1) {
          factors.append({n, static_cast<int64_t>(place)});
          break;
        }
    if (factors.size() == known)
      return;
  }
  op->setAttr(AttnDialect::kFlopsAttr, rewriter.getDenseI64ArrayAttr(factors));
}

/// Whether `op` on f32 is worth rounding to bf16: its products are of pairs then.
bool isWorthRounding(AttentionOp op, const AttentionSpec &spec, TargetAttr target) {
  bool isFew = spec.getStaticSize(AttentionOp::Dim::I).value_or(ShapedType::kDynamic) <= kMaxRowQueries;
  return hasNarrowProducts(target) && spec.readsPairs() && !isFew &&
         llvm::all_of(ValueRange{op.getQuery(), op.getKey(), op.getValue()}, RoundedValues::isComputed);
}

/// `op` on its operands in bf16, in its place; results of others stay as they are.
AttentionOp roundOperands(AttentionOp op, RoundedValues &rounded, RewriterBase &rewriter) {
  auto twin = cast<AttentionOp>(rewriter.clone(*op));
  SmallVector<Value> before(op->getOperands());
  rewriter.setInsertionPoint(twin);
  for (unsigned n = 0; n < 3; ++n)
    twin->setOperand(n, rounded.get(rewriter, before[n]));
  auto type = cast<RankedTensorType>(op->getResult(0).getType());
  twin->getResult(0).setType(type.clone(rewriter.getBF16Type()));
  rewriter.setInsertionPointAfter(twin);
  SmallVector<Value> results(twin->getResults());
  results[0] = convertElements(rewriter, op.getLoc(), results[0], type.getElementType());
  rewriter.replaceOp(op, results);
  // Views of f32 that nothing reads would keep the wide tensor.
  llvm::SetVector<Operation *> views;
  for (Value operand : before)
    if (Operation *view = operand.getDefiningOp(); view && isOpTriviallyDead(view))
      views.insert(view);
  while (!views.empty()) {
    Operation *view = views.pop_back_val(), *source = nullptr;
    if (view->getNumOperands())
      source = view->getOperand(0).getDefiningOp();
    rewriter.eraseOp(view);
    if (source && isOpTriviallyDead(source))
      views.insert(source);
  }
  return twin;
}

/// The operands of `op`; of query, key, value and alignment what is stored in fewer bits, as it is stored: the kernel
/// widens it in registers.
SmallVector<Value> getStoredOperands(AttentionOp op, RewriterBase &rewriter) {
  SmallVector<Value> operands = getOperandsInBytes(op, /*readsFloat8=*/false);
  size_t numInputs = operands.size() - op.getCaptures().size() - op.getMaskOperands().size();
  for (Value &operand : MutableArrayRef(operands).take_front(numInputs))
    if (Value half = getUnwidened(rewriter, operand))
      operand = half;
  return operands;
}

/// Replaces `op` by a kernel; otherwise it stays, to be decomposed, and the
/// reason comes back. `symbol` becomes the kernel's name.
std::string lower(AttentionOp op, KernelTable &kernels, TargetAttr target, RoundedValues *rounded,
                  std::string &symbol) {
  std::string reason;
  IRRewriter rewriter(op);
  AttentionSpec spec = AttentionSpec::get(op, target, /*narrow=*/rounded);
  if (!canBuildAttention(spec, &reason))
    return reason;
  if (rounded && isWorthRounding(op, spec, target)) {
    op = roundOperands(op, *rounded, rewriter);
    rewriter.setInsertionPoint(op);
  }
  SmallVector<Value> operands = getStoredOperands(op, rewriter);
  spec = AttentionSpec::get(op, target, /*narrow=*/rounded, operands);
  if (!canBuildAttention(spec, &reason))
    return reason;
  FailureOr<func::FuncOp> kernel = kernels.getOrBuild(spec, op.getLoc(), buildAttention);
  if (failed(kernel))
    return "the name '" + spec.symbol() + "' is taken";
  ReifiedRankedShapedTypeDims shapes;
  if (failed(op.reifyResultShapes(rewriter, shapes)))
    return "the sizes of the result are unknown";
  symbol = spec.symbol();
  remark::passed(op.getLoc(), remarkOpts()) << remark::add("{0}", symbol);
  noteFlops(op, rewriter);
  SmallVector<Value> before(op->getOperands());
  replaceByKernel(rewriter, op, *kernel, operands, shapes);
  readSizesOfBytes(before);
  return "";
}

struct LowerAttentionPass : attn::impl::LowerAttentionPassBase<LowerAttentionPass> {
  using Base::Base;

  void runOnOperation() override {
    KernelTable kernels(getOperation());
    RoundedValues rounded;
    for (AttentionOp op : collect<AttentionOp>(getOperation()))
      reduceWeights(op);
    for (AttentionOp op : collect<AttentionOp>(getOperation())) {
      Location loc = op.getLoc();
      VerdictName name(op);
      std::string symbol;
      std::string reason = lower(op, kernels, TargetAttr::lookup(op), precision == "bf16" ? &rounded : nullptr, symbol);
      if (!reason.empty())
        remark::missed(loc, remarkOpts()) << remark::reason("{0}", reason);
      // Fusion without a kernel is worth little.
      Builder b(&getContext());
      completeVerdict(getOperation(), name,
                      {b.getNamedAttr("kernel", b.getBoolAttr(reason.empty())),
                       b.getNamedAttr("kernel_reason", b.getStringAttr(reason)),
                       b.getNamedAttr("kernel_symbol", b.getStringAttr(symbol))});
    }
  }

private:
  /// Reductions of the weights become ops behind the attention, and both of them blocks of queries.
  void reduceWeights(AttentionOp op) {
    IRRewriter rewriter(op);
    VerdictName name(op);
    std::string note;
    op = reduceExtraResults(op, rewriter);
    Location loc = op.getLoc();
    if (blockWeights(op, rewriter, TargetAttr::lookup(op), note))
      remark::passed(loc, remarkOpts()) << ("weights are " + note);
    if (!note.empty())
      completeVerdict(getOperation(), name, rewriter.getNamedAttr("weights", rewriter.getStringAttr(note)));
  }
};

} // namespace
