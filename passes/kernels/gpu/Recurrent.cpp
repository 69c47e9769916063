#include "passes/kernels/gpu/Recurrent.h"
#include "dialects/attn/Activation.h"
#include "dialects/attn/DeviceOps.h"
#include "passes/kernels/gpu/ThreadCode.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;

namespace attn {
namespace {

constexpr int64_t kThreads = 256, kItems = 4; ///< kItems: of a batch that share what is read of the weights

int64_t pitchOf(const RecurrentSpec &spec) { return llvm::alignTo(spec.hidden, 4); }

/// Threads that share a sum, each with a few fours of its products: a power of two.
int64_t widthOf(const RecurrentSpec &spec) { return spec.hidden <= 64 ? 8 : spec.hidden <= 256 ? 16 : 32; }

Index ceilDiv(Index x, Index y) { return (x + (y - 1)) / y; }

class GpuRecurrentEmitter {
public:
  GpuRecurrentEmitter(KernelFunction &f, const RecurrentSpec &spec)
      : k(f.k.b, f.k.loc), spec(spec), hidden(spec.hidden), directions(spec.numDirections()), gates(spec.numGates()),
        pitch(pitchOf(spec)), width(widthOf(spec)), items(spec.batch == 1 ? 1 : kItems), sweeps(spec.sweeps()) {
    takeArguments(f);
  }

  void emit();

private:
  enum { kPlaneC = 2, kPlaneUpdate = 2, kPlaneReset = 3 };

  /// How the work is split; on the host.
  struct Split {
    Index units, parts;  ///< units of a part, parts of a direction
    Index items, groups; ///< items of a group, groups of the batch
    Mask fits;           ///< whether the weights of a part fit into shared memory
  };
  /// What a thread works on.
  struct Place {
    Index direction, firstUnit, units, firstItem, items;
    Index time, parity; ///< parity: the plane of h that the step reads
  };

  void takeArguments(KernelFunction &f);
  Split split();
  void emitStart();
  void emitSteps(const Split &split, bool isShared);
  void keepWeights(const Place &place);
  Index countSteps(const Place &place);
  Index timeOf(const Place &place, Index step, Index count);
  void emitSweep(const Place &place, unsigned number, bool isShared);
  SmallVector<Nums> sumUp(const Place &place, unsigned number, Index own, Index first, bool isShared);
  Nums weightsAt(const Place &place, Index own, int64_t gate, Index at, bool isShared);
  void forEachOwn(const Place &place, llvm::function_ref<void(Index own, Index first)> body);
  void asOwner(const Place &place, Index own, Index first, llvm::function_ref<void(Index item, Index unit)> body);
  void update(const Place &place, unsigned sweep, Index item, Index unit, Nums sums);
  Num lstmState(const Place &place, Index item, Index unit, const Nums &sums, const Mask &isActive);
  void emitEnd(const Place &place, Index count);

  /// What `read` gives where the condition holds, else 0; nothing is read then.
  Num orZero(const Mask &condition, llvm::function_ref<Num()> read) {
    return k.choose(condition, read, [&] { return k.f32(0); });
  }

  Index projectedAt(const Place &place, Index item, int64_t gate, Index unit);
  Index sequenceAt(const Place &place, Index time, Index item, Index unit);
  Index resultAt(Index direction, Index item, Index unit);
  Index stateAt(Index plane, Index direction, Index item, Index unit);
  Index stateAt(int64_t plane, const Place &place, Index item, Index unit) {
    return stateAt(k.index(plane), place.direction, item, unit);
  }
  Num function(int64_t number, Num x, bool isClipped = true);

