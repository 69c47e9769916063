#include "passes/lowering/gpu/GpuKernelCall.h"
#include "dialects/attn/AttnOps.h"
#include "passes/lowering/choose/KernelCall.h"
#include "passes/lowering/gpu/HostOps.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/Remarks.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;

namespace attn {

void noteMissed(Operation *op, StringRef category, StringRef name, StringRef reason) {
  remark::missed(op->getLoc(), remark::RemarkOpts::name(name).category(category)) << remark::reason("{0}", reason);
}

bool isSelfContained(Block &block) {
  for (Operation &op : block.without_terminator()) {
    if (op.getNumRegions() || !isMemoryEffectFree(&op) || op.getNumResults() != 1 ||
        isa<tensor::ExtractOp, CheckIndexOp>(op) || lacksGpuCode(&op))
      return false;
    for (Value operand : op.getOperands())
      if (operand.getParentBlock() != &block && !matchPattern(operand, m_Constant()))
        return false;
  }
  Value result = block.getTerminator()->getOperand(0);
  return result.getParentBlock() == &block;
}

bool readOptions(ModuleOp module, StringRef text, Precision &precision, StringRef useText, Sm90a &sm90a) {
  std::optional<Precision> known = parsePrecision(text);
  if (!known)
    module.emitError("expects precision f32, tf32, bf16 or f16, got '") << text << "'";
  precision = known.value_or(precision);
  std::optional<Sm90a> use = parseSm90a(useText);
  if (!use)
    module.emitError("expects sm90a none, also or only, got '") << useText << "'";
  sm90a = use.value_or(sm90a);
  return known && use;
}

void replaceWithScratch(IRRewriter &rewriter, Operation *op, func::FuncOp kernel, ValueRange inputs,
                        ArrayRef<SmallVector<OpFoldResult>> sizes, Value elements) {
  SmallVector<Value> inits = makeResultInits(rewriter, op, sizes);
  auto scratch = RankedTensorType::get({ShapedType::kDynamic}, rewriter.getF32Type());
  inits.push_back(tensor::EmptyOp::create(rewriter, op->getLoc(), scratch, elements));
  replaceByCall(rewriter, op, kernel, inputs, inits);
}

} // namespace attn
