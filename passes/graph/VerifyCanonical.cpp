#include "passes/Passes.h"
#include "passes/graph/Structured.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;

namespace attn {
#define GEN_PASS_DEF_VERIFYCANONICALPASS
#include "passes/Passes.h.inc"

namespace {

/// The op whose value the body of `op` yields, or null.
/// Whether `op` divides exponentials by a sum of the same exponentials.
bool isDissolvedSoftmax(linalg::LinalgOp op) {
  if (!isPointwise(op) || op.getNumDpsInputs() < 2)
    return false;
  bool divides = false;
  op.getBlock()->walk([&](arith::DivFOp) { divides = true; });
  if (!divides)
    return false;
  for (OpOperand *operand : op.getDpsInputOperands()) {
    auto sum = stripViews(operand->get()).getDefiningOp<linalg::LinalgOp>();
    if (getReduction(sum) != Combiner::sum)
      continue;
    Value summed = stripViews(sum.getDpsInputOperand(0)->get());
    auto exponentials = summed.getDefiningOp<linalg::LinalgOp>();
    if (!exponentials || !isPointwise(exponentials) || !isa_and_nonnull<math::ExpOp>(getScalarOp(exponentials)))
      continue;
    for (OpOperand *numerator : op.getDpsInputOperands())
      if (numerator != operand && stripViews(numerator->get()) == summed)
        return true;
  }
  return false;
}

struct VerifyCanonicalPass : impl::VerifyCanonicalPassBase<VerifyCanonicalPass> {
  void runOnOperation() override {
    getOperation().walk([&](Operation *op) {
      if (std::string why = complaint(op); !why.empty()) {
        op->emitError("not in canonical form: ") << why;
        signalPassFailure();
      }
    });
  }

private:
  /// What is wrong with `op`, or "".
  static std::string complaint(Operation *op) {
    static const llvm::StringSet<> dialects = {"affine", "arith", "attn", "builtin", "func",
                                               "linalg", "math",  "scf",  "tensor"};
    if (!dialects.contains(op->getName().getDialectNamespace()))
      return "'" + op->getName().getStringRef().str() + "' is of no dialect that it knows";
    if (isa<func::CallOp>(op))
      return "a call is inlined";
    for (Type type : op->getResultTypes())
      if (isa<BaseMemRefType, UnrankedTensorType>(type))
        return "a value is a scalar or a ranked tensor";
    if (isa<tensor::ReshapeOp>(op))
      return "a reshape is a tensor.expand_shape or a tensor.collapse_shape";
    auto linalgOp = dyn_cast<linalg::LinalgOp>(op);
    if (!linalgOp)
      return isa<linalg::SoftmaxOp>(op) ? "a softmax is attn.softmax" : "";
    if (!linalgOp.hasPureTensorSemantics())
      return "a linalg op works on tensors";
    if (!isa<linalg::ContractOp>(op) && isContraction(op))
      return "a contraction is linalg.contract";
    if (isDissolvedSoftmax(linalgOp))
      return "a softmax is attn.softmax";
    return "";
  }
};

} // namespace
} // namespace attn
