#include "passes/kernels/cpu/Recurrent.h"

#include "dialects/attn/Activation.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "passes/kernels/cpu/LaneBuilder.h"

using namespace mlir;

namespace attn {
namespace {

using Values = LaneBuilder::Values;

/// Items that one task takes at most: of a layer with two directions the tasks
/// are twice as many, and each streams all of its direction's weights.
constexpr int64_t kGroup = 8, kBidirectionalGroup = 16;
/// A piece of a step must outweigh the fork and join of 0.2 us.
constexpr int64_t kMinChunkFloats = 32 << 10;

//===----------------------------------------------------------------------===//
// RecurrentEmitter
//===----------------------------------------------------------------------===//

class RecurrentEmitter {
public:
  RecurrentEmitter(OpBuilder &builder, Location loc, const RecurrentSpec &spec)
      : b(builder), loc(loc), spec(spec), k(builder, loc, spec.lanes, /*hasScalef=*/spec.lanes == 16),
        sweeps(spec.sweeps()), padded(spec.paddedHidden()) {}

  func::FuncOp emit();

private:
  /// The kernel's buffers, each as one dimension.
  struct Buffers {
    SmallVector<Value> panels;
    Value projected, resetBias, peephole, lengths, initialH, initialC, sequence, lastH, lastC, scratch;
  };
  /// What a tile works on.
  struct Place {
    Value direction, time, parity; ///< parity: the plane of h that the step reads
    Value firstRow, rows, blocks;  ///< of the group, and the blocks that its rows are cut into
  };

  SmallVector<Type> argumentTypes();
  Buffers flatten(func::FuncOp function);
  int64_t tileRows(const RecurrentSpec::Sweep &sweep);

  void emitGroups(func::FuncOp function);
  void emitChunks(func::FuncOp function);
  void emitInitial(const Place &place);
  void emitFinal(const Place &place, Value steps);
  void emitPadding(const Place &place, Value steps);
  Value countSteps(const Place &place);
  Value timeOf(Value direction, Value step, Value steps);
  void emitPanels(const Place &place, unsigned sweep, Value panel);
  void emitBlock(const Place &place, unsigned sweep, Value panel, Value row, int64_t height);
  SmallVector<Value> emitSums(const Place &place, unsigned sweep, Value panel, Value row, int64_t height);
  void emitUnits(const Place &place, unsigned sweep, Value row, Value unit, ArrayRef<Value> gates);

  Value rnnState(ArrayRef<Value> gates) { return function(0, gates[0]); }
  Value lstmState(const Place &place, Value row, Value unit, ArrayRef<Value> gates, Value active);

  //===--- places ---------------------------------------------------------===//
  Value projectedAt(const Place &place, Value row, int64_t gate, Value unit);
  Value sequenceAt(Value direction, Value time, Value row, Value unit);
  Value stateAt(Value direction, Value row, Value unit);
  Value scratchAt(Value plane, Value direction, Value row, Value unit);
  Value scratchAt(int64_t plane, Value direction, Value row, Value unit) {
    return scratchAt(k.index(plane), direction, row, unit);
  }
  /// `lanes` units of a dense row from `unit` on, 0 beyond the last.
  Value loadUnits(Value flat, Value offset, Value unit) {
    return isWhole() ? k.loadVector(flat, offset)
                     : k.loadFirst(flat, offset, k.sub(k.index(spec.hidden), unit), k.lanes);
  }
  void storeUnits(Value vector, Value flat, Value offset, Value unit) {
    if (isWhole())
      k.store(vector, flat, offset);
    else
      k.storeFirst(vector, flat, offset, k.sub(k.index(spec.hidden), unit));
  }
  bool isWhole() {
    return llvm::all_of(sweeps, [&](auto &sweep) { return spec.hidden % spec.panelUnits(sweep) == 0; });
  }

