#include "passes/kernels/gpu/Recurrent.h"
#include "dialects/attn/Activation.h"
#include "dialects/attn/DeviceOps.h"
#include "passes/kernels/gpu/BlockBuilder.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;

namespace attn {
namespace {

using Values = LaneBuilder::Values;
constexpr int64_t kThreads = 256, kItems = 4; ///< kItems: of a batch that share what is read of the weights

int64_t pitchOf(const RecurrentSpec &spec) { return llvm::alignTo(spec.hidden, 4); }

/// Threads that share a sum, each with a few fours of its products: a power of two.
int64_t widthOf(const RecurrentSpec &spec) { return spec.hidden <= 64 ? 8 : spec.hidden <= 256 ? 16 : 32; }

class GpuRecurrentEmitter {
public:
  GpuRecurrentEmitter(OpBuilder &b, Location loc, const RecurrentSpec &spec)
      : k(b, loc), spec(spec), directions(spec.numDirections()), gates(spec.numGates()), pitch(pitchOf(spec)),
        width(widthOf(spec)), sweeps(spec.sweeps()) {
    items = spec.batch == 1 ? 1 : kItems;
  }

  func::FuncOp emit(StringRef symbol);

private:
  enum { kPlaneC = 2, kPlaneUpdate = 2, kPlaneReset = 3 };

  /// How the work is split; on the host.
  struct Split {
    Value units, parts;  ///< units of a part, parts of a direction
    Value items, groups; ///< items of a group, groups of the batch
    Value fits;          ///< whether the weights of a part fit into shared memory
  };
  /// What a thread works on.
  struct Place {
    Value direction, firstUnit, units, firstItem, items;
    Value time, parity; ///< parity: the plane of h that the step reads
  };

  SmallVector<Type> argumentTypes();
  void flatten(func::FuncOp function);
  Split split();
  void emitStart();
  void emitSteps(const Split &split, bool isShared);
  void keepWeights(const Place &place);
  Value countSteps(const Place &place);
  Value timeOf(const Place &place, Value step, Value count);
  void emitSweep(const Place &place, unsigned number, bool isShared);
  SmallVector<Values> sumUp(const Place &place, unsigned number, Value own, Value first, bool isShared);
  Values weightsAt(const Place &place, Value own, int64_t gate, Value at, bool isShared);
  void forEachOwn(const Place &place, llvm::function_ref<void(Value own, Value first)> body);
  void asOwner(const Place &place, Value own, Value first, llvm::function_ref<void(Value item, Value unit)> body);
  void update(const Place &place, unsigned sweep, Value item, Value unit, Values sums);
  Value lstmState(const Place &place, Value item, Value unit, ArrayRef<Value> sums, Value isActive);
  void emitEnd(const Place &place, Value count);

  Value projectedAt(const Place &place, Value item, int64_t gate, Value unit);
  Value sequenceAt(const Place &place, Value time, Value item, Value unit);
  Value resultAt(Value direction, Value item, Value unit);
  Value stateAt(Value plane, Value direction, Value item, Value unit);
  Value stateAt(int64_t plane, const Place &place, Value item, Value unit) {
    return stateAt(k.index(plane), place.direction, item, unit);
  }
  Value function(int64_t number, Value x, bool isClipped = true);
  Value equal(Value x, int64_t y) {
    return k.b.createOrFold<arith::CmpIOp>(k.loc, arith::CmpIPredicate::eq, x, k.index(y));
  }
  void put(Value value, Value flat, Value offset) { memref::StoreOp::create(k.b, k.loc, value, flat, offset); }

