#include "frontends/search/StateBranches.h"
#include "dialects/attn/NodeLocation.h"

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Transforms/RegionUtils.h"
#include "llvm/ADT/SmallBitVector.h"

using namespace mlir;
using namespace attn;

/// The inputs of `step` from whose elements `values` are computed.
static llvm::SmallBitVector findInputs(func::FuncOp step, ArrayRef<Value> values) {
  llvm::SmallBitVector inputs(step.getNumArguments());
  SmallVector<Value> front(values);
  DenseSet<Value> seen;
  while (!front.empty()) {
    Value value = front.pop_back_val();
    Operation *op = value.getDefiningOp();
    if (!seen.insert(value).second)
      continue;
    if (auto argument = dyn_cast<BlockArgument>(value)) {
      if (argument.getOwner() == &step.getBody().front())
        inputs.set(argument.getArgNumber());
      continue;
    }
    if (isa<tensor::DimOp>(op)) // a size is none of the elements
      continue;
    llvm::append_range(front, op->getOperands());
    visitUsedValuesDefinedAbove(op->getRegions(), [&](OpOperand *used) { front.push_back(used->get()); });
  }
  return inputs;
}

static llvm::SmallBitVector findInputs(func::FuncOp step, Region &branch) {
  SmallVector<Value> used;
  visitUsedValuesDefinedAbove(branch, [&](OpOperand *operand) { used.push_back(operand->get()); });
  return findInputs(step, used);
}

LogicalResult attn::checkStateBranches(func::FuncOp step, const StepRoles &roles, const SearchOptions &options) {
  WalkResult walked = step.walk([&](scf::IfOp branches) {
    llvm::SmallBitVector choosers = findInputs(step, branches.getCondition());
    int64_t chooser = choosers.find_first();
    bool isConstant = chooser >= 0 && llvm::all_of(choosers.set_bits(),
                                                   [&](unsigned n) { return roles.sources[n] == SearchOp::kConstant; });
    if (!isConstant)
      return WalkResult::advance();
    llvm::SmallBitVector some = findInputs(step, branches.getThenRegion());
    llvm::SmallBitVector others = findInputs(step, branches.getElseRegion());
    for (int64_t n = 0, count = roles.sources.size(); n < count; ++n) {
      if (roles.sources[n] < 0 || some.test(n) == others.test(n))
        continue;
      options.blameStep();
      step.emitError() << "the step '" << options.step << "' reads its state '" << printableName(nameOfInput(step, n))
                       << "' where its input '" << printableName(nameOfInput(step, chooser)) << "' says so, which is "
                       << "one value for the whole search: give the decoder that reads it as the step, and the "
                       << "one that does not as --init=";
      return WalkResult::interrupt();
    }
    return WalkResult::advance();
  });
  return failure(walked.wasInterrupted());
}
