#include "builders/Code.h"
#include "builders/Operators.h"
#include "dialects/attn/LoopOps.h"
#include "passes/Passes.h"
#include "passes/lowering/gpu/DeviceLoop.h"
#include "passes/lowering/gpu/GivenReshape.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Remarks.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Transforms/RegionUtils.h"
#include "llvm/ADT/SetVector.h"

namespace attn {
#define GEN_PASS_DEF_MOVELOOPSPASS
#include "passes/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {
constexpr int64_t kMost = int64_t(1) << 40; ///< steps that are made at once where nothing limits them
constexpr int64_t kFewest = 16;             ///< steps that buffers get room for

Num toWord(Code &k, Value value) {
  Type word = k.b.getI64Type();
  return value.getType().isInteger(1) ? toNum(k.asMask(value), word) : convert(k.asNum(value), word);
}

/// Makes the steps of one loop on the device.
class LoopMover {
public:
  LoopMover(DeviceLoop &what, func::FuncOp entry)
      : what(what), entry(entry), b(entry.getContext()), loc(what.loop.getLoc()), k(b, loc) {}

  void run() {
    placeState();
    Block &body = what.body();
    b.setInsertionPointToStart(&body);
    moveLimits();
    Index steps = countSteps();
    moveGrowths(steps);
    findMost(steps);
    startState(steps);
    auto begin = BeginLoopOp::create(b, loc);
    useGrown(begin);
    for (ProductOp product : what.products) {
      OpBuilder at(product);
      product.replaceAllUsesWith(arith::ConstantIntOp::create(at, loc, 0, 1).getResult());
      product.erase();
    }
    for (gpu::LaunchOp launch : what.launches) {
      guard(launch);
      sinkWords(launch);
    }
    for (Operation &op : llvm::make_early_inc_range(body)) {
      if (auto fetch = dyn_cast<FetchOp>(op))
        keep(fetch);
      else if (auto require = dyn_cast<RequireOp>(op); require && llvm::is_contained(what.checks, require))
        check(require);
    }
    b.setInsertionPoint(body.getTerminator());
    makeNext();
    EndLoopOp::create(b, loc, state, flagWord);
    readState();
    eraseDead(begin);
  }

private:
  //===--------------------------------------------------------------------===//
  // The words
  //===--------------------------------------------------------------------===//

  /// One for each number that is carried, each that is fetched and each that a requirement names, which requirement
  /// does not hold, whether an index was out of range, the steps that are left, and whether it goes on.
  void placeState() {
    ValueRange carried = what.yielded();
    fetchWord = carried.size();
    brokenWord = fetchWord + what.fetched.size();
    for (RequireOp require : what.checks) {
      valueWords.push_back(brokenWord);
      brokenWord += require.getValues().size();
    }
    entry.walk([&](DeviceErrorOp op) { error = op; });
    errorWord = brokenWord + !what.checks.empty();
    leftWord = errorWord + !!error;
    flagWord = leftWord + 1;
    b.setInsertionPointToStart(&entry.getBody().front());
    auto type = MemRefType::get({static_cast<int64_t>(flagWord + 1)}, b.getI64Type());
    Value bytes = k.index(8 * (flagWord + 1));
    Value arena = WorkspaceOp::create(b, loc, MemRefType::get({ShapedType::kDynamic}, b.getI8Type()), bytes);
    state = memref::ViewOp::create(b, loc, type, arena, k.index(0), ValueRange());
    copy = memref::AllocaOp::create(b, loc, type);
    if (error)
      k.asBuffer(copy).set(k.i64(0), errorWord);
  }
  /// A word in `words`, of the device or as the host has read them.
  static Num loadWord(Code &k, Value words, int64_t word) { return k.asBuffer(words)(word); }
  void storeWord(Code &k, Value value, int64_t word) { k.asBuffer(state).set(toWord(k, value), word); }
  /// A launch of one thread, with `b` left behind it. One that no other launch has followed yet moves here and goes on.
  OpBuilder launchOne() {
    if (own && !hasLaunchBetween(own)) {
      own->moveBefore(b.getInsertionBlock(), b.getInsertionPoint());
      OpBuilder inside(own.getContext());
      inside.setInsertionPoint(own.getBody().front().getTerminator());
      return inside;
    }
    Value one = k.index(1);
    auto launch = gpu::LaunchOp::create(b, loc, one, one, one, one, one, one);
    OpBuilder inside = OpBuilder::atBlockBegin(&launch.getBody().front());
    gpu::TerminatorOp::create(inside, loc);
    inside.setInsertionPoint(launch.getBody().front().getTerminator());
    own = launch;
    known.clear();
    return inside;
  }
  /// Whether something happens on the device between `launch` and where `b` stands.
  bool hasLaunchBetween(gpu::LaunchOp launch) {
    for (Operation *op = launch->getNextNode(); op && op != &*b.getInsertionPoint(); op = op->getNextNode())
      if (!isMemoryEffectFree(op) && !isa<FetchOp, RequireOp, WorkspaceOp, PollOp>(op))
        return true;
    return false;
  }

