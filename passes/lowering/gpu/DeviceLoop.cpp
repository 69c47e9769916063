#include "passes/lowering/gpu/DeviceLoop.h"
#include "dialects/attn/LoopOps.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Interfaces/ViewLikeInterface.h"
#include "llvm/Support/MathExtras.h"

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
  // What stands behind a branch must do no harm where that is not taken.
  Operation *op = value.getDefiningOp();
  return (op->getBlock() == &body() ? isMemoryEffectFree(op) : isPure(op)) && op->getNumRegions() == 0 &&
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

/// By how much `value` grows each step; none: by no constant.
std::optional<int64_t> DeviceLoop::rateOf(Value value) {
  if (!isVarying(value))
    return 0;
  if (std::optional<Counter> counter = counterOf(value))
    return counter->step;
  Operation *op = value.getDefiningOp();
  if (auto cast = dyn_cast_or_null<arith::IndexCastOp>(op))
    return rateOf(cast.getIn());
  if (!isa_and_nonnull<arith::AddIOp, arith::SubIOp, arith::MulIOp>(op))
    return std::nullopt;
  std::optional<int64_t> x = rateOf(op->getOperand(0)), y = rateOf(op->getOperand(1));
  APInt factor;
  int64_t result;
  bool isSound = x && y;
  if (isa<arith::MulIOp>(op)) {
    isSound = isSound && matchPattern(op->getOperand(1), m_ConstantInt(&factor));
    isSound = isSound && !llvm::MulOverflow(*x, factor.getSExtValue(), result);
  } else {
    isSound =
        isSound && !(isa<arith::AddIOp>(op) ? llvm::AddOverflow(*x, *y, result) : llvm::SubOverflow(*x, *y, result));
  }
  return isSound ? std::optional(result) : std::nullopt;
}

/// Whether a comparison that holds in a step holds in the next one.
bool DeviceLoop::staysTrue(Value condition) {
  auto compare = condition.getDefiningOp<arith::CmpIOp>();
  std::optional<int64_t> x = compare ? rateOf(compare.getLhs()) : std::nullopt;
  std::optional<int64_t> y = compare ? rateOf(compare.getRhs()) : std::nullopt;
  if (!x || !y)
    return false;
  switch (compare.getPredicate()) {
  case arith::CmpIPredicate::slt:
  case arith::CmpIPredicate::sle:
    return *x <= *y;
  case arith::CmpIPredicate::sgt:
  case arith::CmpIPredicate::sge:
    return *x >= *y;
  default:
    return *x == *y &&
           (compare.getPredicate() == arith::CmpIPredicate::eq || compare.getPredicate() == arith::CmpIPredicate::ne);
  }
}

bool DeviceLoop::visitRequire(RequireOp op, bool isNested) {
  bool hoists = !isNested && llvm::all_of(op->getOperands(), [&](Value operand) { return canHoist(operand); });
  if (hoists && staysTrue(op.getCondition())) {
    kept.push_back(op);
    return true;
  }
  auto compare = op.getCondition().getDefiningOp<arith::CmpIOp>();
  bool isLimit = compare && compare.getPredicate() == arith::CmpIPredicate::sle && !isVarying(compare.getRhs());
  if (std::optional<Counter> counter = isLimit && hoists ? counterOf(compare.getLhs()) : std::nullopt) {
    limits.push_back({op, *counter, compare.getRhs()});
    return true;
  }
  if (isNested)
    return fail(op, "a requirement in a branch depends on the step");
  checks.push_back(op);
  return true;
}

/// A size that differs from step to step is taken as large as it can be; blocks beyond what it is do nothing.
bool DeviceLoop::visitLaunch(gpu::LaunchOp op) {
  launches.push_back(op);
  if (!usesVarying(op))
    return true;
  SmallVector<Value> blocks = {op.getGridSizeX(), op.getGridSizeY(), op.getGridSizeZ()};
  SmallVector<Value> others = {op.getBlockSizeX(), op.getBlockSizeY(), op.getBlockSizeZ()};
  if (Value bytes = op.getDynamicSharedMemorySize())
    others.push_back(bytes);
  bool isSound = !op->hasAttr(kCooperativeAttr) &&
                 llvm::none_of(others, [&](Value value) { return isVarying(value); }) &&
                 llvm::all_of(blocks, [&](Value value) { return !isVarying(value) || ranges.know(value); });
  return isSound || fail(op, "a launch in it has a size that depends on the step");
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

/// Whether a kernel can make the view for itself: of a dense buffer, or with sizes that follow from those of its
/// source.
static bool isReshape(memref::ExpandShapeOp op) {
  return op.getResultType().getLayout().isIdentity() ||
         llvm::all_of(op.getReassociationIndices(), [&](const ReassociationIndices &group) {
           return llvm::count_if(group, [&](int64_t dim) { return op.getResultType().isDynamicDim(dim); }) < 2;
         });
}

bool DeviceLoop::visit(Operation *op, bool isNested) {
  if (auto launch = dyn_cast<gpu::LaunchOp>(op))
    return visitLaunch(launch);
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
    return !usesVarying(op) || visitRequire(require, isNested);
  if (auto memory = dyn_cast<WorkspaceOp>(op); memory && usesVarying(op)) {
    workspaces.push_back(memory);
    return ranges.know(memory.getBytes()) || fail(op, "it has a buffer whose size depends on the step");
  }
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
  if (auto expand = dyn_cast<memref::ExpandShapeOp>(op); expand && usesVarying(op))
    if (!isReshape(expand))
      return fail(op,
                  "it has a view of a part that is reshaped to several open sizes, one of which depends on the step");
  if (isa<MapTilesOp>(op) && usesVarying(op))
    return fail(op, "it copies tiles of a matrix whose size depends on the step");
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