  ThreadCode k;
  const RecurrentSpec &spec;
  const int64_t hidden, directions, gates, pitch, width, items;
  const SmallVector<RecurrentSpec::Sweep> sweeps;
  Index steps, batch, lane, team;
  Buffer kept; ///< weights in shared memory
  Buffer projected, recurrence, resetBias, peephole, lengths, initialH, initialC, sequence, lastH, lastC, states,
      counters;
};

void GpuRecurrentEmitter::takeArguments(KernelFunction &f) {
  Type f32 = k.b.getF32Type();
  SmallVector<int64_t> input{spec.steps, spec.batch, directions, gates * hidden},
      output{spec.steps, directions, spec.batch, hidden}, state{directions, spec.batch, hidden};
  if (spec.batchFirst) {
    std::swap(input[0], input[1]);
    output = {spec.batch, spec.steps, directions, hidden};
    std::swap(state[0], state[1]);
  }
  auto take = [&](Buffer &buffer, ArrayRef<int64_t> shape, Type element, bool isThere = true) {
    if (isThere)
      buffer = f.buffer(shape, element).flat();
  };
  Buffer first = f.buffer(input, f32);
  steps = first.dim(spec.batchFirst ? 1 : 0);
  batch = first.dim(spec.batchFirst ? 0 : 1);
  projected = first.flat();
  take(recurrence, {directions, gates * hidden, hidden}, f32);
  take(resetBias, {directions, hidden}, f32, spec.hasResetBias);
  take(peephole, {directions, 3 * hidden}, f32, spec.hasPeephole);
  take(lengths, {spec.batch}, k.b.getI32Type(), spec.hasLengths);
  take(initialH, state, f32, spec.hasInitialH);
  take(initialC, state, f32, spec.hasInitialC);
  take(sequence, output, f32);
  take(lastH, state, f32);
  take(lastC, state, f32, spec.cell == RecurrentLayer::Lstm);
  take(states, gpuRecurrentStates(spec), f32);
  take(counters, gpuRecurrentCounters(spec), k.b.getI64Type());
}

//===----------------------------------------------------------------------===//
// Places
//===----------------------------------------------------------------------===//

Index GpuRecurrentEmitter::projectedAt(const Place &place, Index item, int64_t gate, Index unit) {
  Index row = spec.batchFirst ? item * steps + place.time : place.time * batch + item;
  return ((row * directions + place.direction) * gates + gate) * hidden + unit;
}

Index GpuRecurrentEmitter::sequenceAt(const Place &place, Index time, Index item, Index unit) {
  Index row = spec.batchFirst ? (item * steps + time) * directions + place.direction
                              : (time * directions + place.direction) * batch + item;
  return row * hidden + unit;
}

Index GpuRecurrentEmitter::resultAt(Index direction, Index item, Index unit) {
  Index row = spec.batchFirst ? item * directions + direction : direction * batch + item;
  return row * hidden + unit;
}

Index GpuRecurrentEmitter::stateAt(Index plane, Index direction, Index item, Index unit) {
  return ((plane * directions + direction) * batch + item) * pitch + unit;
}

//===----------------------------------------------------------------------===//
// The split
//===----------------------------------------------------------------------===//

/// As few units a block as the processors allow, but one for each team: blocks
/// that wait for each other are expensive. Fewer where weights fit only so.
GpuRecurrentEmitter::Split GpuRecurrentEmitter::split() {
  auto limits = DeviceLimitsOp::create(k.b, k.loc, k.b.getIndexType(), k.b.getIndexType());
  Index processors = k.asIndex(limits.getProcessors()), sharedBytes = k.asIndex(limits.getSharedBytes());
  Index one = k.index(1), units = k.index(hidden), unitBytes = k.index(gates * pitch * 4);
  Index perDirection = maximum(one, processors / directions), least = ceilDiv(units, perDirection);
  Split split;
  split.units = maximum(least, k.index(std::min(hidden, kThreads / width)));
  split.units = minimum(split.units, maximum(least, sharedBytes / unitBytes));
  split.fits = split.units * unitBytes < sharedBytes + 1;
  split.parts = ceilDiv(units, split.units);
  Index groups = minimum(maximum(one, perDirection / split.parts), attn::ceilDiv(batch, items));
  split.items = maximum(one, ceilDiv(batch, maximum(one, groups)));
  split.groups = ceilDiv(batch, split.items);
  return split;
}

void GpuRecurrentEmitter::emit() {
  emitStart();
  Split parts = split();
  // What is read once is not worth a place in shared memory.
  if (spec.steps == 1)
    emitSteps(parts, false);
  else
    k.when(parts.fits, [&] { emitSteps(parts, true); }, [&] { emitSteps(parts, false); });
}

/// Initial states, zeros behind the units and in the counters.
void GpuRecurrentEmitter::emitStart() {
  OpBuilder::InsertionGuard guard(k.b);
  Index count = batch * directions * pitch;
  k.launch(attn::ceilDiv(count, kThreads), kThreads, {});
  Index id = k.block * kThreads + k.thread;
  k.when(id < count, [&] {
    Index row = id / pitch, unit = id % pitch, direction = row / batch, item = row % batch;
    Mask isUnit = unit < hidden;
    auto read = [&](const Buffer &from) {
      return from.value() ? orZero(isUnit, [&] { return from(resultAt(direction, item, unit)); }) : k.f32(0);
    };
    auto plane = [&](int64_t number) { return stateAt(k.index(number), direction, item, unit); };
    states.set(read(initialH), plane(0));
    states.set(k.f32(0), plane(1));
    if (spec.cell == RecurrentLayer::Lstm)
      states.set(read(initialC), plane(kPlaneC));
    if (spec.hasTwoSweeps())
      states.set(k.f32(0), plane(kPlaneReset));
    k.when(unit == 0, [&] { counters.set(k.i64(0), row); });
  });
}

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

void GpuRecurrentEmitter::emitSteps(const Split &split, bool isShared) {
  OpBuilder::InsertionGuard guard(k.b);
  bool waits = spec.steps != 1 || sweeps.size() > 1;
  Index blocks = split.groups * directions * split.parts;
  Value bytes = isShared ? toNum(split.units * (gates * pitch * 4), k.b.getI32Type()).value() : Value();
  k.launch(blocks, kThreads, {}, bytes);
  if (waits)
    k.b.getInsertionBlock()->getParentOp()->setAttr(kCooperativeAttr, k.b.getUnitAttr());
  lane = k.thread % width;
  team = k.thread / width;
  Index part = k.block % split.parts, row = k.block / split.parts;
  Place place;
  place.direction = directions == 2 ? row % 2 : k.index(0);
  Index group = directions == 2 ? row / 2 : row;
  place.firstUnit = part * split.units;
  place.units = minimum(split.units, k.index(hidden) - place.firstUnit);
  place.firstItem = group * split.items;
  place.items = minimum(split.items, batch - place.firstItem);
  if (isShared)
    keepWeights(place);
  Index count = countSteps(place);
  // Blocks with the same items and direction count together.
  Index counter = place.direction * batch + group;
  k.rolledLoop(0, count, 1, [&](Index step) {
    place.time = timeOf(place, step, count);
    place.parity = step % 2;
    for (unsigned number = 0; number < sweeps.size(); ++number) {
      emitSweep(place, number, isShared);
      if (spec.steps != 1 || number + 1 < sweeps.size())
        k.gridBarrier(counters, counter, (step * sweeps.size() + (number + 1)) * split.parts);
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
  Value memory = gpu::DynamicSharedMemoryOp::create(b, k.loc, bytes);
  Index count = place.units * (gates * pitch);
  kept = k.asBuffer(memref::ViewOp::create(b, k.loc, floats, memory, k.index(0), ValueRange{count}));
  k.rolledLoop(k.thread, count, kThreads, [&](Index n) {
    Index at = n % pitch, row = n / pitch, own = row / gates, gate = row % gates;
    Index from = (place.direction * gates + gate) * hidden + (place.firstUnit + own);
    auto read = [&] { return recurrence(from * hidden + at); };
    kept.set(pitch == hidden ? read() : orZero(at < hidden, read), n);
  });
  k.barrier();
}

/// Steps of the block: those of its longest item.
Index GpuRecurrentEmitter::countSteps(const Place &place) {
  if (!spec.hasLengths)
    return steps;
  Index longest = k.rolledLoop(0, place.items, 1, k.index(0), [&](Index n, Index most) {
    return maximum(most, toIndex(lengths(place.firstItem + n)));
  });
  return minimum(longest, steps);
}

Index GpuRecurrentEmitter::timeOf(const Place &place, Index step, Index count) {
  Index backwards = count - 1 - step;
  if (spec.direction != Direction::bidirectional)
    return spec.direction == Direction::forward ? step : backwards;
  return select(place.direction == 0, step, backwards);
}

/// `body` for each number of a unit in the block and each first of a few items,
/// the same for all threads of a team and in as many rounds for all teams.
void GpuRecurrentEmitter::forEachOwn(const Place &place, llvm::function_ref<void(Index, Index)> body) {
  int64_t teams = kThreads / width;
  k.rolledLoop(0, place.units, teams, [&](Index round) {
    Index own = round + team;
    k.rolledLoop(0, place.items, items, [&](Index first) { body(own, first); });
  });
}

/// `body` in the thread of the team that a unit of an item belongs to, if there are such.
void GpuRecurrentEmitter::asOwner(const Place &place, Index own, Index first,
                                  llvm::function_ref<void(Index, Index)> body) {
  Index number = first + lane;
  Mask isItem = (lane < items) & (number < place.items);
  k.when((own < place.units) & isItem, [&] { body(place.firstItem + number, place.firstUnit + own); });
}

void GpuRecurrentEmitter::emitSweep(const Place &place, unsigned number, bool isShared) {
  forEachOwn(place, [&](Index own, Index first) {
    SmallVector<Nums> sums = sumUp(place, number, own, first, isShared);
    asOwner(place, own, first, [&](Index item, Index unit) {
      Nums mine;
      for (Nums &ofGate : sums) {
        Num sum = ofGate[0];
        for (int64_t n = 1; n < items; ++n)
          sum = select(lane == n, ofGate[n], sum);
        mine.push_back(sum);
      }
      update(place, number, item, unit, mine);
    });
  });
}

/// Four weights of a unit's gate.
Nums GpuRecurrentEmitter::weightsAt(const Place &place, Index own, int64_t gate, Index at, bool isShared) {
  if (isShared)
    return k.load4(kept, (own * gates + gate) * pitch + at);
  Index from = ((place.direction * gates + gate) * hidden + (place.firstUnit + own)) * hidden;
  if (pitch == hidden)
    return k.load4(recurrence, from + at);
  Nums four;
  for (int64_t n = 0; n < 4; ++n) {
    Index column = at + n, last = k.index(hidden - 1);
    Num weight = recurrence(from + minimum(column, last));
    four.push_back(select(last < column, k.f32(0), weight));
  }
  return four;
}

/// Products of the weights of a unit with the states of a few items, [gate][item],
/// in all threads of the team.
SmallVector<Nums> GpuRecurrentEmitter::sumUp(const Place &place, unsigned number, Index own, Index first,
                                             bool isShared) {
  const RecurrentSpec::Sweep &sweep = sweeps[number];
  Index source = number == 1 ? k.index(kPlaneReset) : place.parity;
  own = minimum(own, place.units - 1);
  SmallVector<Index> rows;
  for (int64_t n = 0; n < items; ++n) {
    Index item = minimum(first + n, place.items - 1);
    rows.push_back(stateAt(source, place.direction, place.firstItem + item, k.index(0)));
  }
  Nums none(sweep.numGates * items, k.f32(0));
  Nums sums = k.rolledLoop(lane * 4, pitch, 4 * width, none, [&](Index at, Nums next) {
    SmallVector<Nums> weights;
    for (int64_t g = 0; g < sweep.numGates; ++g)
      weights.push_back(weightsAt(place, own, sweep.firstGate + g, at, isShared));
    for (int64_t n = 0; n < items; ++n) {
      Nums state = k.load4(states, rows[n] + at);
      for (int64_t g = 0; g < sweep.numGates; ++g)
        for (int64_t e = 0; e < 4; ++e)
          next[g * items + n] = fma(weights[g][e], state[e], next[g * items + n]);
    }
    return next;
  });
  auto add = [](Num x, Num y) { return x + y; };
  SmallVector<Nums> result(sweep.numGates);
  for (auto [n, sum] : llvm::enumerate(sums))
    result[n / items].push_back(k.acrossThreads(sum, width, add));
  return result;
}

//===----------------------------------------------------------------------===//
// Cells
//===----------------------------------------------------------------------===//

Num GpuRecurrentEmitter::function(int64_t number, Num x, bool isClipped) {
  Value clipped = spec.clip && isClipped ? emitClip(k.b, k.loc, *spec.clip, x) : x.value();
  return k.asNum(emitActivation(k.b, k.loc, spec.functions[number], clipped));
}

/// The new h of an LSTM; c is updated where it lies.
Num GpuRecurrentEmitter::lstmState(const Place &place, Index item, Index unit, const Nums &sums, const Mask &isActive) {
  enum { I, O, F, C };
  Index at = stateAt(kPlaneC, place, item, unit);
  Num old = states(at);
  auto gate = [&](int64_t gate, int64_t position, Num cell) {
    if (!spec.hasPeephole)
      return function(0, sums[gate]);
    Index row = (place.direction * 3 + position) * hidden;
    return function(0, fma(peephole(row + unit), cell, sums[gate]));
  };
  Num i = gate(I, 0, old), f = spec.inputForget ? 1.0 - i : gate(F, 2, old);
  Num cell = fma(f, old, i * function(1, sums[C]));
  states.set(isActive.value() ? select(isActive, cell, old) : cell, at);
  return gate(O, 1, cell) * function(2, cell, /*isClipped=*/false);
}

/// What follows the sums of a sweep's gates for one unit of one item.
void GpuRecurrentEmitter::update(const Place &place, unsigned sweep, Index item, Index unit, Nums sums) {
  auto input = [&](int64_t gate) { return projected(projectedAt(place, item, gate, unit)); };
  for (auto [n, sum] : llvm::enumerate(sums))
    if (int64_t gate = sweeps[sweep].firstGate + n; gate != 2 || !spec.linearBeforeReset)
      sum = input(gate) + sum;
  Num old = states(stateAt(place.parity, place.direction, item, unit)), h;
  if (spec.hasTwoSweeps() && sweep == 0) {
    states.set(function(0, sums[0]), stateAt(kPlaneUpdate, place, item, unit));
    states.set(function(0, sums[1]) * old, stateAt(kPlaneReset, place, item, unit));
    return;
  }
  Mask isActive;
  if (spec.hasLengths)
    isActive = place.time < toIndex(lengths(item));
  if (spec.cell == RecurrentLayer::Lstm) {
    h = lstmState(place, item, unit, sums, isActive);
  } else if (spec.cell == RecurrentLayer::Rnn) {
    h = function(0, sums[0]);
  } else {
    Num z, n;
    if (spec.linearBeforeReset) {
      Num linear = spec.hasResetBias ? resetBias(place.direction * hidden + unit) + sums[2] : sums[2];
      z = function(0, sums[0]);
      n = function(1, fma(function(0, sums[1]), linear, input(2)));
    } else {
      z = states(stateAt(kPlaneUpdate, place, item, unit));
      n = function(1, sums[0]);
    }
    Num rest = 1.0 - z;
    if (spec.mirrored)
      std::swap(rest, z);
    h = fma(z, old, rest * n);
  }
  Num shown = h;
  if (isActive.value()) {
    shown = select(isActive, h, k.f32(0));
    h = select(isActive, h, old);
  }
  states.set(h, stateAt(k.index(1) - place.parity, place.direction, item, unit));
  sequence.set(shown, sequenceAt(place, place.time, item, unit));
}

/// The last states, and zeros in the sequence from step `count` on.
void GpuRecurrentEmitter::emitEnd(const Place &place, Index count) {
  Index parity = count % 2;
  forEachOwn(place, [&](Index own, Index first) {
    asOwner(place, own, first, [&](Index item, Index unit) {
      Index to = resultAt(place.direction, item, unit);
      lastH.set(states(stateAt(parity, place.direction, item, unit)), to);
      if (spec.cell == RecurrentLayer::Lstm)
        lastC.set(states(stateAt(kPlaneC, place, item, unit)), to);
      if (spec.hasLengths)
        k.rolledLoop(count, steps, 1, [&](Index time) { sequence.set(k.f32(0), sequenceAt(place, time, item, unit)); });
    });
  });
}

} // namespace

SmallVector<int64_t> gpuRecurrentStates(const RecurrentSpec &spec) {
  return {spec.numPlanes(), spec.numDirections(), spec.batch, pitchOf(spec)};
}

SmallVector<int64_t> gpuRecurrentCounters(const RecurrentSpec &spec) { return {spec.numDirections(), spec.batch}; }

func::FuncOp buildGpuRecurrent(OpBuilder &builder, Location loc, StringRef symbol, const RecurrentSpec &spec) {
  KernelFunction f(builder, loc, symbol);
  GpuRecurrentEmitter(f, spec).emit();
  return f.function;
}

} // namespace attn
