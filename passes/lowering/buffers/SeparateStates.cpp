#include "passes/lowering/buffers/LoopTies.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Bufferization/IR/BufferizableOpInterface.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Interfaces/DestinationStyleOpInterface.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/SmallPtrSet.h"

using namespace mlir;
using namespace mlir::bufferization;
using namespace attn;

namespace {
Value copyOf(OpBuilder &b, Value value) {
  auto type = cast<RankedTensorType>(value.getType());
  Location loc = value.getLoc();
  Value fresh = tensor::EmptyOp::create(b, loc, tensor::getMixedSizes(b, loc, value), type.getElementType());
  return linalg::CopyOp::create(b, loc, value, fresh).getResult(0);
}

Value copyAfter(Value value) {
  OpBuilder b(value.getContext());
  b.setInsertionPointAfterValue(value);
  return copyOf(b, value);
}

Value copyBefore(Value value, Operation *op) {
  OpBuilder b(op);
  return copyOf(b, value);
}

class StateSeparator {
public:
  explicit StateSeparator(Operation *loop) : loop(loop) {
    forEachTie(loop, [&](LoopTie tie) { ties.push_back(tie); });
  }

  void run() {
    if (ties.empty())
      return;
    separateChoices();
    for (LoopTie tie : ties)
      keepOldContents(tie);
    separateSources();
  }

private:
  /// The values that the memory of `value` may be taken from: everything that
  /// it is written over or looks into.
  llvm::SetVector<Value> memoryOf(Value value) {
    llvm::SetVector<Value> seen;
    seen.insert(value);
    for (size_t n = 0; n < seen.size(); ++n) {
      auto argument = dyn_cast<BlockArgument>(seen[n]);
      if (argument && llvm::any_of(ties, [&](LoopTie tie) { return tie.argument == argument; }))
        continue;
      for (AliasingOpOperand alias : state.getAliasingOpOperands(seen[n]))
        seen.insert(alias.opOperand->get());
    }
    seen.remove_if([](Value memory) { return bool(memory.getDefiningOp<tensor::EmptyOp>()); });
    return seen;
  }

  /// `writer`, which reads `use` in its region or as an operand, does so after a
  /// part of its result is written.
  bool readsWhileWriting(OpOperand &use, Operation *writer) {
    if (use.getOwner() != writer)
      return true;
    auto dps = dyn_cast<DestinationStyleOpInterface>(writer);
    auto op = dyn_cast<BufferizableOpInterface>(writer);
    if (!dps || !op || state.bufferizesToMemoryWrite(use) || !state.bufferizesToMemoryRead(use))
      return false;
    return llvm::any_of(dps.getDpsInitsMutable(),
                        [&](OpOperand &init) { return !op.bufferizesToElementwiseAccess(state, {&use, &init}); });
  }

  /// What is one of a state and of a tensor from before the loop is taken for
  /// read as it was before the loop, and the state for written since.
  void separateChoices() {
    SmallVector<OpOperand *> foreign;
    loop->walk([&](Operation *op) {
      SmallVector<std::pair<Value, OpOperand *>> choices; // of a result
      if (isa<arith::SelectOp>(op))
        for (OpOperand &operand : llvm::drop_begin(op->getOpOperands()))
          choices.push_back({op->getResult(0), &operand});
      else if (auto branch = dyn_cast<scf::IfOp>(op); branch && branch.getNumResults())
        for (scf::YieldOp yield : {branch.thenYield(), branch.elseYield()})
          for (OpOperand &operand : yield->getOpOperands())
            choices.push_back({branch.getResult(operand.getOperandNumber()), &operand});
      for (auto [result, operand] : choices)
        if (isa<RankedTensorType>(result.getType()) && isFromBefore(operand->get()) &&
            llvm::any_of(memoryOf(result), [&](Value memory) { return isWritten(memory); }))
          foreign.push_back(operand);
    });
    for (OpOperand *operand : foreign)
      operand->set(copyBefore(operand->get(), operand->getOwner()));
  }

  bool isFromBefore(Value value) {
    return llvm::any_of(memoryOf(value), [&](Value memory) {
      Operation *parent = memory.getParentRegion()->getParentOp();
      return !loop->isAncestor(parent);
    });
  }

  bool isWritten(Value memory) {
    return llvm::any_of(ties,
                        [&](LoopTie tie) { return tie.argument == memory && tie.yielded->get() != tie.argument; });
  }

  /// What the body writes over its argument is written in place whatever else
  /// the body does with it; who reads the old contents later gets a copy.
  void keepOldContents(LoopTie tie) {
    if (tie.yielded->get() == tie.argument)
      return;
    SmallVector<Operation *> writers;
    if (writtenOver(tie.yielded->get(), tie.argument, [&](Operation *op) { writers.push_back(op); }) != tie.argument)
      return;
    Block *body = tie.yielded->getOwner()->getBlock();
    // The argument or result of the writer before, which this one writes over.
    for (Operation *writer : writers) {
      if (writer->getBlock() != body || isa<MaterializeInDestinationOp>(writer))
        continue;
      llvm::SetVector<Value> old;
      for (OpOperand &operand : writer->getOpOperands())
        if (isa<RankedTensorType>(operand.get().getType()) && state.bufferizesToMemoryWrite(operand) &&
            writtenOver(operand.get(), tie.argument) == tie.argument)
          old.insert(operand.get());
      for (size_t n = 0; n < old.size(); ++n) {
        SmallVector<OpOperand *> later;
        for (OpOperand &use : old[n].getUses()) {
          Operation *user = body->findAncestorOpInBlock(*use.getOwner());
          if (!user || isa<tensor::DimOp>(use.getOwner()))
            continue;
          if (user == writer ? readsWhileWriting(use, writer) : writer->isBeforeInBlock(user))
            later.push_back(&use);
          else
            for (AliasingValue alias : state.getAliasingValues(use))
              if (!state.bufferizesToMemoryWrite(use))
                old.insert(alias.value);
        }
        if (later.empty())
          continue;
        Value copy = copyAfter(old[n]);
        for (OpOperand *use : later)
          use->set(copy);
      }
    }
  }

  /// All that is written to its place at the end is read there, by then one of
  /// the others may be written.
  void separateSources() {
    llvm::SmallPtrSet<Value, 16> taken; // memory of the sources before
    for (LoopTie tie : ties) {
      auto write = tie.yielded->get().getDefiningOp<MaterializeInDestinationOp>();
      if (!write || write.getDest() != tie.argument)
        continue;
      Value source = write.getSource();
      llvm::SetVector<Value> memory = memoryOf(source);
      bool conflict = llvm::any_of(
          memory, [&](Value value) { return taken.contains(value) || (value != tie.argument && isWritten(value)); });
      if (conflict) {
        Value copy = copyAfter(source);
        write.getSourceMutable().assign(copy);
        continue;
      }
      taken.insert(memory.begin(), memory.end());
    }
  }

  AnalysisState state{options};
  static inline const BufferizationOptions options;
  Operation *loop;
  SmallVector<LoopTie> ties;
};
} // namespace

void attn::separateStates(Operation *function) {
  function->walk([](Operation *op) { StateSeparator(op).run(); });
}