  //===--------------------------------------------------------------------===//
  // In front of the loop: for all of its steps
  //===--------------------------------------------------------------------===//

  /// `value` of the body, computed at the body's beginning.
  Value hoist(Value value) {
    if (front.contains(value))
      return front.lookup(value);
    Operation *op = value.getDefiningOp();
    if (!op || !what.loop->isAncestor(op))
      return value;
    for (Value operand : op->getOperands())
      hoist(operand);
    b.clone(*op, front);
    return front.lookup(value);
  }
  Value argument(unsigned number) { return what.body().getArgument(number); }
  Index valueOf(const DeviceLoop::Counter &counter) { return k.asIndex(argument(counter.argument)) + counter.offset; }

  void moveLimits() {
    SmallVector<RequireOp> first = what.kept;
    for (DeviceLoop::Limit &limit : what.limits)
      if (limit.op)
        first.push_back(limit.op);
    for (RequireOp op : first) {
      for (Value operand : op->getOperands())
        hoist(operand);
      b.clone(*op, front);
    }
  }

  /// How many steps are made at once: no more than limits allow, nor than buffers get room for.
  Index countSteps() {
    Index steps = k.index(kMost);
    auto giveRoom = [&](const Index &size) { steps = minimum(steps, maximum(size, kFewest)); };
    for (DeviceLoop::Growth &growth : what.growths)
      if (growth.counter && growth.counter->step)
        giveRoom(valueOf(*growth.counter));
    for (unsigned counter : what.ranges.counters())
      giveRoom(k.asIndex(argument(counter)));
    for (DeviceLoop::Limit &limit : what.limits) {
      if (limit.counter.step == 0)
        continue;
      Value more = k.asIndex(hoist(limit.bound)) - valueOf(limit.counter); // may be below 0
      more = arith::DivSIOp::create(b, loc, more, k.index(limit.counter.step));
      steps = minimum(steps, k.asIndex(more) + 1);
    }
    // A requirement holds for this step; that part of the condition need not, where it is one of two.
    return maximum(steps, 1);
  }

  void moveGrowths(const Index &steps) {
    for (DeviceLoop::Growth &growth : what.growths) {
      IRMapping ofThese = front;
      if (growth.counter)
        ofThese.map(growth.size, (valueOf(*growth.counter) + (steps - 1) * growth.counter->step).value());
      std::swap(front, ofThese);
      hoist(growth.op.getCondition());
      SetVector<Value> above;
      getUsedValuesDefinedAbove(growth.op->getRegions(), above);
      for (Value value : above)
        hoist(value);
      Operation *grown = b.clone(*growth.op, front);
      std::swap(front, ofThese);
      buffers.push_back(grown->getResult(0));
    }
  }

