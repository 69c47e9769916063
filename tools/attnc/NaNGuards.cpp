#include "tools/attnc/NaNGuards.h"

#include "dialects/attn/AttnOps.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/DenseSet.h"

using namespace mlir;

namespace attn::tools {
namespace {

/// Whether `scalar`, in the body of an op, is an element of a sum over some dimension.
bool isOfSum(Value scalar) {
  auto argument = dyn_cast<BlockArgument>(scalar);
  auto reader = argument ? dyn_cast<linalg::LinalgOp>(argument.getOwner()->getParentOp()) : linalg::LinalgOp();
  if (!reader)
    return false;
  Value tensor = reader.getMatchingOpOperand(argument)->get();
  while (isa_and_nonnull<tensor::ExpandShapeOp, tensor::CollapseShapeOp, tensor::CastOp>(tensor.getDefiningOp()))
    tensor = tensor.getDefiningOp()->getOperand(0);
  auto sum = tensor.getDefiningOp<linalg::LinalgOp>();
  return sum && sum.getNumReductionLoops() != 0 && !linalg::isaContractionOpInterface(sum);
}

/// x > 0 of a row's sum: what is 0 where the test fails is 0 for NaN, too.
bool isSumTest(arith::CmpFOp compare) {
  return compare.getPredicate() == arith::CmpFPredicate::OGT && matchPattern(compare.getRhs(), m_AnyZeroFloat()) &&
         isOfSum(compare.getLhs());
}

/// Rounding to codes in their bounds, which makes NaN the lowest code.
bool isCode(Operation *op) { return isa<arith::FPToSIOp>(op) && op->getOperand(0).getDefiningOp<arith::SelectOp>(); }

bool isNaNTest(Operation *op) {
  auto compare = dyn_cast<arith::CmpFOp>(op);
  return isa<math::IsNaNOp>(op) || isCode(op) || (compare && isSumTest(compare)) ||
         (compare && (compare.getLhs() == compare.getRhs() || compare.getPredicate() == arith::CmpFPredicate::UNO ||
                      compare.getPredicate() == arith::CmpFPredicate::ORD));
}

bool holdsNaNTest(Operation *op) {
  return op->walk([](Operation *inner) { return isNaNTest(inner) ? WalkResult::interrupt() : WalkResult::advance(); })
      .wasInterrupted();
}

/// Whether `op` takes no product of elements of two tensors, and what it makes of its operands it gives as results.
bool isPlain(Operation *op) {
  if (isa<SoftmaxOp>(op) || op->getDialect()->getNamespace() == tensor::TensorDialect::getDialectNamespace())
    return true;
  auto linalgOp = dyn_cast<linalg::LinalgOp>(op);
  return linalgOp && !linalg::isaContractionOpInterface(linalgOp);
}

bool isBeforeGuards(BlockArgument input) {
  SmallVector<Value> front{input};
  DenseSet<Value> seen;
  while (!front.empty()) {
    Value value = front.pop_back_val();
    if (!seen.insert(value).second)
      continue;
    for (Operation *user : value.getUsers()) {
      if (holdsNaNTest(user) || user->hasTrait<OpTrait::IsTerminator>())
        continue;
      if (!isPlain(user))
        return false;
      llvm::append_range(front, user->getResults());
    }
  }
  return true;
}

} // namespace

unsigned countNaNTests(ModuleOp module) {
  unsigned count = 0;
  module->walk([&](Operation *op) { count += isNaNTest(op); });
  return count;
}

std::vector<std::string> inputsBeforeGuards(ModuleOp module) {
  std::vector<std::string> names;
  for (auto function : module.getOps<FunctionOpInterface>())
    for (BlockArgument input : function.getArguments())
      if (auto name = function.getArgAttrOfType<StringAttr>(input.getArgNumber(), AttnDialect::kNameAttr);
          name && isa<FloatType>(getElementTypeOrSelf(input.getType())) && isBeforeGuards(input))
        names.push_back(name.str());
  return names;
}

} // namespace attn::tools
