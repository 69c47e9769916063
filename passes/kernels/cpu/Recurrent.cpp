#include "passes/kernels/cpu/Recurrent.h"
#include "passes/kernels/cpu/RecurrentEmitter.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;

namespace attn {

using Values = LaneBuilder::Values;

/// Items that one task takes at most: of a layer with two directions the tasks
/// are twice as many, and each streams all of its direction's weights.
static constexpr int64_t kGroup = 8, kBidirectionalGroup = 16;
/// A piece of a step must outweigh the fork and join of 0.2 us.
static constexpr int64_t kMinChunkFloats = 32 << 10;

int64_t RecurrentEmitter::tileRows(const RecurrentSpec::Sweep &sweep) {
  // 24 + 4 + 1 of 32 registers, 8 + 4 + 1 of 16.
  int64_t vectors = sweep.numGates * sweep.vectors;
  return std::max<int64_t>(1, (spec.lanes == 16 ? 24 : 8) / vectors);
}

SmallVector<Type> RecurrentEmitter::argumentTypes() {
  Type f32 = b.getF32Type();
  auto memref = [&](ArrayRef<int64_t> shape) { return MemRefType::get(shape, f32); };
  int64_t directions = spec.numDirections(), hidden = spec.hidden, gates = spec.numGates();
  SmallVector<int64_t> projected{spec.steps, spec.batch, directions, gates * hidden},
      sequence{spec.steps, directions, spec.batch, hidden}, state{directions, spec.batch, hidden};
  if (spec.batchFirst) {
    std::swap(projected[0], projected[1]);
    sequence = {spec.batch, spec.steps, directions, hidden};
    state = {spec.batch, directions, hidden};
  }
  SmallVector<Type> types{memref(projected)};
  for (const RecurrentSpec::Sweep &sweep : sweeps)
    types.push_back(MemRefType::get(spec.panelShape(sweep), elementType(spec.storage, b.getContext())));
  if (spec.storage == PanelStorage::I8)
    for (const RecurrentSpec::Sweep &sweep : sweeps)
      types.push_back(memref(spec.scaleShape(sweep)));
  if (spec.hasResetBias)
    types.push_back(memref({directions, hidden}));
  if (spec.hasPeephole)
    types.push_back(memref({directions, 3 * hidden}));
  if (spec.hasLengths)
    types.push_back(MemRefType::get({spec.batch}, b.getI32Type()));
  for (bool has : {spec.hasInitialH, spec.hasInitialC})
    if (has)
      types.push_back(memref(state));
  types.push_back(memref(sequence));
  types.push_back(memref(state));
  if (spec.cell == RecurrentLayer::Lstm)
    types.push_back(memref(state));
  types.push_back(memref({spec.numPlanes(), directions, spec.batch, padded}));
  return types;
}

RecurrentEmitter::Buffers RecurrentEmitter::flatten(func::FuncOp function) {
  Buffers flat;
  unsigned next = 0;
  auto take = [&] { return k.flatten(function.getArgument(next++)); };
  flat.projected = take();
  for (size_t n = 0; n < sweeps.size(); ++n)
    flat.panels.push_back(take());
  for (size_t n = 0; spec.storage == PanelStorage::I8 && n < sweeps.size(); ++n)
    flat.scales.push_back(take());
  if (spec.hasResetBias)
    flat.resetBias = take();
  if (spec.hasPeephole)
    flat.peephole = take();
  if (spec.hasLengths)
    flat.lengths = take();
  if (spec.hasInitialH)
    flat.initialH = take();
  if (spec.hasInitialC)
    flat.initialC = take();
  flat.sequence = take();
  flat.lastH = take();
  if (spec.cell == RecurrentLayer::Lstm)
    flat.lastC = take();
  flat.scratch = take();
  return flat;
}

//===----------------------------------------------------------------------===//
// Places
//===----------------------------------------------------------------------===//

Value RecurrentEmitter::projectedAt(const Place &place, Value row, int64_t gate, Value unit) {
  Value item = spec.batchFirst ? k.add(k.mul(row, steps), place.time) : k.add(k.mul(place.time, batch), row);
  Value gates = k.add(k.mul(item, spec.numDirections()), place.direction);
  return k.add(k.mul(k.add(k.mul(gates, spec.numGates()), gate), spec.hidden), unit);
}

Value RecurrentEmitter::sequenceAt(Value direction, Value time, Value row, Value unit) {
  Value at = spec.batchFirst ? k.add(k.mul(k.add(k.mul(row, steps), time), spec.numDirections()), direction)
                             : k.add(k.mul(k.add(k.mul(time, spec.numDirections()), direction), batch), row);
  return k.add(k.mul(at, spec.hidden), unit);
}

Value RecurrentEmitter::stateAt(Value direction, Value row, Value unit) {
  Value at = spec.batchFirst ? k.add(k.mul(row, spec.numDirections()), direction) : k.add(k.mul(direction, batch), row);
  return k.add(k.mul(at, spec.hidden), unit);
}

Value RecurrentEmitter::scratchAt(Value plane, Value direction, Value row, Value unit) {
  Value matrix = k.add(k.mul(plane, spec.numDirections()), direction);
  return k.add(k.mul(k.add(k.mul(matrix, batch), row), padded), unit);
}

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

/// Steps of the group: those of its longest item.
Value RecurrentEmitter::countSteps(const Place &place) {
  if (!spec.hasLengths)
    return steps;
  Value zero = k.index(0);
  return k.loop(zero, place.rows, 1, ValueRange{zero}, [&](Value row, ValueRange longest) -> Values {
    Value length = k.load(at.lengths, k.add(place.firstRow, row));
    return {k.max(longest[0], arith::IndexCastOp::create(b, loc, b.getIndexType(), length))};
  })[0];
}

Value RecurrentEmitter::timeOf(Value direction, Value step, Value steps) {
  if (spec.direction == Direction::forward)
    return step;
  Value backwards = k.sub(k.sub(steps, k.index(1)), step);
  if (spec.direction == Direction::reverse)
    return backwards;
  Value isForward = b.createOrFold<arith::CmpIOp>(loc, arith::CmpIPredicate::eq, direction, k.index(0));
  return k.select(isForward, step, backwards);
}

void RecurrentEmitter::emitInitial(const Place &place) {
  Value zero = k.index(0), d = place.direction;
  k.loop(zero, place.rows, 1, [&](Value n) {
    Value row = k.add(place.firstRow, n);
    k.loop(zero, k.index(padded), spec.lanes, [&](Value unit) {
      Value rest = k.sub(k.index(spec.hidden), unit), from = stateAt(d, row, unit);
      auto read = [&](Value states) { return states ? k.loadFirst(states, from, rest, spec.lanes) : k.splat(0); };
      k.store(read(at.initialH), at.scratch, scratchAt(int64_t(0), d, row, unit));
      if (spec.cell == RecurrentLayer::Lstm)
        k.store(read(at.initialC), at.scratch, scratchAt(kPlaneC, d, row, unit));
    });
  });
}

void RecurrentEmitter::emitFinal(const Place &place, Value count) {
  Value zero = k.index(0), d = place.direction, parity = k.rem(count, k.index(2));
  k.loop(zero, place.rows, 1, [&](Value n) {
    Value row = k.add(place.firstRow, n);
    k.loop(zero, k.index(spec.hidden), spec.lanes, [&](Value unit) {
      Value rest = k.sub(k.index(spec.hidden), unit), to = stateAt(d, row, unit);
      k.storeFirst(k.loadVector(at.scratch, scratchAt(parity, d, row, unit)), at.lastH, to, rest);
      if (spec.cell == RecurrentLayer::Lstm)
        k.storeFirst(k.loadVector(at.scratch, scratchAt(kPlaneC, d, row, unit)), at.lastC, to, rest);
    });
  });
}

/// Zeros in the sequence from step `count` on.
void RecurrentEmitter::emitPadding(const Place &place, Value count) {
  if (!spec.hasLengths)
    return;
  k.loop(count, steps, 1, [&](Value time) {
    k.loop(k.index(0), place.rows, 1, [&](Value n) {
      k.loop(k.index(0), k.index(spec.hidden), spec.lanes, [&](Value unit) {
        Value to = sequenceAt(place.direction, time, k.add(place.firstRow, n), unit);
        k.storeFirst(k.splat(0), at.sequence, to, k.sub(k.index(spec.hidden), unit));
      });
    });
  });
}

/// Tasks are directions times groups of items; no task waits for another.
void RecurrentEmitter::emitGroups(func::FuncOp function) {
  Value zero = k.index(0);
  Value groups = k.ceilDiv(batch, spec.numDirections() == 2 ? kBidirectionalGroup : kGroup);
  Value tasks = k.mul(groups, spec.numDirections());
  groups = k.max(groups, k.index(1)); // is divided by before the loop that no task enters
  auto parallel = scf::ParallelOp::create(b, loc, ValueRange{zero}, ValueRange{tasks}, ValueRange{k.index(1)});
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(parallel.getBody());
  at = flatten(function);
  Place place;
  Value task = parallel.getInductionVars()[0];
  place.direction = spec.numDirections() == 2 ? k.div(task, groups) : zero;
  Value group = spec.numDirections() == 2 ? k.rem(task, groups) : task;
  Value height = k.div(batch, groups), extra = k.rem(batch, groups);
  place.firstRow = k.add(k.mul(group, height), k.min(group, extra));
  place.rows = height;
  if (LaneBuilder::constant(extra) != 0)
    place.rows = k.add(height, arith::IndexCastUIOp::create(b, loc, b.getIndexType(), k.less(group, extra)));
  Value count = countSteps(place);
  emitInitial(place);
  k.loop(zero, count, 1, [&](Value step) {
    place.time = timeOf(place.direction, step, count);
    place.parity = k.rem(step, k.index(2));
    for (unsigned sweep = 0; sweep < sweeps.size(); ++sweep) {
      // Odd steps go backwards: the panels read last are still in the cache.
      Value last = k.index(spec.numPanels(sweeps[sweep]) - 1);
      Value isOdd = b.createOrFold<arith::CmpIOp>(loc, arith::CmpIPredicate::eq, place.parity, k.index(1));
      k.loop(zero, k.add(last, 1), 1, [&](Value n) { emitPanels(place, sweep, k.select(isOdd, k.sub(last, n), n)); });
    }
  });
  emitPadding(place, count);
  emitFinal(place, count);
}

/// All items step by step, the panels of each sweep in parallel.
void RecurrentEmitter::emitChunks(func::FuncOp function) {
  Value zero = k.index(0);
  at = flatten(function);
  Place place;
  place.direction = zero;
  place.firstRow = zero;
  place.rows = batch;
  Value count = countSteps(place);
  emitInitial(place);
  k.loop(zero, count, 1, [&](Value step) {
    place.time = timeOf(zero, step, count);
    place.parity = k.rem(step, k.index(2));
    for (unsigned sweep = 0; sweep < sweeps.size(); ++sweep) {
      int64_t panels = spec.numPanels(sweeps[sweep]);
      int64_t perPanel = spec.hidden * spec.panelWidth(sweeps[sweep]);
      auto parallel =
          scf::ParallelOp::create(b, loc, ValueRange{zero}, ValueRange{k.index(panels)}, ValueRange{k.index(1)});
      parallel->setAttr(AttnDialect::kMinIterationsAttr,
                        b.getI64IntegerAttr(std::max<int64_t>(2, 2 * kMinChunkFloats / perPanel)));
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(parallel.getBody());
      Buffers outer = at;
      at = flatten(function);
      emitPanels(place, sweep, parallel.getInductionVars()[0]);
      at = outer;
    }
  });
  emitPadding(place, count);
  emitFinal(place, count);
}

func::FuncOp RecurrentEmitter::emit() {
  auto function = func::FuncOp::create(b, loc, spec.symbol(), b.getFunctionType(argumentTypes(), {}));
  function.setPrivate();
  function->setAttr(AttnDialect::kKernelAttr, b.getUnitAttr());
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(function.addEntryBlock());
  Value projected = function.getArgument(0);
  steps = b.createOrFold<memref::DimOp>(loc, projected, spec.batchFirst ? 1 : 0);
  batch = b.createOrFold<memref::DimOp>(loc, projected, spec.batchFirst ? 0 : 1);
  int64_t weights = spec.numGates() * spec.hidden * spec.hidden;
  bool isSmall = weights < 2 * kMinChunkFloats;
  if (spec.numDirections() == 2 || isSmall || (!ShapedType::isDynamic(spec.batch) && spec.batch > kGroup)) {
    emitGroups(function);
  } else if (!ShapedType::isDynamic(spec.batch)) {
    emitChunks(function);
  } else {
    Value isOne = k.less(batch, k.index(kGroup + 1));
    k.branch(
        isOne, {}, [&]() -> Values { return emitChunks(function), Values(); },
        [&]() -> Values { return emitGroups(function), Values(); });
  }
  b.setInsertionPointToEnd(&function.front());
  func::ReturnOp::create(b, loc);
  return function;
}

FailureOr<func::FuncOp> buildRecurrent(OpBuilder &builder, Location loc, const RecurrentSpec &spec) {
  std::string reason;
  if (!canBuildRecurrent(spec, &reason))
    return emitError(loc, "cannot build a recurrent kernel: ") << reason;
  return RecurrentEmitter(builder, loc, spec).emit();
}

} // namespace attn