  /// Buffers of a step and launches have room for what any of the steps needs.
  void findMost(const Index &steps) {
    auto moved = [&](Value value) { return hoist(value); };
    StepRanges::Front ahead = {moved, steps - 1};
    for (WorkspaceOp memory : what.workspaces)
      memory.getBytesMutable().assign(what.ranges.most(b, memory.getBytes(), ahead));
    for (gpu::LaunchOp launch : what.launches)
      for (Value size : {launch.getGridSizeX(), launch.getGridSizeY(), launch.getGridSizeZ()})
        if (what.isVarying(size))
          most[size] = what.ranges.most(b, size, ahead);
  }

  void startState(const Index &steps) {
    SmallVector<std::pair<int64_t, Value>> words = {{leftWord, toWord(k, steps)}};
    if (!what.checks.empty())
      words.emplace_back(brokenWord, k.i64(0));
    for (auto [number, value] : llvm::enumerate(what.body().getArguments()))
      if (what.isVarying(value))
        words.push_back({what.carriedBy(number), toWord(k, value)});
    OpBuilder one = launchOne();
    Code inside(one, loc);
    for (auto [word, value] : words)
      storeWord(inside, value, word);
  }

  /// From `begin` on the body has the buffers with more room.
  void useGrown(Operation *begin) {
    for (auto [index, buffer] : llvm::enumerate(buffers)) {
      DeviceLoop::Growth &growth = what.growths[index];
      argument(growth.argument).replaceUsesWithIf(buffer, [&](OpOperand &use) {
        Operation *owner = what.body().findAncestorOpInBlock(*use.getOwner());
        return owner && begin->isBeforeInBlock(owner) && !growth.op->isAncestor(use.getOwner());
      });
      growth.op.getResult(0).replaceAllUsesWith(buffer);
      growth.op.erase();
    }
    for (DeviceLoop::Limit &limit : what.limits)
      if (limit.op)
        limit.op.erase();
    for (RequireOp op : what.kept)
      op.erase();
  }

  //===--------------------------------------------------------------------===//
  // The steps
  //===--------------------------------------------------------------------===//

  /// A value of the body, computed where `inside` stands in a launch.
  Value onDevice(Value value, Code &inside, Operation *launch, IRMapping &map) {
    if (map.contains(value))
      return map.lookup(value);
    if (!what.isVarying(value)) {
      if (!value.getType().isInteger(1))
        return value;
      // No kernel takes a bit.
      OpBuilder before(launch);
      Code host(before, loc);
      Value bit = convert(inside.asNum(toWord(host, value)), value.getType());
      map.map(value, bit);
      return bit;
    }
    Value result;
    if (auto argument = dyn_cast<BlockArgument>(value)) {
      result = convert(loadWord(inside, state, what.carriedBy(argument.getArgNumber())), value.getType());
    } else if (auto fetch = value.getDefiningOp<FetchOp>()) {
      auto number = llvm::find(what.fetched, fetch) - what.fetched.begin();
      result = convert(loadWord(inside, state, fetchWord + number), value.getType());
    } else {
      Operation *op = value.getDefiningOp();
      for (Value operand : op->getOperands())
        if (Value made = onDevice(operand, inside, launch, map); made != operand)
          map.map(operand, made);
      if (auto expand = dyn_cast<memref::ExpandShapeOp>(op))
        return reshapeAsGiven(expand, inside.b, map);
      inside.b.clone(*op, map);
      return map.lookup(value);
    }
    map.map(value, result);
    return result;
  }

