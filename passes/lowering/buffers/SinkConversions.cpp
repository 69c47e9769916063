#include "passes/Passes.h"

#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace attn {
#define GEN_PASS_DEF_SINKCONVERSIONSPASS
#include "passes/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {

/// True for a view of what the run was given, which lives until the run ends and stays as it is. A state does not: what
/// writes to its tensor would find a later reader, and copy all of it.
bool isGiven(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    if (auto tensor = dyn_cast<bufferization::ToTensorOp>(op))
      return !tensor.getWritable();
    if (!isa<tensor::ExpandShapeOp, tensor::CollapseShapeOp, tensor::CastOp, tensor::ExtractSliceOp>(op))
      return false;
    value = op->getOperand(0);
  }
  return true;
}

/// True for an elementwise op that makes new tensors of given ones, and does nothing else.
bool makesOfGiven(linalg::GenericOp op) {
  auto isNumber = [](Value value) { return !isa<TensorType>(value.getType()); };
  return op.hasPureTensorSemantics() && op.getNumParallelLoops() == op.getNumLoops() &&
         llvm::all_of(op.getDpsInputs(), isGiven) &&
         llvm::all_of(op.getDpsInits(), [](Value init) { return init.getDefiningOp<tensor::EmptyOp>(); }) &&
         llvm::all_of(*op.getBody(), [&](Operation &inner) { return llvm::all_of(inner.getOperands(), isNumber); });
}

/// The first op of the same block that reads a result, itself or in a region; null where there is none.
Operation *firstReader(Operation *op) {
  Operation *first = nullptr;
  for (Operation *user : op->getUsers()) {
    Operation *here = op->getBlock()->findAncestorOpInBlock(*user);
    if (here && (!first || here->isBeforeInBlock(first)))
      first = here;
  }
  return first;
}

struct SinkConversionsPass : attn::impl::SinkConversionsPassBase<SinkConversionsPass> {
  void runOnOperation() override {
    for (Block &block : getOperation().getBody())
      for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
        if (auto generic = dyn_cast<linalg::GenericOp>(op); generic && makesOfGiven(generic))
          sink(generic);
  }

  /// Not past an op that writes to memory, which may be that of an input.
  void sink(linalg::GenericOp op) {
    Operation *reader = firstReader(op);
    if (!reader)
      return;
    for (Operation *next = op->getNextNode(); next != reader; next = next->getNextNode())
      if (!isMemoryEffectFree(next)) {
        reader = next;
        break;
      }
    op->moveBefore(reader);
  }
};

} // namespace
