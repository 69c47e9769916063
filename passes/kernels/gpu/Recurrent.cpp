#include "passes/kernels/gpu/Recurrent.h"
#include "dialects/attn/DeviceOps.h"
#include "passes/kernels/gpu/ThreadCode.h"
#include "passes/kernels/shared/RecurrentCell.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;

namespace attn {
namespace {

constexpr int64_t kThreads = 256, kItems = 4; ///< kItems: of a batch that share what is read of the weights

int64_t pitchOf(const RecurrentSpec &spec) { return llvm::alignTo(spec.hidden, 4); }

/// Threads that share a sum, each with a few fours of its products: a power of two.
int64_t widthOf(const RecurrentSpec &spec) { return spec.hidden <= 64 ? 8 : spec.hidden <= 256 ? 16 : 32; }

class GpuRecurrentEmitter {
public:
  GpuRecurrentEmitter(KernelFunction &f, const RecurrentSpec &spec)
      : k(f.k.b, f.k.loc), spec(spec), hidden(spec.hidden), directions(spec.numDirections()), gates(spec.numGates()),
        pitch(pitchOf(spec)), width(widthOf(spec)), items(spec.batch == 1 ? 1 : kItems), sweeps(spec.sweeps()),
        arguments(RecurrentBuffers::take(f, spec, weightTypes(), gpuRecurrentStates(spec))),
        counters(f.buffer(gpuRecurrentCounters(spec), k.b.getI64Type()).flat()),
        places(spec, pitch, arguments.projected), buffers(arguments.flat()) {}

  void emit();

private:
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
  class Cell;

  MemRefType weightTypes() { return MemRefType::get({directions, gates * hidden, hidden}, k.b.getF32Type()); }
  Split split();
  void emitStart();
  void emitSteps(const Split &split, bool isShared);
  void keepWeights(const Place &place);
  Index countSteps(const Place &place);
  void emitSweep(const Place &place, unsigned number, bool isShared);
  SmallVector<Nums> sumUp(const Place &place, unsigned number, Index own, Index first, bool isShared);
  Nums weightsAt(const Place &place, Index own, int64_t gate, Index at, bool isShared);
  void forEachOwn(const Place &place, llvm::function_ref<void(Index own, Index first)> body);
  void asOwner(const Place &place, Index own, Index first, llvm::function_ref<void(Index item, Index unit)> body);
  void update(const Place &place, unsigned sweep, Index item, Index unit, Nums sums);
  void emitEnd(const Place &place, Index count);

  Num input(const Place &place, Index item, int64_t gate, Index unit) {
    return buffers.projected(places.projected(place.direction, place.time, item, gate, unit));
  }

  /// What `read` gives where the condition holds, else 0; nothing is read then.
  Num orZero(const Mask &condition, llvm::function_ref<Num()> read) {
    return k.choose(condition, read, [&] { return k.f32(0); });
  }