  /// Blocks beyond the step's own number do nothing, nor do any behind a requirement that does not hold.
  void guard(gpu::LaunchOp launch) {
    Block &body = launch.getBody().front();
    OpBuilder begin = OpBuilder::atBlockBegin(&body);
    Code inside(begin, loc);
    std::optional<Mask> takesPart;
    auto require = [&](Value holds) {
      takesPart = takesPart ? *takesPart & inside.asMask(holds) : inside.asMask(holds);
    };
    gpu::KernelDim3 ids = launch.getBlockIds(), counts = launch.getGridSize();
    auto limit = [&](OpOperand &size, Value id, Value count) {
      if (!what.isVarying(size.get()))
        return;
      count.replaceAllUsesWith(size.get());
      require(arith::CmpIOp::create(begin, loc, arith::CmpIPredicate::ult, id, size.get()));
      size.set(most.lookup(size.get()));
    };
    limit(launch.getGridSizeXMutable(), ids.x, counts.x);
    limit(launch.getGridSizeYMutable(), ids.y, counts.y);
    limit(launch.getGridSizeZMutable(), ids.z, counts.z);
    Operation *top = what.body().findAncestorOpInBlock(*launch);
    if (!what.checks.empty() && what.checks.front()->isBeforeInBlock(top))
      require(loadWord(inside, state, brokenWord) == 0);
    if (!takesPart)
      return;
    auto branch = scf::IfOp::create(begin, loc, *takesPart);
    Operation *end = branch.thenBlock()->getTerminator();
    while (branch->getNextNode() != body.getTerminator())
      branch->getNextNode()->moveBefore(end);
  }

  void sinkWords(gpu::LaunchOp launch) {
    SetVector<Value> above;
    getUsedValuesDefinedAbove(launch.getBody(), above);
    OpBuilder begin = OpBuilder::atBlockBegin(&launch.getBody().front());
    Code inside(begin, loc);
    IRMapping map;
    for (Value value : above)
      if (what.isVarying(value))
        replaceAllUsesInRegionWith(value, onDevice(value, inside, launch, map), launch.getBody());
  }

  /// What the host would fetch goes to a word: its place may be used for something else later in the step.
  void keep(FetchOp fetch) {
    b.setInsertionPoint(fetch);
    OpBuilder one = launchOne();
    Code inside(one, loc);
    Value buffer = onDevice(fetch.getBuffer(), inside, own, known);
    SmallVector<Value> at =
        llvm::map_to_vector(fetch.getIndices(), [&](Value index) { return onDevice(index, inside, own, known); });
    Value value = memref::LoadOp::create(one, loc, buffer, at);
    auto number = llvm::find(what.fetched, fetch) - what.fetched.begin();
    storeWord(inside, value, fetchWord + number);
    known.map(fetch.getResult(), value);
  }

  /// Of the first requirement that does not hold the number and the values go to words, for the host to read.
  void check(RequireOp op) {
    b.setInsertionPoint(op);
    OpBuilder one = launchOne();
    Code inside(one, loc);
    uint64_t number = llvm::find(what.checks, op) - what.checks.begin();
    Mask isFirst = loadWord(inside, state, brokenWord) == 0;
    if (error) // what it is about may come from such an index
      isFirst = isFirst & (loadWord(inside, error, 0) == 0);
    Mask fails = !inside.asMask(onDevice(op.getCondition(), inside, own, known));
    SmallVector<Value> values =
        llvm::map_to_vector(op.getValues(), [&](Value value) { return onDevice(value, inside, own, known); });
    inside.when(isFirst & fails, [&] {
      storeWord(inside, inside.i64(number + 1), brokenWord);
      for (auto [n, value] : llvm::enumerate(values))
        storeWord(inside, value, valueWords[number] + n);
    });
  }

  /// The last launch of a step: what the next one starts from, and whether there is one.
  void makeNext() {
    OpBuilder one = launchOne();
    Code inside(one, loc);
    IRMapping ofNext;
    ValueRange next = what.yielded();
    for (auto [number, value] : llvm::enumerate(next)) {
      Value word = isa<MemRefType>(value.getType()) ? value : onDevice(value, inside, own, known);
      ofNext.map(what.loop.getBeforeArguments()[number], word);
    }
    Num left = loadWord(inside, state, leftWord) - 1;
    for (Operation &op : what.loop.getBeforeBody()->without_terminator()) {
      for (Value operand : op.getOperands())
        if (!ofNext.contains(operand))
          ofNext.map(operand, onDevice(operand, inside, own, known));
      one.clone(op, ofNext);
    }
    Value condition = what.loop.getConditionOp().getCondition();
    Value goesOn = ofNext.contains(condition) ? ofNext.lookup(condition) : onDevice(condition, inside, own, known);
    Mask isMore = left > 0;
    if (!what.checks.empty())
      isMore = isMore & (loadWord(inside, state, brokenWord) == 0);
    if (error) {
      Num found = loadWord(inside, error, 0);
      isMore = isMore & (found == 0);
      storeWord(inside, found, errorWord);
    }
    for (auto [number, value] : llvm::enumerate(next))
      if (!isa<MemRefType>(value.getType()))
        storeWord(inside, ofNext.lookup(what.loop.getBeforeArguments()[number]), number);
    storeWord(inside, left, leftWord);
    storeWord(inside, inside.asMask(goesOn) & isMore, flagWord);
  }