  BlockBuilder k;
  const RecurrentSpec &spec;
  const int64_t directions, gates, pitch, width;
  const SmallVector<RecurrentSpec::Sweep> sweeps;
  int64_t items;
  Value steps, batch, lane, team, kept; ///< kept: weights in shared memory
  Value projected, recurrence, resetBias, peephole, lengths, initialH, initialC, sequence, lastH, lastC, states,
      counters;
};

SmallVector<Type> GpuRecurrentEmitter::argumentTypes() {
  OpBuilder &b = k.b;
  auto f32 = [&](ArrayRef<int64_t> shape) { return MemRefType::get(shape, b.getF32Type()); };
  int64_t hidden = spec.hidden;
  SmallVector<int64_t> input{spec.steps, spec.batch, directions, gates * hidden},
      output{spec.steps, directions, spec.batch, hidden}, state{directions, spec.batch, hidden};
  if (spec.batchFirst) {
    std::swap(input[0], input[1]);
    output = {spec.batch, spec.steps, directions, hidden};
    std::swap(state[0], state[1]);
  }
  SmallVector<Type> types{f32(input), f32({directions, gates * hidden, hidden})};
  if (spec.hasResetBias)
    types.push_back(f32({directions, hidden}));
  if (spec.hasPeephole)
    types.push_back(f32({directions, 3 * hidden}));
  if (spec.hasLengths)
    types.push_back(MemRefType::get({spec.batch}, b.getI32Type()));
  types.append(spec.hasInitialH + spec.hasInitialC, f32(state));
  types.push_back(f32(output));
  types.append(spec.cell == RecurrentLayer::Lstm ? 2 : 1, f32(state));
  types.push_back(f32(gpuRecurrentStates(spec)));
  types.push_back(MemRefType::get(gpuRecurrentCounters(spec), b.getI64Type()));
  return types;
}

void GpuRecurrentEmitter::flatten(func::FuncOp function) {
  Value input = function.getArgument(0);
  steps = k.b.createOrFold<memref::DimOp>(k.loc, input, spec.batchFirst ? 1 : 0);
  batch = k.b.createOrFold<memref::DimOp>(k.loc, input, spec.batchFirst ? 0 : 1);
  unsigned next = 0;
  auto take = [&](Value &place, bool isThere = true) {
    if (isThere)
      place = k.flatten(function.getArgument(next++));
  };
  take(projected), take(recurrence);
  take(resetBias, spec.hasResetBias), take(peephole, spec.hasPeephole), take(lengths, spec.hasLengths);
  take(initialH, spec.hasInitialH), take(initialC, spec.hasInitialC);
  take(sequence), take(lastH), take(lastC, spec.cell == RecurrentLayer::Lstm);
  take(states), take(counters);
}

//===----------------------------------------------------------------------===//
// Places
//===----------------------------------------------------------------------===//

Value GpuRecurrentEmitter::projectedAt(const Place &place, Value item, int64_t gate, Value unit) {
  Value row = spec.batchFirst ? k.add(k.mul(item, steps), place.time) : k.add(k.mul(place.time, batch), item);
  row = k.add(k.mul(row, directions), place.direction);
  return k.add(k.mul(k.add(k.mul(row, gates), gate), spec.hidden), unit);
}

Value GpuRecurrentEmitter::sequenceAt(const Place &place, Value time, Value item, Value unit) {
  Value row = spec.batchFirst ? k.add(k.mul(k.add(k.mul(item, steps), time), directions), place.direction)
                              : k.add(k.mul(k.add(k.mul(time, directions), place.direction), batch), item);
  return k.add(k.mul(row, spec.hidden), unit);
}

Value GpuRecurrentEmitter::resultAt(Value direction, Value item, Value unit) {
  Value row = spec.batchFirst ? k.add(k.mul(item, directions), direction) : k.add(k.mul(direction, batch), item);
  return k.add(k.mul(row, spec.hidden), unit);
}

Value GpuRecurrentEmitter::stateAt(Value plane, Value direction, Value item, Value unit) {
  Value row = k.add(k.mul(k.add(k.mul(plane, directions), direction), batch), item);
  return k.add(k.mul(row, pitch), unit);
}

//===----------------------------------------------------------------------===//
// The split
//===----------------------------------------------------------------------===//

/// As few units a block as the processors allow, but one for each team: blocks
/// that wait for each other are expensive. Fewer where weights fit only so.
GpuRecurrentEmitter::Split GpuRecurrentEmitter::split() {
  auto limits = DeviceLimitsOp::create(k.b, k.loc, k.b.getIndexType(), k.b.getIndexType());
  auto ceilDiv = [&](Value x, Value y) { return k.div(k.add(x, k.sub(y, k.index(1))), y); };
  Value one = k.index(1), hidden = k.index(spec.hidden);
  Value perDirection = k.max(one, k.div(limits.getProcessors(), k.index(directions)));
  Value least = ceilDiv(hidden, perDirection), unitBytes = k.index(gates * pitch * 4);
  Split split;
  split.units = k.max(least, k.index(std::min(spec.hidden, kThreads / width)));
  split.units = k.min(split.units, k.max(least, k.div(limits.getSharedBytes(), unitBytes)));
  split.fits = k.less(k.mul(split.units, unitBytes), k.add(limits.getSharedBytes(), one));
  split.parts = ceilDiv(hidden, split.units);
  Value groups = k.min(k.max(one, k.div(perDirection, split.parts)), k.ceilDiv(batch, items));
  split.items = k.max(one, ceilDiv(batch, k.max(one, groups)));
  split.groups = ceilDiv(batch, split.items);
  return split;
}

func::FuncOp GpuRecurrentEmitter::emit(StringRef symbol) {
  func::FuncOp function = k.function(symbol, argumentTypes());
  flatten(function);
  emitStart();
  Split parts = split();
  // What is read once is not worth a place in shared memory.
  if (spec.steps == 1) {
    emitSteps(parts, false);
    return function;
  }
  auto nothing = [](llvm::function_ref<void()> body) { return body(), Values(); };
  k.branch(
      parts.fits, TypeRange(), [&] { return nothing([&] { emitSteps(parts, true); }); },
      [&] { return nothing([&] { emitSteps(parts, false); }); });
  return function;
}

/// Initial states, zeros behind the units and in the counters.
void GpuRecurrentEmitter::emitStart() {
  OpBuilder::InsertionGuard guard(k.b);
  Value count = k.mul(k.mul(batch, directions), pitch);
  k.launch(k.ceilDiv(count, kThreads), kThreads, {});
  Value id = k.add(k.mul(k.block, kThreads), k.thread);
  k.branch(k.less(id, count), [&] {
    Value row = k.div(id, k.index(pitch)), unit = k.rem(id, k.index(pitch));
    Value direction = k.div(row, batch), item = k.rem(row, batch), isUnit = k.less(unit, k.index(spec.hidden));
    auto read = [&](Value from) -> Value {
      if (!from)
        return k.scalar(0);
      return k.branch(
          isUnit, k.b.getF32Type(), [&] { return Values{k.load(from, resultAt(direction, item, unit))}; },
          [&] { return Values{k.scalar(0)}; })[0];
    };
    auto plane = [&](int64_t number) { return stateAt(k.index(number), direction, item, unit); };
    put(read(initialH), states, plane(0));
    put(k.scalar(0), states, plane(1));
    if (spec.cell == RecurrentLayer::Lstm)
      put(read(initialC), states, plane(kPlaneC));
    if (spec.hasTwoSweeps())
      put(k.scalar(0), states, plane(kPlaneReset));
    k.branch(equal(unit, 0), [&] { put(arith::ConstantIntOp::create(k.b, k.loc, 0, 64), counters, row); });
  });
}

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

void GpuRecurrentEmitter::emitSteps(const Split &split, bool isShared) {
  OpBuilder::InsertionGuard guard(k.b);
  bool waits = spec.steps != 1 || sweeps.size() > 1;
  Value blocks = k.mul(k.mul(split.groups, directions), split.parts), bytes;
  if (isShared)
    bytes = arith::IndexCastOp::create(k.b, k.loc, k.b.getI32Type(), k.mul(split.units, gates * pitch * 4));
  k.launch(blocks, kThreads, {}, bytes);
  if (waits)
    k.b.getInsertionBlock()->getParentOp()->setAttr(kCooperativeAttr, k.b.getUnitAttr());
  lane = k.rem(k.thread, k.index(width));
  team = k.div(k.thread, k.index(width));
  Value part = k.rem(k.block, split.parts), row = k.div(k.block, split.parts);
  Place place;
  place.direction = directions == 2 ? k.rem(row, k.index(2)) : k.index(0);
  Value group = directions == 2 ? k.div(row, k.index(2)) : row;
  place.firstUnit = k.mul(part, split.units);
  place.units = k.min(split.units, k.sub(k.index(spec.hidden), place.firstUnit));
  place.firstItem = k.mul(group, split.items);
  place.items = k.min(split.items, k.sub(batch, place.firstItem));
  if (isShared)
    keepWeights(place);
  Value count = countSteps(place);
  // Blocks with the same items and direction count together.
  Value counter = k.add(k.mul(place.direction, batch), group);
  k.loop(k.index(0), count, 1, [&](Value step) {
    place.time = timeOf(place, step, count);
    place.parity = k.rem(step, k.index(2));
    for (unsigned number = 0; number < sweeps.size(); ++number) {
      emitSweep(place, number, isShared);
      if (spec.steps != 1 || number + 1 < sweeps.size())
        k.gridBarrier(counters, counter, k.mul(k.add(k.mul(step, sweeps.size()), number + 1), split.parts));
    }
  });
  emitEnd(place, count);
}

/// [unit][gate][H, padded with zeros].
void GpuRecurrentEmitter::keepWeights(const Place &place) {
  OpBuilder &b = k.b;
  auto space = gpu::AddressSpaceAttr::get(b.getContext(), gpu::AddressSpace::Workgroup);
  auto bytes = MemRefType::get({ShapedType::kDynamic}, b.getI8Type(), MemRefLayoutAttrInterface(), space);
  auto floats = MemRefType::get({ShapedType::kDynamic}, b.getF32Type(), MemRefLayoutAttrInterface(), space);
  Value memory = gpu::DynamicSharedMemoryOp::create(b, k.loc, bytes), count = k.mul(place.units, gates * pitch);
  kept = memref::ViewOp::create(b, k.loc, floats, memory, k.index(0), ValueRange{count});
  k.loop(k.thread, count, kThreads, [&](Value n) {
    Value at = k.rem(n, k.index(pitch)), row = k.div(n, k.index(pitch));
    Value own = k.div(row, k.index(gates)), gate = k.rem(row, k.index(gates));
    Value from = k.add(k.mul(k.add(k.mul(place.direction, gates), gate), spec.hidden), k.add(place.firstUnit, own));
    auto read = [&] { return Values{k.load(recurrence, k.add(k.mul(from, spec.hidden), at))}; };
    Value weight = pitch == spec.hidden ? read()[0]
                                        : k.branch(k.less(at, k.index(spec.hidden)), b.getF32Type(), read,
                                                   [&] { return Values{k.scalar(0)}; })[0];
    put(weight, kept, n);
  });
  k.barrier();
}

/// Steps of the block: those of its longest item.
Value GpuRecurrentEmitter::countSteps(const Place &place) {
  if (!spec.hasLengths)
    return steps;
  Value zero = k.index(0);
  Value longest = k.loop(zero, place.items, 1, ValueRange{zero}, [&](Value n, ValueRange carried) {
    Value length = k.load(lengths, k.add(place.firstItem, n));
    return Values{k.max(carried[0], arith::IndexCastOp::create(k.b, k.loc, k.b.getIndexType(), length))};
  })[0];
  return k.min(longest, steps);
}

Value GpuRecurrentEmitter::timeOf(const Place &place, Value step, Value count) {
  Value backwards = k.sub(k.sub(count, k.index(1)), step);
  if (spec.direction != Direction::bidirectional)
    return spec.direction == Direction::forward ? step : backwards;
  return k.select(equal(place.direction, 0), step, backwards);
}

/// `body` for each number of a unit in the block and each first of a few items,
/// the same for all threads of a team and in as many rounds for all teams.
void GpuRecurrentEmitter::forEachOwn(const Place &place, llvm::function_ref<void(Value, Value)> body) {
  int64_t teams = kThreads / width;
  k.loop(k.index(0), place.units, teams, [&](Value round) {
    Value own = k.add(round, team);
    k.loop(k.index(0), place.items, items, [&](Value first) { body(own, first); });
  });
}

/// `body` in the thread of the team that a unit of an item belongs to, if there are such.
void GpuRecurrentEmitter::asOwner(const Place &place, Value own, Value first,
                                  llvm::function_ref<void(Value, Value)> body) {
  Value number = k.add(first, lane);
  Value isItem = k.both(k.less(lane, k.index(items)), k.less(number, place.items));
  k.branch(k.both(k.less(own, place.units), isItem),
           [&] { body(k.add(place.firstItem, number), k.add(place.firstUnit, own)); });
}

void GpuRecurrentEmitter::emitSweep(const Place &place, unsigned number, bool isShared) {
  forEachOwn(place, [&](Value own, Value first) {
    SmallVector<Values> sums = sumUp(place, number, own, first, isShared);
    asOwner(place, own, first, [&](Value item, Value unit) {
      Values mine;
      for (Values &ofGate : sums) {
        Value sum = ofGate[0];
        for (int64_t n = 1; n < items; ++n)
          sum = k.select(equal(lane, n), ofGate[n], sum);
        mine.push_back(sum);
      }
      update(place, number, item, unit, mine);
    });
  });
}

/// Four weights of a unit's gate.
Values GpuRecurrentEmitter::weightsAt(const Place &place, Value own, int64_t gate, Value at, bool isShared) {
  if (isShared)
    return k.load4(kept, k.add(k.mul(k.add(k.mul(own, gates), gate), pitch), at));
  Value row = k.add(k.mul(k.add(k.mul(place.direction, gates), gate), spec.hidden), k.add(place.firstUnit, own));
  Value from = k.mul(row, spec.hidden);
  if (pitch == spec.hidden)
    return k.load4(recurrence, k.add(from, at));
  Values four;
  for (int64_t n = 0; n < 4; ++n) {
    Value column = k.add(at, n), last = k.index(spec.hidden - 1);
    Value weight = k.load(recurrence, k.add(from, k.min(column, last)));
    four.push_back(k.select(k.less(last, column), k.scalar(0), weight));
  }
  return four;
}

/// Products of the weights of a unit with the states of a few items, [gate][item],
/// in all threads of the team.
SmallVector<Values> GpuRecurrentEmitter::sumUp(const Place &place, unsigned number, Value own, Value first,
                                               bool isShared) {
  const RecurrentSpec::Sweep &sweep = sweeps[number];
  Value source = number == 1 ? k.index(kPlaneReset) : place.parity;
  own = k.min(own, k.sub(place.units, k.index(1)));
  Values rows;
  for (int64_t n = 0; n < items; ++n) {
    Value item = k.min(k.add(first, n), k.sub(place.items, k.index(1)));
    rows.push_back(stateAt(source, place.direction, k.add(place.firstItem, item), k.index(0)));
  }
  Values none(sweep.numGates * items, k.scalar(0));
  Values sums = k.loop(k.mul(lane, 4), k.index(pitch), 4 * width, none, [&](Value at, ValueRange carried) {
    Values next(carried);
    SmallVector<Values> weights;
    for (int64_t g = 0; g < sweep.numGates; ++g)
      weights.push_back(weightsAt(place, own, sweep.firstGate + g, at, isShared));
    for (int64_t n = 0; n < items; ++n) {
      Values state = k.load4(states, k.add(rows[n], at));
      for (int64_t g = 0; g < sweep.numGates; ++g)
        for (int64_t e = 0; e < 4; ++e)
          next[g * items + n] = k.fma(weights[g][e], state[e], next[g * items + n]);
    }
    return next;
  });
  SmallVector<Values> result(sweep.numGates);
  for (auto [n, sum] : llvm::enumerate(sums))
    result[n / items].push_back(k.acrossThreads(sum, width, [&](Value x, Value y) { return k.addf(x, y); }));
  return result;
}

//===----------------------------------------------------------------------===//
// Cells
//===----------------------------------------------------------------------===//

Value GpuRecurrentEmitter::function(int64_t number, Value x, bool isClipped) {
  if (spec.clip && isClipped)
    x = emitClip(k.b, k.loc, *spec.clip, x);
  return emitActivation(k.b, k.loc, spec.functions[number], x);
}

/// The new h of an LSTM; c is updated where it lies.
Value GpuRecurrentEmitter::lstmState(const Place &place, Value item, Value unit, ArrayRef<Value> sums, Value isActive) {
  enum { I, O, F, C };
  Value at = stateAt(kPlaneC, place, item, unit), old = k.load(states, at);
  auto gate = [&](int64_t gate, int64_t position, Value cell) {
    if (!spec.hasPeephole)
      return function(0, sums[gate]);
    Value row = k.mul(k.add(k.mul(place.direction, 3), position), spec.hidden);
    return function(0, k.fma(k.load(peephole, k.add(row, unit)), cell, sums[gate]));
  };
  Value i = gate(I, 0, old), f = spec.inputForget ? k.subf(k.scalar(1), i) : gate(F, 2, old);
  Value cell = k.fma(f, old, k.mulf(i, function(1, sums[C])));
  put(isActive ? k.select(isActive, cell, old) : cell, states, at);
  return k.mulf(gate(O, 1, cell), function(2, cell, /*isClipped=*/false));
}

/// What follows the sums of a sweep's gates for one unit of one item.
void GpuRecurrentEmitter::update(const Place &place, unsigned sweep, Value item, Value unit, Values sums) {
  auto input = [&](int64_t gate) { return k.load(projected, projectedAt(place, item, gate, unit)); };
  for (auto [n, sum] : llvm::enumerate(sums))
    if (int64_t gate = sweeps[sweep].firstGate + n; gate != 2 || !spec.linearBeforeReset)
      sum = k.addf(input(gate), sum);
  Value old = k.load(states, stateAt(place.parity, place.direction, item, unit)), h, isActive;
  if (spec.hasTwoSweeps() && sweep == 0) {
    put(function(0, sums[0]), states, stateAt(kPlaneUpdate, place, item, unit));
    put(k.mulf(function(0, sums[1]), old), states, stateAt(kPlaneReset, place, item, unit));
    return;
  }
  if (spec.hasLengths) {
    Value length = arith::IndexCastOp::create(k.b, k.loc, k.b.getIndexType(), k.load(lengths, item));
    isActive = k.less(place.time, length);
  }
  if (spec.cell == RecurrentLayer::Lstm) {
    h = lstmState(place, item, unit, sums, isActive);
  } else if (spec.cell == RecurrentLayer::Rnn) {
    h = function(0, sums[0]);
  } else {
    Value z, n;
    if (spec.linearBeforeReset) {
      Value bias = k.add(k.mul(place.direction, spec.hidden), unit);
      Value linear = spec.hasResetBias ? k.addf(k.load(resetBias, bias), sums[2]) : sums[2];
      z = function(0, sums[0]);
      n = function(1, k.fma(function(0, sums[1]), linear, input(2)));
    } else {
      z = k.load(states, stateAt(kPlaneUpdate, place, item, unit));
      n = function(1, sums[0]);
    }
    Value rest = k.subf(k.scalar(1), z);
    if (spec.mirrored)
      std::swap(rest, z);
    h = k.fma(z, old, k.mulf(rest, n));
  }
  Value shown = h;
  if (isActive) {
    shown = k.select(isActive, h, k.scalar(0));
    h = k.select(isActive, h, old);
  }
  put(h, states, stateAt(k.sub(k.index(1), place.parity), place.direction, item, unit));
  put(shown, sequence, sequenceAt(place, place.time, item, unit));
}

/// The last states, and zeros in the sequence from step `count` on.
void GpuRecurrentEmitter::emitEnd(const Place &place, Value count) {
  Value parity = k.rem(count, k.index(2));
  forEachOwn(place, [&](Value own, Value first) {
    asOwner(place, own, first, [&](Value item, Value unit) {
      Value to = resultAt(place.direction, item, unit);
      put(k.load(states, stateAt(parity, place.direction, item, unit)), lastH, to);
      if (spec.cell == RecurrentLayer::Lstm)
        put(k.load(states, stateAt(kPlaneC, place, item, unit)), lastC, to);
      if (spec.hasLengths)
        k.loop(count, steps, 1, [&](Value time) { put(k.scalar(0), sequence, sequenceAt(place, time, item, unit)); });
    });
  });
}

} // namespace

SmallVector<int64_t> gpuRecurrentStates(const RecurrentSpec &spec) {
  return {spec.numPlanes(), spec.numDirections(), spec.batch, pitchOf(spec)};
}

SmallVector<int64_t> gpuRecurrentCounters(const RecurrentSpec &spec) { return {spec.numDirections(), spec.batch}; }

func::FuncOp buildGpuRecurrent(OpBuilder &builder, Location loc, StringRef symbol, const RecurrentSpec &spec) {
  OpBuilder::InsertionGuard guard(builder);
  return GpuRecurrentEmitter(builder, loc, spec).emit(symbol);
}

} // namespace attn
