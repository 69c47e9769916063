#include "dialects/attn/CacheOps.h"
#include "dialects/attn/TopKOp.h"
#include "passes/Passes.h"
#include "passes/graph/Structured.h"
#include "passes/kernels/cpu/NarrowRows.h"
#include "passes/kernels/cpu/Normalization.h"
#include "passes/kernels/cpu/TopK.h"
#include "passes/lowering/choose/KernelCall.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Remarks.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/TypeSwitch.h"

namespace attn {
#define GEN_PASS_DEF_LOWERNORMALIZATIONPASS
#include "passes/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {

/// `value` with dimension `dim` and the last one exchanged.
Value exchange(OpBuilder &b, Location loc, Value value, int64_t dim) {
  SmallVector<int64_t> permutation =
      llvm::to_vector(llvm::seq<int64_t>(cast<RankedTensorType>(value.getType()).getRank()));
  std::swap(permutation[dim], permutation.back());
  return transposed(b, loc, value, permutation);
}

/// `op` over its last dimension.
TopKOp moveToLast(TopKOp op) {
  int64_t dim = op.getDim(), last = cast<RankedTensorType>(op.getInput().getType()).getRank() - 1;
  if (dim == last)
    return op;
  IRRewriter rewriter(op);
  Location loc = op.getLoc();
  auto exchanged = [&](Value result) {
    auto type = cast<RankedTensorType>(result.getType());
    SmallVector<int64_t> shape(type.getShape());
    std::swap(shape[dim], shape[last]);
    return type.clone(shape);
  };
  Value input = exchange(rewriter, loc, op.getInput(), dim);
  auto twin = TopKOp::create(rewriter, loc, exchanged(op.getValues()), exchanged(op.getPositions()), input,
                             op.getCount(), last, op.getSmallest(), op.getIsUnsigned());
  Value values = exchange(rewriter, loc, twin.getValues(), dim);
  rewriter.replaceOp(op, {values, exchange(rewriter, loc, twin.getPositions(), dim)});
  return twin;
}

class NormalizationLowering {
public:
  explicit NormalizationLowering(ModuleOp module) : kernels(module), target(TargetAttr::lookup(module)) {}

  void lower(SoftmaxOp op) {
    ArrayRef<int64_t> behind = cast<ShapedType>(op.getInput().getType()).getShape().drop_front(op.getDim() + 1);
    bool isNarrow =
        !ShapedType::isDynamicShape(behind) && 2 * ShapedType::getNumElements(behind) < target.getF32Lanes();
    if (!behind.empty() && isNarrow)
      missed(op, "softmax", "its columns do not fill half a register");
    else
      lowerTo(op, "softmax", SoftmaxSpec::get(op, target), canBuildSoftmax, buildSoftmax, op.getInput());
  }
  void lower(LayerNormOp op) {
    LayerNormSpec spec = LayerNormSpec::get(op, target);
    lowerTo(op, "layer_norm", spec, canBuildLayerNorm, buildLayerNorm, op->getOperands());
  }
  void lower(TopKOp op) {
    if (std::string reason; !canBuildTopK(TopKSpec::get(op, target), &reason))
      return missed(op, "top_k", reason);
    op = moveToLast(op);
    lowerTo(op, "top_k", TopKSpec::get(op, target), canBuildTopK, buildTopK, op.getInput());
  }
  void lower(NarrowRowsOp op) {
    NarrowRowsSpec spec = NarrowRowsSpec::get(op, target);
    lowerTo(op, "narrow_rows", spec, canBuildCpuNarrowRows, buildNarrowRows, op.getRows());
  }

private:
  static remark::RemarkOpts remarkNamed(StringRef name) {
    return remark::RemarkOpts::name(name).category("attn-lower-normalization");
  }
  static void missed(Operation *op, StringRef name, StringRef reason) {
    remark::missed(op->getLoc(), remarkNamed(name)) << remark::reason("{0}", reason);
  }

  template <typename Spec, typename CanBuild, typename Build>
  void lowerTo(ReifyRankedShapedTypeOpInterface op, StringRef name, const Spec &spec, CanBuild canBuild, Build build,
               ValueRange inputs) {
    std::string reason;
    if (!canBuild(spec, &reason))
      return missed(op, name, reason);
    FailureOr<func::FuncOp> kernel = kernels.getOrBuild(spec, op->getLoc(), build);
    if (failed(kernel))
      return missed(op, name, "the name '" + spec.symbol() + "' is taken");
    IRRewriter rewriter(op);
    ReifiedRankedShapedTypeDims sizes;
    if (failed(op.reifyResultShapes(rewriter, sizes)))
      return missed(op, name, "the sizes of the result are unknown");
    remark::passed(op->getLoc(), remarkNamed(name)) << remark::add("{0}", spec.symbol());
    // A result of the input's sizes may take its buffer.
    SmallVector<int64_t> elementwise;
    if (!isa<TopKOp, NarrowRowsOp>(op.getOperation()))
      elementwise.push_back(0);
    replaceByKernel(rewriter, op, *kernel, inputs, sizes, elementwise);
  }

  KernelTable kernels;
  TargetAttr target;
};

struct LowerNormalizationPass : attn::impl::LowerNormalizationPassBase<LowerNormalizationPass> {
  void runOnOperation() override {
    NormalizationLowering lowering(getOperation());
    SmallVector<Operation *> ops;
    getOperation().walk([&](Operation *op) {
      if (isa<SoftmaxOp, LayerNormOp, TopKOp, NarrowRowsOp>(op))
        ops.push_back(op);
    });
    for (Operation *op : ops)
      llvm::TypeSwitch<Operation *>(op).Case<SoftmaxOp, LayerNormOp, TopKOp, NarrowRowsOp>(
          [&](auto each) { lowering.lower(each); });
  }
};

} // namespace