  //===--- arithmetic -----------------------------------------------------===//
  Value multiplyAdd(Value x, Value y, Value sum);
  Value function(int64_t number, Value x, bool clipped = true);
  Value sigmoid(Value x);
  Value tanh(Value x);
  Value limited(Value x);

  OpBuilder &b;
  Location loc;
  const RecurrentSpec &spec;
  LaneBuilder k;
  const SmallVector<RecurrentSpec::Sweep> sweeps;
  const int64_t padded;
  Buffers at;
  Value steps, batch;
};

enum { kPlaneC = 2, kPlaneUpdate = 2, kPlaneReset = 3 };

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
    types.push_back(memref({directions * spec.numPanels(sweep), hidden, spec.panelWidth(sweep)}));
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
// Arithmetic
//===----------------------------------------------------------------------===//

Value RecurrentEmitter::multiplyAdd(Value x, Value y, Value sum) {
  if (spec.hasFma)
    return k.fma(x, y, sum);
  auto contract = arith::FastMathFlagsAttr::get(b.getContext(), arith::FastMathFlags::contract);
  Value product = arith::MulFOp::create(b, loc, x, y, contract);
  return arith::AddFOp::create(b, loc, sum, product, contract);
}

/// At most 126, where exp2 needs it; NaN stays NaN.
Value RecurrentEmitter::limited(Value x) {
  if (k.hasScalef)
    return x;
  Value bound = k.splat(126);
  return k.select(k.compare(arith::CmpFPredicate::OGT, x, bound), bound, x);
}

Value RecurrentEmitter::sigmoid(Value x) {
  Value e = k.exp2(limited(k.mulf(x, k.splat(-1.44269504f))));
  return k.divf(k.splat(1), k.addf(k.splat(1), e));
}

Value RecurrentEmitter::tanh(Value x) {
  Value e = k.exp2(limited(k.mulf(x, k.splat(2.88539008f))));
  return k.subf(k.splat(1), k.divf(k.splat(2), k.addf(k.splat(1), e)));
}

Value RecurrentEmitter::function(int64_t number, Value x, bool clipped) {
  if (spec.clip && clipped)
    x = emitClip(b, loc, *spec.clip, x);
  ActivationAttr activation = spec.functions[number];
  if (activation.getKind() == ActivationKind::sigmoid)
    return sigmoid(x);
  if (activation.getKind() == ActivationKind::tanh)
    return tanh(x);
  return emitActivation(b, loc, activation, x);
}

//===----------------------------------------------------------------------===//
// Tiles
//===----------------------------------------------------------------------===//

/// The gates of `height` rows and one panel: row-major, then by gate, then by
/// vector. Sums start at the projected input and run over k in order.
SmallVector<Value> RecurrentEmitter::emitSums(const Place &place, unsigned number, Value panel, Value row,
                                              int64_t height) {
  const RecurrentSpec::Sweep &sweep = sweeps[number];
  int64_t vectors = sweep.numGates * sweep.vectors, width = spec.panelWidth(sweep);
  Value unit = k.mul(panel, spec.panelUnits(sweep));
  Value source = number == 1 ? k.index(kPlaneReset) : place.parity;
  Values inits, states;
  for (int64_t r = 0; r < height; ++r) {
    Value own = k.add(row, r);
    states.push_back(scratchAt(source, place.direction, own, k.index(0)));
    for (int64_t g = 0; g < sweep.numGates; ++g)
      for (int64_t v = 0; v < sweep.vectors; ++v) {
        Value first = k.add(unit, v * spec.lanes);
        bool isReset = spec.linearBeforeReset && sweep.firstGate + g == 2;
        if (!isReset)
          inits.push_back(loadUnits(at.projected, projectedAt(place, own, sweep.firstGate + g, first), first));
        else if (spec.hasResetBias)
          inits.push_back(loadUnits(at.resetBias, k.add(k.mul(place.direction, spec.hidden), first), first));
        else
          inits.push_back(k.splat(0));
      }
  }
  // A fused multiply-add takes 4 cycles and two start in each: few sums are
  // split in two, for even and odd k.
  bool split = height * vectors < 8 && spec.hidden % 2 == 0;
  int64_t stride = split ? 2 : 1;
  if (split)
    inits.append(height * vectors, k.splat(0));
  Value base = k.mul(k.add(k.mul(place.direction, spec.numPanels(sweep)), panel), spec.hidden * width);
  Values sums = k.loop(k.index(0), k.index(spec.hidden), stride, inits, [&](Value step, ValueRange carried) {
    Values next(carried);
    for (int64_t u = 0; u < stride; ++u) {
      Value kk = k.add(step, u), weights = k.add(base, k.mul(kk, width));
      Values columns;
      for (int64_t v = 0; v < vectors; ++v)
        columns.push_back(k.loadVector(at.panels[number], k.add(weights, v * spec.lanes)));
      for (int64_t r = 0; r < height; ++r) {
        Value h = k.broadcast(k.load(at.scratch, k.add(states[r], kk)));
        for (int64_t v = 0; v < vectors; ++v) {
          Value &sum = next[u * height * vectors + r * vectors + v];
          sum = multiplyAdd(h, columns[v], sum);
        }
      }
    }
    return next;
  });
  if (split)
    for (int64_t n = 0; n < height * vectors; ++n)
      sums[n] = k.addf(sums[n], sums[height * vectors + n]);
  sums.resize(height * vectors);
  return sums;
}

/// The new h of an LSTM; c is updated where it lies.
Value RecurrentEmitter::lstmState(const Place &place, Value row, Value unit, ArrayRef<Value> gates, Value active) {
  enum { I, O, F, C };
  Value cellAt = scratchAt(kPlaneC, place.direction, row, unit);
  Value old = k.loadVector(at.scratch, cellAt);
  auto peephole = [&](int64_t gate, Value cell) {
    if (!spec.hasPeephole)
      return gates[gate];
    int64_t position = gate == I ? 0 : gate == O ? 1 : 2;
    Value offset = k.add(k.mul(k.add(k.mul(place.direction, 3), position), spec.hidden), unit);
    return multiplyAdd(loadUnits(at.peephole, offset, unit), cell, gates[gate]);
  };
  Value i = function(0, peephole(I, old));
  Value f = spec.inputForget ? k.subf(k.splat(1), i) : function(0, peephole(F, old));
  Value cell = multiplyAdd(f, old, k.mulf(i, function(1, gates[C])));
  Value h = k.mulf(function(0, peephole(O, cell)), function(2, cell, /*clipped=*/false));
  k.store(active ? k.select(active, cell, old) : cell, at.scratch, cellAt);
  return h;
}

/// What follows the sums of one row for `lanes` units: `gates` are one vector
/// for each gate of the sweep.
void RecurrentEmitter::emitUnits(const Place &place, unsigned sweep, Value row, Value unit, ArrayRef<Value> gates) {
  Value d = place.direction, oldAt = scratchAt(place.parity, d, row, unit);
  if (spec.hasTwoSweeps() && sweep == 0) {
    Value h = k.loadVector(at.scratch, oldAt);
    k.store(function(0, gates[0]), at.scratch, scratchAt(kPlaneUpdate, d, row, unit));
    k.store(k.mulf(function(0, gates[1]), h), at.scratch, scratchAt(kPlaneReset, d, row, unit));
    return;
  }
  Value active;
  if (spec.hasLengths) {
    Value length = arith::IndexCastOp::create(b, loc, b.getIndexType(), k.load(at.lengths, row));
    active = k.less(place.time, length);
  }
  Value h;
  if (spec.cell == RecurrentLayer::Lstm) {
    h = lstmState(place, row, unit, gates, active);
  } else if (spec.cell == RecurrentLayer::Rnn) {
    h = function(0, gates[0]);
  } else {
    Value old = k.loadVector(at.scratch, oldAt), z, n;
    if (spec.linearBeforeReset) {
      z = function(0, gates[0]);
      Value projected = loadUnits(at.projected, projectedAt(place, row, 2, unit), unit);
      n = function(1, multiplyAdd(function(0, gates[1]), gates[2], projected));
    } else {
      z = k.loadVector(at.scratch, scratchAt(kPlaneUpdate, d, row, unit));
      n = function(1, gates[0]);
    }
    h = multiplyAdd(z, old, k.mulf(k.subf(k.splat(1), z), n));
  }
  Value shown = h;
  if (active) {
    shown = k.select(active, h, k.splat(0));
    h = k.select(active, h, k.loadVector(at.scratch, oldAt));
  }
  Value other = k.sub(k.index(1), place.parity);
  k.store(h, at.scratch, scratchAt(other, d, row, unit));
  storeUnits(shown, at.sequence, sequenceAt(d, place.time, row, unit), unit);
}

void RecurrentEmitter::emitBlock(const Place &place, unsigned number, Value panel, Value row, int64_t height) {
  const RecurrentSpec::Sweep &sweep = sweeps[number];
  SmallVector<Value> sums = emitSums(place, number, panel, row, height);
  Value unit = k.mul(panel, spec.panelUnits(sweep));
  for (int64_t r = 0; r < height; ++r)
    for (int64_t v = 0; v < sweep.vectors; ++v) {
      Values gates;
      for (int64_t g = 0; g < sweep.numGates; ++g)
        gates.push_back(sums[(r * sweep.numGates + g) * sweep.vectors + v]);
      emitUnits(place, number, k.add(row, r), k.add(unit, v * spec.lanes), gates);
    }
}

/// One panel for all rows of the group, in blocks whose heights differ by one
/// at most.
void RecurrentEmitter::emitPanels(const Place &place, unsigned number, Value panel) {
  int64_t most = tileRows(sweeps[number]);
  Value blocks = k.ceilDiv(place.rows, most), divisor = k.max(blocks, k.index(1));
  Value height = k.div(place.rows, divisor), extra = k.rem(place.rows, divisor);
  // Of a group whose size is known only one height or two occur.
  int64_t least = 1;
  if (std::optional<int64_t> rows = LaneBuilder::constant(place.rows)) {
    int64_t count = std::max<int64_t>(1, llvm::divideCeil(*rows, most));
    least = std::max<int64_t>(1, *rows / count);
    most = *rows % count ? least + 1 : least;
  }
  k.loop(k.index(0), blocks, 1, [&](Value block) {
    Value row = k.add(place.firstRow, k.add(k.mul(block, height), k.min(block, extra)));
    if (least == most)
      return emitBlock(place, number, panel, row, least);
    Value isTaller = arith::IndexCastUIOp::create(b, loc, b.getIndexType(), k.less(block, extra));
    SmallVector<int64_t> heights = llvm::to_vector(llvm::seq(least, most));
    auto choice = scf::IndexSwitchOp::create(b, loc, TypeRange(), k.add(height, isTaller), heights, heights.size());
    OpBuilder::InsertionGuard guard(b);
    for (auto [region, rows] : llvm::zip_equal(choice.getCaseRegions(), heights)) {
      b.setInsertionPointToStart(&region.emplaceBlock());
      emitBlock(place, number, panel, row, rows);
      scf::YieldOp::create(b, loc);
    }
    b.setInsertionPointToStart(&choice.getDefaultRegion().emplaceBlock());
    emitBlock(place, number, panel, row, most);
    scf::YieldOp::create(b, loc);
  });
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

} // namespace

FailureOr<func::FuncOp> buildRecurrent(OpBuilder &builder, Location loc, const RecurrentSpec &spec) {
  std::string reason;
  if (!canBuildRecurrent(spec, &reason))
    return emitError(loc, "cannot build a recurrent kernel: ") << reason;
  return RecurrentEmitter(builder, loc, spec).emit();
}

} // namespace attn
