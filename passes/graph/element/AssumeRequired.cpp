#include "passes/graph/element/AssumeRequired.h"

#include "dialects/attn/AttnOps.h"
#include "passes/Passes.h"
#include "passes/graph/Collect.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;

namespace attn {
#define GEN_PASS_DEF_ASSUMEREQUIREDPASS
#include "passes/Passes.h.inc"

namespace {

/// Whether `value` is known before `later` in the block of both; a constant and what an enclosing block makes is.
bool isBefore(Value value, Operation *later) {
  Operation *op = value.getDefiningOp();
  return !op || op->getBlock() != later->getBlock() || op->isBeforeInBlock(later);
}

/// Moves `op` up to behind the last of its operands that its own block makes.
void hoist(Operation *op) {
  Operation *last = nullptr;
  for (Value operand : op->getOperands())
    if (Operation *maker = operand.getDefiningOp(); maker && maker->getBlock() == op->getBlock())
      last = !last || last->isBeforeInBlock(maker) ? maker : last;
  // Behind the checks that are there, so that the first to fail stays the first.
  Operation *next = last ? last->getNextNode() : &op->getBlock()->front();
  while (next != op && isa<RequireOp, arith::CmpIOp, arith::AndIOp, arith::OrIOp>(next))
    next = next->getNextNode();
  if (next != op)
    op->moveBefore(next);
}

/// Moves a check up, with the comparisons that it is made of.
void hoistCheck(Operation *op) {
  for (Value operand : op->getOperands())
    if (Operation *maker = operand.getDefiningOp(); isa_and_nonnull<arith::CmpIOp, arith::AndIOp, arith::OrIOp>(maker))
      if (maker->getBlock() == op->getBlock())
        hoistCheck(maker);
  hoist(op);
}

void assume(RequireOp require) {
  auto compare = require.getCondition().getDefiningOp<arith::CmpIOp>();
  if (!compare || compare.getPredicate() != arith::CmpIPredicate::eq || !compare.getLhs().getType().isIndex())
    return;
  // What cannot be done is told before what is wrong: such checks stay in front.
  SmallVector<RequireOp> first;
  for (Operation *op = require->getPrevNode(); isa_and_nonnull<RequireOp, arith::CmpIOp, arith::OrIOp>(op);
       op = op->getPrevNode()) {
    auto check = dyn_cast<RequireOp>(op);
    if (check && !check.getUnsupported())
      break;
    if (check)
      first.push_back(check);
  }
  // In the body of a loop, what is compared outside counts for all of it: types say so as well.
  if (compare->getBlock() == require->getBlock())
    hoist(compare);
  for (RequireOp check : llvm::reverse(first))
    hoistCheck(check);
  hoist(require);
  Value kept = compare.getLhs(), dropped = compare.getRhs();
  Operation *maker = dropped.getDefiningOp();
  auto isConstant = [](Value value) {
    Operation *op = value.getDefiningOp();
    return op && op->hasTrait<OpTrait::ConstantLike>();
  };
  if (!maker || isConstant(dropped) || (!isConstant(kept) && !isBefore(kept, maker))) {
    std::swap(kept, dropped);
    maker = dropped.getDefiningOp();
  }
  if (!maker || kept == dropped || isConstant(dropped) || maker->getBlock() != require->getBlock())
    return;
  dropped.replaceUsesWithIf(kept, [&](OpOperand &use) {
    Operation *user = require->getBlock()->findAncestorOpInBlock(*use.getOwner());
    return user && require->isBeforeInBlock(user) && !isa<RequireOp>(user); // whose message says what was compared
  });
}

struct AssumeRequiredPass : impl::AssumeRequiredPassBase<AssumeRequiredPass> {
  void runOnOperation() override { assumeRequiredSizes(getOperation()); }
};

} // namespace

void assumeRequiredSizes(Operation *root) {
  for (RequireOp op : collect<RequireOp>(root))
    assume(op);
}

} // namespace attn
