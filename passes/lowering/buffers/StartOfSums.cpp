#include "passes/lowering/buffers/StartOfSums.h"

#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;

Value attn::takeFill(linalg::LinalgOp op, int64_t number) {
  OpOperand *init = op.getDpsInitOperand(number);
  Value buffer = init->get();
  bool isOnlyUse = llvm::count(op->getOperands(), buffer) == 1;
  // Such a map writes each element.
  if (!op.getNumReductionLoops() || !isOnlyUse || !op.getMatchingIndexingMap(init).isProjectedPermutation())
    return {};
  Operation *before = op->getPrevNode();
  while (before && isMemoryEffectFree(before))
    before = before->getPrevNode();
  auto fill = dyn_cast_or_null<linalg::FillOp>(before);
  if (!fill || fill.getOutputs()[0] != buffer)
    return {};
  Value start = fill.getInputs()[0];
  fill.erase();
  return start;
}
