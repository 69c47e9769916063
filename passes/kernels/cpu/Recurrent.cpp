#include "passes/kernels/cpu/Recurrent.h"
#include "passes/kernels/cpu/RecurrentEmitter.h"

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

using namespace mlir;

namespace attn {

/// Items that one task takes at most: of a layer with two directions the tasks
/// are twice as many, and each streams all of its direction's weights.
static constexpr int64_t kGroup = 8, kBidirectionalGroup = 16;
/// A piece of a step must outweigh the fork and join of 0.2 us.
static constexpr int64_t kMinChunkFloats = 32 << 10;

SmallVector<MemRefType> RecurrentEmitter::weightTypes() {
  SmallVector<MemRefType> types;
  for (const RecurrentSpec::Sweep &sweep : sweeps)
    types.push_back(MemRefType::get(spec.panelShape(sweep), elementType(spec.storage, k.b.getContext())));
  if (spec.storage == PanelStorage::I8)
    for (const RecurrentSpec::Sweep &sweep : sweeps)
      types.push_back(MemRefType::get(spec.scaleShape(sweep), k.b.getF32Type()));
  return types;
}

//===----------------------------------------------------------------------===//
// Before the steps and after them
//===----------------------------------------------------------------------===//

/// Steps of the group: those of its longest item.
Index RecurrentEmitter::countSteps(const Task &task) {
  if (!spec.hasLengths)
    return places.steps;
  return k.loop(0, task.rows, 1, k.index(0),
                [&](Index row, Index longest) { return maximum(longest, toIndex(at.lengths(task.firstRow + row))); });
}

void RecurrentEmitter::forEachRegister(const Task &task, int64_t units,
                                       llvm::function_ref<void(Index, Index, Index)> body) {
  k.loop(0, task.rows, 1, [&](Index n) {
    Index row = task.firstRow + n;
    k.loop(0, units, lanes, [&](Index unit) { body(row, unit, hidden - unit); });
  });
}

void RecurrentEmitter::emitInitial(const Task &task) {
  forEachRegister(task, spec.paddedHidden(), [&](Index row, Index unit, Index rest) {
    Index from = places.result(task.direction, row, unit);
    auto read = [&](const Buffer &states) { return states.value() ? states.first(rest, lanes, from) : splat(0); };
    at.states.setVector(read(at.initialH), places.state(int64_t(0), task.direction, row, unit));
    if (spec.cell == RecurrentLayer::Lstm)
      at.states.setVector(read(at.initialC), places.state(places.kPlaneC, task.direction, row, unit));
  });
}

void RecurrentEmitter::emitFinal(const Task &task, Index count) {
  Index parity = count % 2;
  forEachRegister(task, hidden, [&](Index row, Index unit, Index rest) {
    Index to = places.result(task.direction, row, unit);
    at.lastH.setFirst(at.states.vector(lanes, places.state(parity, task.direction, row, unit)), rest, to);
    if (spec.cell == RecurrentLayer::Lstm)
      at.lastC.setFirst(at.states.vector(lanes, places.state(places.kPlaneC, task.direction, row, unit)), rest, to);
  });
}

/// Zeros in the sequence from step `count` on.
void RecurrentEmitter::emitPadding(const Task &task, Index count) {
  if (!spec.hasLengths)
    return;
  k.loop(count, places.steps, 1, [&](Index time) {
    forEachRegister(task, hidden, [&](Index row, Index unit, Index rest) {
      at.sequence.setFirst(splat(0), rest, places.sequence(task.direction, time, row, unit));
    });
  });
  markLong(k.b);
}

//===----------------------------------------------------------------------===//
// Tasks
//===----------------------------------------------------------------------===//

/// All steps of a group, whose sweeps `emitSweep` emits.
void RecurrentEmitter::emitSteps(Task &task, llvm::function_ref<void(unsigned)> emitSweep) {
  Index count = countSteps(task);
  emitInitial(task);
  k.loop(0, count, 1, [&](Index step) {
    task.time = places.timeOf(task.direction, step, count);
    task.parity = step % 2;
    for (unsigned sweep = 0; sweep < sweeps.size(); ++sweep)
      emitSweep(sweep);
  });
  markLong(k.b);
  emitPadding(task, count);
  emitFinal(task, count);
}

/// Tasks are directions times groups of items; no task waits for another.
void RecurrentEmitter::emitGroups() {
  int64_t directions = spec.numDirections();
  Index groups = ceilDiv(places.batch, directions == 2 ? kBidirectionalGroup : kGroup), tasks = groups * directions;
  groups = maximum(groups, 1); // is divided by before the loop that no task enters
  k.parallel(tasks, [&](Index number) {
    at = arguments.flat();
    Task task;
    task.direction = directions == 2 ? number / groups : k.index(0);
    Index group = directions == 2 ? number % groups : number;
    Index height = places.batch / groups, extra = places.batch % groups;
    task.firstRow = group * height + minimum(group, extra);
    task.rows = height;
    if (getConstantIntValue(extra.value()) != 0)
      task.rows = height + toIndex(group < extra);
    emitSteps(task, [&](unsigned sweep) {
      // Odd steps go backwards: the panels read last are still in the cache.
      int64_t panels = spec.numPanels(sweeps[sweep]);
      Mask isOdd = task.parity == 1;
      k.loop(0, panels, 1, [&](Index n) { emitPanels(task, sweep, select(isOdd, panels - 1 - n, n)); });
    });
  });
}

/// All items step by step, the panels of each sweep in parallel.
void RecurrentEmitter::emitChunks() {
  at = arguments.flat();
  Task task;
  task.direction = task.firstRow = k.index(0);
  task.rows = places.batch;
  emitSteps(task, [&](unsigned sweep) {
    int64_t perPanel = hidden * spec.panelWidth(sweeps[sweep]);
    Operation *loop = k.parallel(k.index(spec.numPanels(sweeps[sweep])), [&](Index panel) {
      RecurrentBuffers outer = at;
      at = arguments.flat();
      emitPanels(task, sweep, panel);
      at = outer;
    });
    loop->setAttr(AttnDialect::kMinIterationsAttr,
                  k.b.getI64IntegerAttr(std::max<int64_t>(2, 2 * kMinChunkFloats / perPanel)));
  });
}

void RecurrentEmitter::emit() {
  int64_t weights = spec.numGates() * hidden * hidden;
  bool isSmall = weights < 2 * kMinChunkFloats, isDynamic = ShapedType::isDynamic(spec.batch);
  if (spec.numDirections() == 2 || isSmall || (!isDynamic && spec.batch > kGroup))
    emitGroups();
  else if (!isDynamic)
    emitChunks();
  else
    k.when(places.batch < kGroup + 1, [&] { emitChunks(); }, [&] { emitGroups(); });
}

func::FuncOp buildRecurrent(OpBuilder &builder, Location loc, const RecurrentSpec &spec) {
  assert(canBuildRecurrent(spec));
  KernelFunction f(builder, loc, spec.symbol());
  f.function.setPrivate();
  RecurrentEmitter(f, spec).emit();
  return f.function;
}

} // namespace attn
