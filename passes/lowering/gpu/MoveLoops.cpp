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

Value constant(OpBuilder &b, Location loc, int64_t value) { return arith::ConstantIndexOp::create(b, loc, value); }

Value toWord(OpBuilder &b, Location loc, Value value) {
  if (value.getType().isIndex())
    return arith::IndexCastOp::create(b, loc, b.getI64Type(), value);
  if (value.getType().isInteger(1))
    return arith::ExtUIOp::create(b, loc, b.getI64Type(), value);
  return value.getType().isInteger(64) ? value : arith::ExtSIOp::create(b, loc, b.getI64Type(), value).getResult();
}

Value fromWord(OpBuilder &b, Location loc, Value word, Type type) {
  if (type.isIndex())
    return arith::IndexCastOp::create(b, loc, type, word);
  return type.isInteger(64) ? word : arith::TruncIOp::create(b, loc, type, word).getResult();
}

/// Makes the steps of one loop on the device.
class LoopMover {
public:
  LoopMover(DeviceLoop &what, func::FuncOp entry)
      : what(what), entry(entry), b(entry.getContext()), loc(what.loop.getLoc()) {}

  void run() {
    placeState();
    Block &body = what.body();
    b.setInsertionPointToStart(&body);
    moveLimits();
    Value steps = countSteps();
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
    Value bytes = constant(b, loc, 8 * (flagWord + 1));
    Value arena = WorkspaceOp::create(b, loc, MemRefType::get({ShapedType::kDynamic}, b.getI8Type()), bytes);
    state = memref::ViewOp::create(b, loc, type, arena, constant(b, loc, 0), ValueRange());
    copy = memref::AllocaOp::create(b, loc, type);
    if (error)
      memref::StoreOp::create(b, loc, arith::ConstantIntOp::create(b, loc, 0, 64), copy, constant(b, loc, errorWord));
  }
  /// Whether no index has been out of range so far, where the device asks, or the host about the steps that are done.
  Value isSound(OpBuilder &at, Value words, uint64_t word) {
    return arith::CmpIOp::create(at, loc, arith::CmpIPredicate::eq, loadWord(at, words, word, b.getI64Type()),
                                 arith::ConstantIntOp::create(at, loc, 0, 64));
  }
  Value loadWord(OpBuilder &at, Value words, uint64_t word, Type type) {
    Value value = memref::LoadOp::create(at, loc, words, constant(at, loc, word));
    return fromWord(at, loc, value, type);
  }
  void storeWord(OpBuilder &at, Value value, uint64_t word) {
    memref::StoreOp::create(at, loc, toWord(at, loc, value), state, constant(at, loc, word));
  }
  /// A launch of one thread, with `b` left behind it. One that no other launch has followed yet moves here and goes on.
  OpBuilder launchOne() {
    if (own && !hasLaunchBetween(own)) {
      own->moveBefore(b.getInsertionBlock(), b.getInsertionPoint());
      OpBuilder inside(own.getContext());
      inside.setInsertionPoint(own.getBody().front().getTerminator());
      return inside;
    }
    Value one = constant(b, loc, 1);
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
  Value valueOf(const DeviceLoop::Counter &counter) {
    return arith::AddIOp::create(b, loc, argument(counter.argument), constant(b, loc, counter.offset));
  }

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
  Value countSteps() {
    Value steps = constant(b, loc, kMost);
    auto giveRoom = [&](Value size) {
      steps = arith::MinSIOp::create(b, loc, steps, arith::MaxSIOp::create(b, loc, size, constant(b, loc, kFewest)));
    };
    for (DeviceLoop::Growth &growth : what.growths)
      if (growth.counter && growth.counter->step)
        giveRoom(valueOf(*growth.counter));
    for (unsigned counter : what.ranges.counters())
      giveRoom(argument(counter));
    for (DeviceLoop::Limit &limit : what.limits) {
      if (limit.counter.step == 0)
        continue;
      Value more = arith::SubIOp::create(b, loc, hoist(limit.bound), valueOf(limit.counter));
      more = arith::DivSIOp::create(b, loc, more, constant(b, loc, limit.counter.step));
      steps = arith::MinSIOp::create(b, loc, steps, arith::AddIOp::create(b, loc, more, constant(b, loc, 1)));
    }
    // A requirement holds for this step; that part of the condition need not, where it is one of two.
    return arith::MaxSIOp::create(b, loc, steps, constant(b, loc, 1));
  }

  void moveGrowths(Value steps) {
    Value others = arith::SubIOp::create(b, loc, steps, constant(b, loc, 1));
    for (DeviceLoop::Growth &growth : what.growths) {
      IRMapping ofThese = front;
      if (growth.counter) {
        Value more = arith::MulIOp::create(b, loc, others, constant(b, loc, growth.counter->step));
        ofThese.map(growth.size, arith::AddIOp::create(b, loc, valueOf(*growth.counter), more).getResult());
      }
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
  void findMost(Value steps) {
    auto moved = [&](Value value) { return hoist(value); };
    StepRanges::Front ahead = {moved, arith::SubIOp::create(b, loc, steps, constant(b, loc, 1))};
    for (WorkspaceOp memory : what.workspaces)
      memory.getBytesMutable().assign(what.ranges.most(b, memory.getBytes(), ahead));
    for (gpu::LaunchOp launch : what.launches)
      for (Value size : {launch.getGridSizeX(), launch.getGridSizeY(), launch.getGridSizeZ()})
        if (what.isVarying(size))
          most[size] = what.ranges.most(b, size, ahead);
  }

  void startState(Value steps) {
    Value none = arith::ConstantIntOp::create(b, loc, 0, 64);
    SmallVector<std::pair<uint64_t, Value>> words = {{leftWord, toWord(b, loc, steps)}};
    if (!what.checks.empty())
      words.emplace_back(brokenWord, none);
    for (auto [number, value] : llvm::enumerate(what.body().getArguments()))
      if (what.isVarying(value))
        words.push_back({what.carriedBy(number), toWord(b, loc, value)});
    OpBuilder inside = launchOne();
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
  Value onDevice(Value value, OpBuilder &inside, Operation *launch, IRMapping &map) {
    if (map.contains(value))
      return map.lookup(value);
    if (!what.isVarying(value)) {
      if (!value.getType().isInteger(1))
        return value;
      // No kernel takes a bit.
      OpBuilder before(launch);
      Value bit = fromWord(inside, loc, toWord(before, loc, value), value.getType());
      map.map(value, bit);
      return bit;
    }
    Value result;
    if (auto argument = dyn_cast<BlockArgument>(value)) {
      result = loadWord(inside, state, what.carriedBy(argument.getArgNumber()), value.getType());
    } else if (auto fetch = value.getDefiningOp<FetchOp>()) {
      auto number = llvm::find(what.fetched, fetch) - what.fetched.begin();
      result = loadWord(inside, state, fetchWord + number, value.getType());
    } else {
      Operation *op = value.getDefiningOp();
      for (Value operand : op->getOperands())
        if (Value made = onDevice(operand, inside, launch, map); made != operand)
          map.map(operand, made);
      if (auto expand = dyn_cast<memref::ExpandShapeOp>(op))
        return reshapeAsGiven(expand, inside, map);
      inside.clone(*op, map);
      return map.lookup(value);
    }
    map.map(value, result);
    return result;
  }

  /// Blocks beyond the step's own number do nothing, nor do any behind a requirement that does not hold.
  void guard(gpu::LaunchOp launch) {
    Block &body = launch.getBody().front();
    OpBuilder inside = OpBuilder::atBlockBegin(&body);
    Value takesPart;
    auto require = [&](arith::CmpIPredicate predicate, Value x, Value y) {
      Value holds = arith::CmpIOp::create(inside, loc, predicate, x, y);
      takesPart = takesPart ? arith::AndIOp::create(inside, loc, takesPart, holds).getResult() : holds;
    };
    gpu::KernelDim3 ids = launch.getBlockIds(), counts = launch.getGridSize();
    auto limit = [&](OpOperand &size, Value id, Value count) {
      if (!what.isVarying(size.get()))
        return;
      count.replaceAllUsesWith(size.get());
      require(arith::CmpIPredicate::ult, id, size.get());
      size.set(most.lookup(size.get()));
    };
    limit(launch.getGridSizeXMutable(), ids.x, counts.x);
    limit(launch.getGridSizeYMutable(), ids.y, counts.y);
    limit(launch.getGridSizeZMutable(), ids.z, counts.z);
    Operation *top = what.body().findAncestorOpInBlock(*launch);
    if (!what.checks.empty() && what.checks.front()->isBeforeInBlock(top))
      require(arith::CmpIPredicate::eq, loadWord(inside, state, brokenWord, b.getI64Type()),
              arith::ConstantIntOp::create(inside, loc, 0, 64));
    if (!takesPart)
      return;
    auto branch = scf::IfOp::create(inside, loc, takesPart);
    Operation *end = branch.thenBlock()->getTerminator();
    while (branch->getNextNode() != body.getTerminator())
      branch->getNextNode()->moveBefore(end);
  }

  void sinkWords(gpu::LaunchOp launch) {
    SetVector<Value> above;
    getUsedValuesDefinedAbove(launch.getBody(), above);
    OpBuilder inside = OpBuilder::atBlockBegin(&launch.getBody().front());
    IRMapping map;
    for (Value value : above)
      if (what.isVarying(value))
        replaceAllUsesInRegionWith(value, onDevice(value, inside, launch, map), launch.getBody());
  }

  /// What the host would fetch goes to a word: its place may be used for something else later in the step.
  void keep(FetchOp fetch) {
    b.setInsertionPoint(fetch);
    OpBuilder inside = launchOne();
    Value buffer = onDevice(fetch.getBuffer(), inside, own, known);
    SmallVector<Value> at =
        llvm::map_to_vector(fetch.getIndices(), [&](Value index) { return onDevice(index, inside, own, known); });
    Value value = memref::LoadOp::create(inside, loc, buffer, at);
    auto number = llvm::find(what.fetched, fetch) - what.fetched.begin();
    storeWord(inside, value, fetchWord + number);
    known.map(fetch.getResult(), value);
  }

  /// Of the first requirement that does not hold the number and the values go to words, for the host to read.
  void check(RequireOp op) {
    b.setInsertionPoint(op);
    OpBuilder inside = launchOne();
    uint64_t number = llvm::find(what.checks, op) - what.checks.begin();
    Value none = arith::ConstantIntOp::create(inside, loc, 0, 64);
    Value before = loadWord(inside, state, brokenWord, b.getI64Type());
    Value isFirst = arith::CmpIOp::create(inside, loc, arith::CmpIPredicate::eq, before, none);
    if (error) // what it is about may come from such an index
      isFirst = arith::AndIOp::create(inside, loc, isFirst, isSound(inside, error, 0));
    Value fails = arith::XOrIOp::create(inside, loc, onDevice(op.getCondition(), inside, own, known),
                                        arith::ConstantIntOp::create(inside, loc, 1, 1));
    SmallVector<Value> values =
        llvm::map_to_vector(op.getValues(), [&](Value value) { return onDevice(value, inside, own, known); });
    auto branch = scf::IfOp::create(inside, loc, arith::AndIOp::create(inside, loc, isFirst, fails));
    inside.setInsertionPoint(branch.thenBlock()->getTerminator());
    storeWord(inside, arith::ConstantIntOp::create(inside, loc, number + 1, 64), brokenWord);
    for (auto [n, value] : llvm::enumerate(values))
      storeWord(inside, value, valueWords[number] + n);
  }

  /// The last launch of a step: what the next one starts from, and whether there is one.
  void makeNext() {
    OpBuilder inside = launchOne();
    IRMapping ofNext;
    ValueRange next = what.yielded();
    for (auto [number, value] : llvm::enumerate(next)) {
      Value word = isa<MemRefType>(value.getType()) ? value : onDevice(value, inside, own, known);
      ofNext.map(what.loop.getBeforeArguments()[number], word);
    }
    Value none = arith::ConstantIntOp::create(inside, loc, 0, 64);
    Value left = loadWord(inside, state, leftWord, b.getI64Type());
    left = arith::SubIOp::create(inside, loc, left, arith::ConstantIntOp::create(inside, loc, 1, 64));
    for (Operation &op : what.loop.getBeforeBody()->without_terminator()) {
      for (Value operand : op.getOperands())
        if (!ofNext.contains(operand))
          ofNext.map(operand, onDevice(operand, inside, own, known));
      inside.clone(op, ofNext);
    }
    Value condition = what.loop.getConditionOp().getCondition();
    Value goesOn = ofNext.contains(condition) ? ofNext.lookup(condition) : onDevice(condition, inside, own, known);
    Value isMore = arith::CmpIOp::create(inside, loc, arith::CmpIPredicate::sgt, left, none);
    if (!what.checks.empty()) {
      Value broken = loadWord(inside, state, brokenWord, b.getI64Type());
      Value holds = arith::CmpIOp::create(inside, loc, arith::CmpIPredicate::eq, broken, none);
      isMore = arith::AndIOp::create(inside, loc, isMore, holds);
    }
    if (error) {
      isMore = arith::AndIOp::create(inside, loc, isMore, isSound(inside, error, 0));
      storeWord(inside, loadWord(inside, error, 0, b.getI64Type()), errorWord);
    }
    for (auto [number, value] : llvm::enumerate(next))
      if (!isa<MemRefType>(value.getType()))
        storeWord(inside, ofNext.lookup(what.loop.getBeforeArguments()[number]), number);
    storeWord(inside, left, leftWord);
    storeWord(inside, arith::AndIOp::create(inside, loc, goesOn, isMore), flagWord);
  }

  void readState() {
    DownloadOp::create(b, loc, state, copy);
    for (auto [number, op] : llvm::enumerate(what.checks)) {
      Value broken = loadWord(b, copy, brokenWord, b.getI64Type());
      Value holds = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, broken,
                                          arith::ConstantIntOp::create(b, loc, number + 1, 64));
      SmallVector<Value> values;
      for (uint64_t n = 0; n < op.getValues().size(); ++n)
        values.push_back(loadWord(b, copy, valueWords[number] + n, b.getIndexType()));
      RequireOp::create(b, op.getLoc(), holds, op.getMessageAttr(), values, op.getUnsupportedAttr());
      op.erase();
    }
    Operation *yield = what.body().getTerminator();
    for (auto [number, value] : llvm::enumerate(SmallVector<Value>(what.yielded())))
      if (!isa<MemRefType>(value.getType()))
        yield->setOperand(number, loadWord(b, copy, number, value.getType()));
    if (!error)
      return;
    // The run ends with the message of the index, and as soon as the loop is left.
    scf::ConditionOp condition = what.loop.getConditionOp();
    OpBuilder at(condition);
    Value goesOn = arith::AndIOp::create(at, loc, condition.getCondition(), isSound(at, copy, errorWord));
    condition.getConditionMutable().assign(goesOn);
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
  Value state, copy, error; ///< `error`: of indices out of range, where something may have one
  uint64_t fetchWord = 0, brokenWord = 0, errorWord = 0, leftWord = 0, flagWord = 0;
  SmallVector<uint64_t> valueWords; ///< of each requirement that a step looks at
  DenseMap<Value, Value> most;      ///< of the numbers of blocks that differ from step to step
  gpu::LaunchOp own;                ///< the last launch of one thread, and what it has computed
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
