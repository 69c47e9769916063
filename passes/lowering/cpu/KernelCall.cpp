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
                     ArrayRef<SmallVector<OpFoldResult>> sizes, ArrayRef<int64_t> elementwise) {
  Location loc = op->getLoc();
  SmallVector<Value> inits;
  for (auto [result, shape] : llvm::zip_equal(op->getResults(), sizes)) {
    auto type = cast<RankedTensorType>(result.getType());
    // The op's type is what the kernel was built for, though a size may be known better.
    SmallVector<Value> dynamic;
    for (auto [n, size] : llvm::enumerate(shape))
      if (type.isDynamicDim(n))
        dynamic.push_back(getValueOrCreateConstantIndexOp(rewriter, loc, size));
    inits.push_back(tensor::EmptyOp::create(rewriter, loc, type, dynamic));
  }
  auto call = KernelOp::create(rewriter, loc, op->getResultTypes(), SymbolRefAttr::get(kernel), inputs, inits,
                               rewriter.getDenseI64ArrayAttr(elementwise));
  rewriter.replaceOp(op, call.getOutputs());
}

} // namespace attn
