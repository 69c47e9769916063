#include "passes/lowering/cpu/KernelCall.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;

namespace attn {

FailureOr<func::FuncOp> KernelTable::getOrBuild(StringRef symbol, BuildFn build) {
  if (Operation *known = symbols.lookup(symbol)) {
    auto kernel = dyn_cast<func::FuncOp>(known);
    if (kernel && kernel->hasAttr(AttnDialect::kKernelAttr))
      return kernel;
    return failure();
  }
  OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
  FailureOr<func::FuncOp> kernel = build(builder);
  if (succeeded(kernel))
    symbols.insert(*kernel);
  return kernel;
}

void replaceByKernel(RewriterBase &rewriter, Operation *op, func::FuncOp kernel, ValueRange inputs,
                     ArrayRef<OpFoldResult> sizes, ArrayRef<int64_t> elementwise) {
  Location loc = op->getLoc();
  auto type = cast<RankedTensorType>(op->getResult(0).getType());
  // The op's type is what the kernel was built for, though a size may be known better.
  SmallVector<Value> dynamic;
  for (auto [n, size] : llvm::enumerate(sizes))
    if (type.isDynamicDim(n))
      dynamic.push_back(getValueOrCreateConstantIndexOp(rewriter, loc, size));
  Value init = tensor::EmptyOp::create(rewriter, loc, type, dynamic);
  auto call = KernelOp::create(rewriter, loc, type, SymbolRefAttr::get(kernel), inputs, init,
                               rewriter.getDenseI64ArrayAttr(elementwise));
  rewriter.replaceOp(op, call.getOutputs());
}

} // namespace attn
