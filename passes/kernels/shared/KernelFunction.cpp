#include "passes/kernels/shared/KernelFunction.h"

#include "dialects/attn/AttnOps.h"
#include "passes/kernels/spec/KernelAttrs.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace attn;

KernelFunction::KernelFunction(OpBuilder &b, Location loc, StringRef symbol)
    : guard(b), function(func::FuncOp::create(b, loc, symbol, b.getFunctionType({}, {}))), k(b, loc) {
  function->setAttr(AttnDialect::kKernelAttr, b.getUnitAttr());
  b.setInsertionPointToStart(function.addEntryBlock());
  b.setInsertionPoint(func::ReturnOp::create(b, k.loc));
}

Value KernelFunction::argument(Type type) {
  Value value = function.getBody().addArgument(type, k.loc);
  function.setFunctionType(k.b.getFunctionType(function.getBody().getArgumentTypes(), {}));
  return value;
}

Buffer KernelFunction::buffer(ArrayRef<int64_t> shape, Type element) { return buffer(MemRefType::get(shape, element)); }

SmallVector<Buffer> attn::takeOperands(KernelFunction &f, const EpilogueSpec &spec, int64_t m, int64_t n) {
  SmallVector<Buffer> operands;
  for (unsigned number = 0; number < spec.operands.size(); ++number)
    operands.push_back(f.buffer(spec.getOperandShape(number, m, n), spec.getOperand(number).getType()));
  return operands;
}

static scf::ForOp lastLoop(OpBuilder &b) { return cast<scf::ForOp>(*std::prev(b.getInsertionPoint())); }

void attn::markLong(OpBuilder &b) { lastLoop(b)->setAttr(kPollsAttr, b.getUnitAttr()); }

void attn::keepInMemory(OpBuilder &b) {
  MLIRContext *context = b.getContext();
  auto licm = LLVM::LoopLICMAttr::get(context, /*disable=*/b.getBoolAttr(true), {});
  // By this name the branch that closes the loop carries it into LLVM IR.
  lastLoop(b)->setAttr("loop_annotation", LLVM::LoopAnnotationAttr::get(context, {}, {}, {}, {}, {}, licm, {}, {}, {},
                                                                        {}, {}, {}, {}, {}, {}));
}