  ThreadCode k;
  const RecurrentSpec &spec;
  const int64_t hidden, directions, gates, pitch, width, items;
  const SmallVector<RecurrentSpec::Sweep> sweeps;
  const RecurrentBuffers arguments;
  const Buffer counters;
  const RecurrentPlaces places;
  const RecurrentBuffers buffers; ///< the flat ones
  Index lane, team;
  Buffer kept; ///< weights in shared memory
};

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
  Index groups = minimum(maximum(one, perDirection / split.parts), ceilDiv(places.batch, items));
  split.items = maximum(one, ceilDiv(places.batch, maximum(one, groups)));
  split.groups = ceilDiv(places.batch, split.items);
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
  Index count = places.batch * directions * pitch;
  k.launch(ceilDiv(count, kThreads), kThreads, {});
  Index id = k.block * kThreads + k.thread;
  k.when(id < count, [&] {
    Index row = id / pitch, unit = id % pitch, direction = row / places.batch, item = row % places.batch;
    Mask isUnit = unit < hidden;
    auto read = [&](const Buffer &from) {
      return from.value() ? orZero(isUnit, [&] { return from(places.result(direction, item, unit)); }) : k.f32(0);
    };
    auto plane = [&](int64_t number) { return places.state(number, direction, item, unit); };
    buffers.states.set(read(buffers.initialH), plane(0));
    buffers.states.set(k.f32(0), plane(1));
    if (spec.cell == RecurrentLayer::Lstm)
      buffers.states.set(read(buffers.initialC), plane(places.kPlaneC));
    if (spec.hasTwoSweeps())
      buffers.states.set(k.f32(0), plane(places.kPlaneReset));
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
  place.items = minimum(split.items, places.batch - place.firstItem);
  if (isShared)
    keepWeights(place);
  Index count = countSteps(place);
  // Blocks with the same items and direction count together.
  Index counter = place.direction * places.batch + group;
  k.loop(0, count, 1, [&](Index step) {
    place.time = places.timeOf(place.direction, step, count);
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
  k.loop(k.thread, count, kThreads, [&](Index n) {
    Index at = n % pitch, row = n / pitch, own = row / gates, gate = row % gates;
    Index from = (place.direction * gates + gate) * hidden + (place.firstUnit + own);
    auto read = [&] { return buffers.weights[0](from * hidden + at); };
    kept.set(pitch == hidden ? read() : orZero(at < hidden, read), n);
  });
  k.barrier();
}

/// Steps of the block: those of its longest item.
Index GpuRecurrentEmitter::countSteps(const Place &place) {
  if (!spec.hasLengths)
    return places.steps;
  Index longest = k.loop(0, place.items, 1, k.index(0), [&](Index n, Index most) {
    return maximum(most, toIndex(buffers.lengths(place.firstItem + n)));
  });
  return minimum(longest, places.steps);
}

/// `body` for each number of a unit in the block and each first of a few items,
/// the same for all threads of a team and in as many rounds for all teams.
void GpuRecurrentEmitter::forEachOwn(const Place &place, llvm::function_ref<void(Index, Index)> body) {
  int64_t teams = kThreads / width;
  k.loop(0, place.units, teams, [&](Index round) {
    Index own = round + team;
    k.loop(0, place.items, items, [&](Index first) { body(own, first); });
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
    return k.load4(buffers.weights[0], from + at);
  Nums four;
  for (int64_t n = 0; n < 4; ++n) {
    Index column = at + n, last = k.index(hidden - 1);
    Num weight = buffers.weights[0](from + minimum(column, last));
    four.push_back(select(last < column, k.f32(0), weight));
  }
  return four;
}

/// Products of the weights of a unit with the states of a few items, [gate][item],
/// in all threads of the team.
SmallVector<Nums> GpuRecurrentEmitter::sumUp(const Place &place, unsigned number, Index own, Index first,
                                             bool isShared) {
  const RecurrentSpec::Sweep &sweep = sweeps[number];
  Index source = number == 1 ? k.index(places.kPlaneReset) : place.parity;
  own = minimum(own, place.units - 1);
  SmallVector<Index> rows;
  for (int64_t n = 0; n < items; ++n) {
    Index item = minimum(first + n, place.items - 1);
    rows.push_back(places.state(source, place.direction, place.firstItem + item, k.index(0)));
  }
  Nums none(sweep.numGates * items, k.f32(0));
  Nums sums = k.loop(lane * 4, pitch, 4 * width, none, [&](Index at, Nums next) {
    SmallVector<Nums> weights;
    for (int64_t g = 0; g < sweep.numGates; ++g)
      weights.push_back(weightsAt(place, own, sweep.firstGate + g, at, isShared));
    for (int64_t n = 0; n < items; ++n) {
      Nums state = k.load4(buffers.states, rows[n] + at);
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

class GpuRecurrentEmitter::Cell : public RecurrentCell<Num> {
public:
  Cell(GpuRecurrentEmitter &e, const Place &place, Index item, Index unit, Num old)
      : RecurrentCell(e.k, e.spec, e.spec.hasLengths ? place.time < toIndex(e.buffers.lengths(item)) : Mask()), e(e),
        place(place), item(item), unit(unit), old(old) {}

private:
  Num lastH() override { return old; }
  void setH(const Num &x) override { e.buffers.states.set(x, at(1 - place.parity)); }
  Num state(int64_t plane) override { return e.buffers.states(at(k.index(plane))); }
  void setState(const Num &x, int64_t plane) override { e.buffers.states.set(x, at(k.index(plane))); }
  Num projected(int64_t gate) override { return e.input(place, item, gate, unit); }
  Num peephole(int64_t position) override {
    return e.buffers.peephole((place.direction * 3 + position) * e.hidden + unit);
  }
  void show(const Num &x) override {
    e.buffers.sequence.set(x, e.places.sequence(place.direction, place.time, item, unit));
  }
  Index at(Index plane) { return e.places.state(plane, place.direction, item, unit); }

  GpuRecurrentEmitter &e;
  const Place &place;
  Index item, unit;
  Num old;
};

/// What follows the sums of a sweep's gates for one unit of one item.
void GpuRecurrentEmitter::update(const Place &place, unsigned sweep, Index item, Index unit, Nums sums) {
  for (auto [n, sum] : llvm::enumerate(sums)) {
    int64_t gate = sweeps[sweep].firstGate + n;
    if (gate != 2 || !spec.linearBeforeReset)
      sum = input(place, item, gate, unit) + sum;
    else if (spec.hasResetBias)
      sum = buffers.resetBias(place.direction * hidden + unit) + sum;
  }
  Num old = buffers.states(places.state(place.parity, place.direction, item, unit));
  Cell(*this, place, item, unit, old).update(sweep, sums);
}

/// The last states, and zeros in the sequence from step `count` on.
void GpuRecurrentEmitter::emitEnd(const Place &place, Index count) {
  Index parity = count % 2;
  forEachOwn(place, [&](Index own, Index first) {
    asOwner(place, own, first, [&](Index item, Index unit) {
      Index to = places.result(place.direction, item, unit);
      buffers.lastH.set(buffers.states(places.state(parity, place.direction, item, unit)), to);
      if (spec.cell == RecurrentLayer::Lstm)
        buffers.lastC.set(buffers.states(places.state(places.kPlaneC, place.direction, item, unit)), to);
      if (spec.hasLengths)
        k.loop(count, places.steps, 1,
               [&](Index time) { buffers.sequence.set(k.f32(0), places.sequence(place.direction, time, item, unit)); });
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
