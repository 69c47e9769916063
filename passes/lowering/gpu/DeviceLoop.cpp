#include "passes/lowering/gpu/DeviceLoop.h"
#include "dialects/attn/LoopOps.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Interfaces/ViewLikeInterface.h"

using namespace mlir;

namespace attn {

DeviceLoop::DeviceLoop(scf::WhileOp loop) : loop(loop) {
  for (FetchOp fetch : body().getOps<FetchOp>())
    fetched.push_back(fetch);
  if (fetches())
    (void)(readCarried() && readBody() && readNext() && readCondition());
}

bool DeviceLoop::fail(Operation *op, const Twine &reason) {
  why = reason.str();
  where = op;
  return false;
}

/// What fits into a word of the device.
static bool isWord(Type type) { return type.isIndex() || (type.isInteger() && type.getIntOrFloatBitWidth() <= 64); }

/// The condition hands on what is carried as it is.
bool DeviceLoop::readCarried() {
  scf::ConditionOp condition = loop.getConditionOp();
  for (auto [argument, value] : llvm::zip_equal(body().getArguments(), condition.getArgs())) {
    auto from = dyn_cast<BlockArgument>(value);
    if (!from || from.getOwner() != loop.getBeforeBody())
      return fail(condition, "its condition computes what a step starts from");
    carried.push_back(from.getArgNumber());
    if (isWord(argument.getType()))
      varying.insert(argument);
    else if (!isa<MemRefType>(argument.getType()))
      return fail(loop, "it carries a value that is neither an integer nor a buffer");
  }
  return true;
}

bool DeviceLoop::canHoist(Value value) {
  if (!loop->isAncestor(value.getParentBlock()->getParentOp()))
    return true;
  if (auto argument = dyn_cast<BlockArgument>(value))
    return argument.getOwner() == &body();
  Operation *op = value.getDefiningOp();
  return op->getBlock() == &body() && isMemoryEffectFree(op) && op->getNumRegions() == 0 &&
         llvm::all_of(op->getOperands(), [&](Value operand) { return canHoist(operand); });
}

bool DeviceLoop::usesVarying(Operation *op) {
  return llvm::any_of(op->getOperands(), [&](Value operand) { return isVarying(operand); });
}

std::optional<DeviceLoop::Counter> DeviceLoop::counterOf(Value value) {
  auto split = [&](Value number) -> std::optional<std::pair<unsigned, int64_t>> {
    int64_t offset = 0;
    while (auto sum = number.getDefiningOp<arith::AddIOp>()) {
      APInt constant;
      if (!matchPattern(sum.getRhs(), m_ConstantInt(&constant)))
        return std::nullopt;
      offset += constant.getSExtValue();
      number = sum.getLhs();
    }
    auto argument = dyn_cast<BlockArgument>(number);
    if (!argument || argument.getOwner() != loop.getAfterBody() || !argument.getType().isIndex())
      return std::nullopt;
    return std::pair(argument.getArgNumber(), offset);
  };
  auto now = split(value);
  if (!now)
    return std::nullopt;
  auto next = split(loop.getYieldOp().getOperand(carried[now->first]));
  if (!next || next->first != now->first || next->second < 0)
    return std::nullopt;
  return Counter{now->first, now->second, next->second};
}

bool DeviceLoop::visitRequire(RequireOp op) {
  auto compare = op.getCondition().getDefiningOp<arith::CmpIOp>();
  bool isLimit = compare && compare.getPredicate() == arith::CmpIPredicate::sle && !isVarying(compare.getRhs());
  std::optional<Counter> counter = isLimit ? counterOf(compare.getLhs()) : std::nullopt;
  if (!counter || !llvm::all_of(op->getOperands(), [&](Value operand) { return canHoist(operand); }))
    return fail(op, "a requirement in it depends on the step");
  limits.push_back({op, *counter, compare.getRhs()});
  return true;
}

/// An attn.grow, as it is after bufferisation.
bool DeviceLoop::visitGrowth(scf::IfOp op) {
  auto compare = op.getCondition().getDefiningOp<arith::CmpIOp>();
  auto same = op->getNumResults() == 1 && op.elseBlock() && op.thenBlock()->getOperations().size() == 1
                  ? dyn_cast<BlockArgument>(op.thenYield().getOperand(0))
                  : BlockArgument();
  if (!compare || compare.getPredicate() != arith::CmpIPredicate::sle || !same || same.getOwner() != &body() ||
      yielded()[carried[same.getArgNumber()]] != op.getResult(0))
    return false;
  Value size = compare.getLhs();
  std::optional<Counter> counter = counterOf(size);
  if (!canHoist(op.getCondition()) || (isVarying(size) && !counter) || isVarying(compare.getRhs()))
    return false;
  bool isSound = true;
  op.getElseRegion().walk([&](Operation *each) {
    if (isa<FetchOp, UploadOp, DownloadOp, KernelOp>(each))
      isSound = false;
    for (Value operand : each->getOperands())
      if (!op->isAncestor(operand.getParentBlock()->getParentOp()))
        isSound &= canHoist(operand) && (operand == size || !isVarying(operand));
  });
  if (isSound)
    growths.push_back({op, same.getArgNumber(), size, counter});
  return isSound;
}

bool DeviceLoop::visit(Operation *op, bool isNested) {
  if (auto launch = dyn_cast<gpu::LaunchOp>(op)) {
    launches.push_back(launch);
    return !usesVarying(op) || fail(op, "a launch in it has a size that depends on the step");
  }
  if (auto product = dyn_cast<ProductOp>(op)) {
    products.push_back(product);
    return true;
  }
  if (auto fetch = dyn_cast<FetchOp>(op)) {
    if (isNested)
      return fail(op, "it reads from the device in a branch");
    if (!isWord(fetch.getType()))
      return fail(op, "it reads a number from the device that is no integer");
    varying.insert(fetch.getResult());
    return true;
  }
  if (auto require = dyn_cast<RequireOp>(op))
    return !usesVarying(op) || (!isNested && visitRequire(require)) ||
           fail(op, "a requirement in it depends on the step");
  if (auto choice = dyn_cast<scf::IfOp>(op); choice && !isNested && visitGrowth(choice))
    return true;
  if (op->getNumRegions()) {
    if (!isa<scf::IfOp, scf::ForOp>(op) || usesVarying(op))
      return fail(op, "a branch or loop in it depends on the step");
    for (Region &region : op->getRegions())
      for (Operation &each : region.getOps())
        if (!visit(&each, /*isNested=*/true))
          return false;
    return true;
  }
  if (isMemoryEffectFree(op)) {
    if (usesVarying(op))
      for (Value result : op->getResults())
        varying.insert(result);
    return true;
  }
  if (auto load = dyn_cast<memref::LoadOp>(op)) {
    if (usesVarying(op) && !load.getMemRef().getDefiningOp<memref::GetGlobalOp>())
      return fail(op, "it reads a table that depends on the step");
    if (usesVarying(op))
      varying.insert(load.getResult());
    return true;
  }
  if (op->hasTrait<OpTrait::IsTerminator>())
    return !isNested || !usesVarying(op) || fail(op, "a branch in it depends on the step");
  if (!isa<PollOp, WorkspaceOp, WeightOp, DeviceErrorOp, memref::GetGlobalOp>(op) || usesVarying(op))
    return fail(op, "it has an op that the host carries out, '" + op->getName().getStringRef() + "'");
  return true;
}

bool DeviceLoop::readBody() {
  for (Operation &op : body())
    if (!visit(&op, /*isNested=*/false))
      return false;
  return true;
}

/// What a step leaves for the next one: a word, or the buffer that it has, with more room perhaps.
bool DeviceLoop::readNext() {
  for (auto [number, value] : llvm::enumerate(yielded())) {
    if (isWord(value.getType()))
      continue;
    bool isSame = llvm::any_of(llvm::enumerate(carried), [&, number = number, value = value](auto each) {
      return each.value() == number && value == body().getArgument(each.index());
    });
    bool isGrown =
        llvm::any_of(growths, [&, value = value](Growth &growth) { return growth.op.getResult(0) == value; });
    if (!isSame && !isGrown)
      return fail(loop, "a step hands another buffer to the next one than it had");
  }
  return true;
}

/// Pure arithmetic on what is carried; a limit in it bounds how much room is made.
bool DeviceLoop::readCondition() {
  for (Operation &op : loop.getBeforeBody()->without_terminator()) {
    if (!isMemoryEffectFree(&op) || op.getNumRegions())
      return fail(&op, "its condition is more than arithmetic");
    auto compare = dyn_cast<arith::CmpIOp>(op);
    if (!compare || compare.getPredicate() != arith::CmpIPredicate::slt)
      continue;
    auto argument = dyn_cast<BlockArgument>(compare.getLhs());
    auto at = argument && argument.getOwner() == loop.getBeforeBody() ? llvm::find(carried, argument.getArgNumber())
                                                                      : carried.end();
    bool isOutside = !loop->isAncestor(compare.getRhs().getParentBlock()->getParentOp());
    if (at == carried.end() || !isOutside)
      continue;
    auto counter = counterOf(body().getArgument(at - carried.begin()));
    if (counter && counter->step == 1) {
      counter->offset = 1; // one more than the last that is less
      limits.push_back({RequireOp(), *counter, compare.getRhs()});
    }
  }
  return true;
}

} // namespace attn