  void readState() {
    DownloadOp::create(b, loc, state, copy);
    for (auto [number, op] : llvm::enumerate(what.checks)) {
      Mask holds = loadWord(k, copy, brokenWord) != static_cast<int64_t>(number + 1);
      SmallVector<Value> values;
      for (uint64_t n = 0; n < op.getValues().size(); ++n)
        values.push_back(toIndex(loadWord(k, copy, valueWords[number] + n)));
      RequireOp::create(b, op.getLoc(), holds, op.getMessageAttr(), values, op.getUnsupportedAttr());
      op.erase();
    }
    Operation *yield = what.body().getTerminator();
    for (auto [number, value] : llvm::enumerate(SmallVector<Value>(what.yielded())))
      if (!isa<MemRefType>(value.getType()))
        yield->setOperand(number, convert(loadWord(k, copy, number), value.getType()));
    if (!error)
      return;
    // The run ends with the message of the index, and as soon as the loop is left.
    scf::ConditionOp condition = what.loop.getConditionOp();
    OpBuilder before(condition);
    Code at(before, loc);
    Mask isSound = loadWord(at, copy, errorWord) == 0;
    condition.getConditionMutable().assign(at.asMask(condition.getCondition()) & isSound);
  }

  /// What the launches compute for themselves now.
  void eraseDead(Operation *begin) {
    SmallVector<Operation *> old;
    for (Operation *op = begin->getNextNode(); op; op = op->getNextNode())
      old.push_back(op);
    for (Operation *op : llvm::reverse(old))
      if (isOpTriviallyDead(op) || (isa<FetchOp>(op) && op->use_empty()))
        op->erase();
  }

  DeviceLoop &what;
  func::FuncOp entry;
  OpBuilder b;
  Location loc;
  Code k;                   ///< where `b` stands
  Value state, copy, error; ///< `error`: of indices out of range, where something may have one
  int64_t fetchWord = 0, brokenWord = 0, errorWord = 0, leftWord = 0, flagWord = 0;
  SmallVector<int64_t> valueWords; ///< of each requirement that a step looks at
  DenseMap<Value, Value> most;     ///< of the numbers of blocks that differ from step to step
  gpu::LaunchOp own;               ///< the last launch of one thread, and what it has computed
  IRMapping known;
  IRMapping front;            ///< what was computed in front of the loop, by what it is in the body
  SmallVector<Value> buffers; ///< with more room, as in `what.growths`
};

struct MoveLoopsPass : attn::impl::MoveLoopsPassBase<MoveLoopsPass> {
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (!function->hasAttr(AttnDialect::kEntryAttr))
        continue;
      SmallVector<scf::WhileOp> loops;
      function.walk([&](scf::WhileOp loop) { loops.push_back(loop); });
      for (scf::WhileOp loop : loops) {
        DeviceLoop what(loop);
        if (!what.fetches())
          continue;
        remark::RemarkOpts about = remark::RemarkOpts::name("loop").category("attn-move-loops");
        if (what.reason().empty()) {
          remark::passed(loop.getLoc(), about) << "goes on without the host";
          LoopMover(what, function).run();
          continue;
        }
        remark::missed(what.culprit()->getLoc(), about) << remark::reason("{0}", what.reason());
      }
    }
  }
};
} // namespace
