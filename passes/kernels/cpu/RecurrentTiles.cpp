// The sums of a panel and what follows from them; Recurrent.cpp has the steps.
#include "dialects/attn/Activation.h"
#include "passes/kernels/cpu/RecurrentEmitter.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;

namespace attn {

using Values = LaneBuilder::Values;

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
  Value slice = k.add(k.mul(place.direction, spec.numPanels(sweep)), panel), zero = k.index(0);
  Value panelAt = k.mul(slice, spec.panelShape(sweep)[1] * spec.panelShape(sweep)[2]);
  Products products{number, height, vectors, panelAt, states};
  if (spec.storage != PanelStorage::I8)
    return addProducts(products, zero, k.index(spec.hidden), inits);
  // Whole numbers are summed up group by group, then scaled.
  int64_t numGroups = spec.scaleShape(sweep)[1];
  Values none(inits.size(), k.splat(0));
  return k.loop(zero, k.index(numGroups), 1, inits, [&](Value group, ValueRange carried) {
    Value begin = k.mul(group, spec.group), end = k.min(k.add(begin, spec.group), k.index(spec.hidden));
    if (numGroups == 1)
      begin = zero, end = k.index(spec.hidden);
    Values sums = addProducts(products, begin, end, none);
    Value scaleAt = k.mul(k.add(k.mul(slice, numGroups), group), width);
    for (int64_t v = 0; v < vectors; ++v) {
      Value scale = k.loadVector(at.scales[number], k.add(scaleAt, v * spec.lanes));
      for (int64_t r = 0; r < height; ++r)
        sums[r * vectors + v] = multiplyAdd(sums[r * vectors + v], scale, carried[r * vectors + v]);
    }
    return sums;
  });
}

/// `sums` and the products of rows [begin, end) of a panel with the states.
SmallVector<Value> RecurrentEmitter::addProducts(const Products &of, Value begin, Value end, ValueRange inits) {
  int64_t vectors = of.vectors, count = of.height * vectors, perStep = spec.rowsPerStep();
  bool isEven = spec.hidden % 2 == 0 && spec.group % 2 == 0;
  // A fused multiply-add takes 4 cycles and two start in each: few sums are
  // split in two, for even and odd k.
  bool split = count < 8 && isEven;
  int64_t stride = split ? 2 : perStep;
  Values sums(inits);
  if (split)
    sums.append(count, k.splat(0));
  auto addRow = [&](MutableArrayRef<Value> sums, Value row, int64_t part) {
    Value from = k.add(of.panelAt, k.mul(row, vectors * spec.lanes));
    Values columns;
    for (int64_t v = 0; v < vectors; ++v)
      columns.push_back(loadWeights(of.sweep, k.add(from, v * spec.lanes * perStep), part));
    for (int64_t r = 0; r < of.height; ++r) {
      Value h = k.broadcast(k.load(at.scratch, k.add(of.states[r], k.add(row, part))));
      for (int64_t v = 0; v < vectors; ++v)
        sums[r * vectors + v] = multiplyAdd(h, columns[v], sums[r * vectors + v]);
    }
  };
  // Interleaved rows: both parts of the pair that begins at `row`.
  auto addStep = [&](MutableArrayRef<Value> sums, Value row, int64_t rows) {
    for (int64_t u = 0; u < rows; ++u)
      addRow(split && u % 2 ? sums.drop_front(count) : sums, perStep == 2 ? row : k.add(row, u), perStep == 2 ? u : 0);
  };
  bool hasOdd = perStep == 2 && spec.hidden % 2;
  sums = k.loop(begin, hasOdd ? k.index(spec.hidden - 1) : end, stride, sums, [&](Value row, ValueRange carried) {
    Values next(carried);
    addStep(next, row, stride);
    return next;
  });
  if (hasOdd)
    addStep(sums, k.index(spec.hidden - 1), 1);
  if (split)
    for (int64_t n = 0; n < count; ++n)
      sums[n] = k.addf(sums[n], sums[count + n]);
  sums.resize(count);
  return sums;
}

/// Weights of one row as f32; of an interleaved pair, those of its `part`.
Value RecurrentEmitter::loadWeights(unsigned sweep, Value offset, int64_t part) {
  Value x = k.loadVector(at.panels[sweep], offset, spec.lanes * spec.rowsPerStep());
  auto words = VectorType::get({spec.lanes}, b.getI32Type());
  auto word = [&](int64_t value) {
    return arith::ConstantOp::create(b, loc, DenseElementsAttr::get(words, APInt(32, value)));
  };
  switch (spec.storage) {
  case PanelStorage::F32:
    return x;
  case PanelStorage::F16:
    return k.toF32(x);
  case PanelStorage::BF16: // two rows in a word, the first one low
    x = vector::BitCastOp::create(b, loc, words, x);
    x = part == 0 ? arith::ShLIOp::create(b, loc, x, word(16)).getResult()
                  : arith::AndIOp::create(b, loc, x, word(0xffff0000)).getResult();
    return arith::BitcastOp::create(b, loc, k.vectorType(), x);
  case PanelStorage::I8:
    return arith::SIToFPOp::create(b, loc, k.vectorType(), arith::ExtSIOp::create(b, loc, words, x));
  }
  llvm_unreachable("covered switch");
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
    Value rest = k.subf(k.splat(1), z);
    if (spec.mirrored)
      std::swap(rest, z);
    h = multiplyAdd(z, old, k.mulf(rest, n));
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

} // namespace attn
