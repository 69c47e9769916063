#include "passes/lowering/buffers/LoopTies.h"
#include "dialects/attn/LoopOps.h"

#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Interfaces/DestinationStyleOpInterface.h"

using namespace mlir;
using namespace attn;

void attn::forEachTie(Operation *op, function_ref<void(LoopTie)> fn) {
  if (auto loop = dyn_cast<scf::ForOp>(op)) {
    for (auto [n, argument] : llvm::enumerate(loop.getRegionIterArgs()))
      if (isa<TensorType>(argument.getType()))
        fn({&loop.getInitArgsMutable()[n], &loop.getBody()->getTerminator()->getOpOperand(n), argument,
            loop.getResult(n)});
    return;
  }
  auto loop = dyn_cast<scf::WhileOp>(op);
  if (!loop)
    return;
  scf::YieldOp yield = loop.getYieldOp();
  for (auto [n, forwarded] : llvm::enumerate(loop.getConditionOp().getArgs())) {
    auto before = dyn_cast<BlockArgument>(forwarded);
    if (!before || before.getOwner() != loop.getBeforeBody() || !isa<TensorType>(before.getType()))
      continue;
    unsigned number = before.getArgNumber();
    fn({&loop.getInitsMutable()[number], &yield->getOpOperand(number), loop.getAfterArguments()[n], loop.getResult(n)});
  }
}

Value attn::writtenOver(Value value, Value end, function_ref<void(Operation *)> step) {
  while (value != end) {
    auto result = dyn_cast<OpResult>(value);
    if (!result)
      return value;
    Operation *op = result.getOwner();
    Value next;
    if (auto dps = dyn_cast<DestinationStyleOpInterface>(op))
      next = dps.getTiedOpOperand(result)->get();
    else if (auto grow = dyn_cast<GrowOp>(op))
      next = grow.getBuffer();
    else
      forEachTie(op, [&](LoopTie tie) {
        if (tie.result == value && writtenOver(tie.yielded->get(), tie.argument, step) == tie.argument)
          next = tie.init->get();
      });
    if (!next)
      return value;
    if (step)
      step(op);
    value = next;
  }
  return value;
}

void attn::tieLoops(Operation *function) {
  // Inner loops first: an outer one is written through their results.
  function->walk([&](Operation *op) {
    forEachTie(op, [&](LoopTie tie) {
      Value value = tie.yielded->get();
      if (writtenOver(value, tie.argument) == tie.argument)
        return;
      OpBuilder b(tie.yielded->getOwner());
      auto write = bufferization::MaterializeInDestinationOp::create(b, value.getLoc(), tie.argument.getType(), value,
                                                                     tie.argument);
      tie.yielded->set(write->getResult(0));
    });
  });
}
