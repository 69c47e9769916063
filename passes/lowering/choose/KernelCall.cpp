#include "passes/lowering/choose/KernelCall.h"
#include "passes/graph/Structured.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/MapVector.h"

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
  func::FuncOp kernel = build(builder);
  symbols.insert(kernel);
  return kernel;
}

void castToArguments(OpBuilder &b, Location loc, func::FuncOp kernel, MutableArrayRef<Value> inputs) {
  for (auto [input, argument] : llvm::zip(inputs, kernel.getArgumentTypes())) {
    auto type = cast<MemRefType>(argument);
    input = castTo(b, loc, input, RankedTensorType::get(type.getShape(), type.getElementType()));
  }
}

KernelOp callKernel(OpBuilder &b, Location loc, func::FuncOp kernel, ValueRange inputs, ValueRange inits,
                    ArrayRef<int64_t> elementwise) {
  return KernelOp::create(b, loc, inits.getTypes(), FlatSymbolRefAttr::get(kernel), inputs, inits,
                          b.getDenseI64ArrayAttr(elementwise));
}

SmallVector<Value> makeResultInits(RewriterBase &rewriter, Operation *op, ArrayRef<SmallVector<OpFoldResult>> sizes) {
  SmallVector<Value> inits;
  for (auto [result, shape] : llvm::zip_equal(op->getResults(), sizes)) {
    auto type = cast<RankedTensorType>(result.getType());
    // The op's type is what the kernel was built for, though a size may be known better.
    SmallVector<Value> dynamic;
    for (auto [n, size] : llvm::enumerate(shape))
      if (type.isDynamicDim(n))
        dynamic.push_back(getValueOrCreateConstantIndexOp(rewriter, op->getLoc(), size));
    inits.push_back(tensor::EmptyOp::create(rewriter, op->getLoc(), type, dynamic));
  }
  return inits;
}

void replaceByCall(RewriterBase &rewriter, Operation *op, func::FuncOp kernel, ValueRange inputs, ValueRange inits,
                   ArrayRef<int64_t> elementwise) {
  KernelOp call = callKernel(rewriter, op->getLoc(), kernel, inputs, inits, elementwise);
  if (Attribute flops = op->getAttr(AttnDialect::kFlopsAttr))
    call->setAttr(AttnDialect::kFlopsAttr, flops);
  rewriter.replaceOp(op, call.getOutputs().take_front(op->getNumResults()));
}

void replaceByKernel(RewriterBase &rewriter, Operation *op, func::FuncOp kernel, ValueRange inputs,
                     ArrayRef<SmallVector<OpFoldResult>> sizes, ArrayRef<int64_t> elementwise) {
  replaceByCall(rewriter, op, kernel, inputs, makeResultInits(rewriter, op, sizes), elementwise);
}

void linkProducts(RewriterBase &rewriter, ArrayRef<ProductCall> products) {
  auto getPanels = [](KernelOp call) {
    Value panels = call.getInputs()[1];
    if (auto cast = panels.getDefiningOp<tensor::CastOp>())
      panels = cast.getSource();
    return panels.getDefiningOp<WeightOp>();
  };
  llvm::MapVector<Block *, SmallVector<ProductCall>> byBlock;
  for (const ProductCall &product : products)
    byBlock[product.op->getBlock()].push_back(product);
  for (auto &[block, calls] : byBlock) {
    llvm::sort(calls, [](const ProductCall &x, const ProductCall &y) { return x.op->isBeforeInBlock(y.op); });
    for (auto [i, product] : llvm::enumerate(calls)) {
      WeightOp next = getPanels(calls[(i + 1) % calls.size()].op);
      if (!product.prefetches || !next)
        continue;
      KernelOp call = product.op;
      OpOperand &operand = call->getOpOperand(call.getInputs().size() - 1);
      Type type = operand.get().getType();
      if (getElementTypeOrSelf(next.getType()) != getElementTypeOrSelf(type))
        continue;
      rewriter.setInsertionPoint(call);
      Value panels = rewriter.clone(*next)->getResult(0);
      panels = tensor::CastOp::create(rewriter, call.getLoc(), type, panels);
      rewriter.modifyOpInPlace(call, [&] { operand.set(panels); });
    }
  }
}

} // namespace attn
