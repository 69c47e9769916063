// The sums of a panel and what follows from them; Recurrent.cpp has the steps.
#include "passes/kernels/cpu/HalfParts.h"
#include "passes/kernels/cpu/PanelTile.h"
#include "passes/kernels/cpu/RecurrentEmitter.h"
#include "passes/kernels/shared/Exponential.h"

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

using namespace mlir;

namespace attn {

Vec RecurrentEmitter::multiplyAdd(const Vec &x, const Vec &y, const Vec &sum) {
  if (spec.hasFma())
    return fma(x, y, sum);
  auto contract = arith::FastMathFlagsAttr::get(k.b.getContext(), arith::FastMathFlags::contract);
  Value product = arith::MulFOp::create(k.b, k.loc, x, y, contract);
  return k.asVec(arith::AddFOp::create(k.b, k.loc, sum, product, contract));
}

//===----------------------------------------------------------------------===//
// Cells
//===----------------------------------------------------------------------===//

/// A register of units of one row.
class RecurrentEmitter::Cell : public RecurrentCell<Vec> {
public:
  Cell(RecurrentEmitter &e, const Task &task, Index row, Index unit)
      : RecurrentCell(e.k, e.spec, e.spec.hasLengths ? task.time < toIndex(e.at.lengths(row)) : Mask()), e(e),
        task(task), row(row), unit(unit) {}

private:
  Vec lastH() override { return e.at.states.vector(e.lanes, place(task.parity)); }
  void setH(const Vec &x) override { e.at.states.setVector(x, place(1 - task.parity)); }
  Vec state(int64_t plane) override { return e.at.states.vector(e.lanes, place(k.index(plane))); }
  void setState(const Vec &x, int64_t plane) override { e.at.states.setVector(x, place(k.index(plane))); }
  Vec projected(int64_t gate) override {
    return e.loadUnits(e.at.projected, e.places.projected(task.direction, task.time, row, gate, unit), unit);
  }
  Vec peephole(int64_t position) override {
    return e.loadUnits(e.at.peephole, (task.direction * 3 + position) * e.hidden + unit, unit);
  }
  void show(const Vec &x) override {
    e.storeUnits(x, e.at.sequence, e.places.sequence(task.direction, task.time, row, unit), unit);
  }
  Vec multiplyAdd(const Vec &x, const Vec &y, const Vec &sum) override { return e.multiplyAdd(x, y, sum); }
  Vec activation(ActivationAttr kind, const Vec &x) override {
    if (kind.getKind() == ActivationKind::sigmoid)
      return 1.0 / (1.0 + exp2Unlimited(x * -1.44269504f));
    if (kind.getKind() == ActivationKind::tanh)
      return 1.0 - 2.0 / (1.0 + exp2Unlimited(x * 2.88539008f));
    return RecurrentCell::activation(kind, x);
  }

  /// 2^x, which is infinite where exp2 alone is not to be asked: a gate that a state of infinity shuts is 0.
  Vec exp2Unlimited(const Vec &x) {
    if (e.lanes == 16)
      return exp2(k, x);
    Vec infinity = constantLike(x, Code::kInfinity);
    return select(x > constantLike(x, 126.0), infinity, exp2(k, x));
  }
  Index place(Index plane) { return e.places.state(plane, task.direction, row, unit); }

  RecurrentEmitter &e;
  const Task &task;
  Index row, unit;
};

//===----------------------------------------------------------------------===//
// Tiles
//===----------------------------------------------------------------------===//

int64_t RecurrentEmitter::tileRows(const RecurrentSpec::Sweep &sweep) {
  // 24 + 4 + 1 of 32 registers, 8 + 4 + 1 of 16.
  int64_t vectors = sweep.numGates * sweep.vectors;
  return std::max<int64_t>(1, (lanes == 16 ? 24 : 8) / vectors);
}

/// The gates of `height` rows and one panel: row-major, then by gate, then by
/// vector. Sums start at the projected input and run over k in order.
SmallVector<Vec> RecurrentEmitter::emitSums(const Task &task, unsigned number, Index panel, Index row, int64_t height) {
  const RecurrentSpec::Sweep &sweep = sweeps[number];
  int64_t vectors = sweep.numGates * sweep.vectors, width = spec.panelWidth(sweep);
  Index unit = panel * spec.panelUnits(sweep);
  Index source = number == 1 ? k.index(places.kPlaneReset) : task.parity;
  Vecs inits;
  SmallVector<Index> states;
  for (int64_t r = 0; r < height; ++r) {
    Index own = row + r;
    states.push_back(places.state(source, task.direction, own, k.index(0)));
    for (int64_t g = 0; g < sweep.numGates; ++g)
      for (int64_t v = 0; v < sweep.vectors; ++v) {
        Index first = unit + v * lanes;
        int64_t gate = sweep.firstGate + g;
        if (!spec.linearBeforeReset || gate != 2)
          inits.push_back(
              loadUnits(at.projected, places.projected(task.direction, task.time, own, gate, first), first));
        else if (spec.hasResetBias)
          inits.push_back(loadUnits(at.resetBias, task.direction * hidden + first, first));
        else
          inits.push_back(splat(0));
      }
  }
  Index slice = task.direction * spec.numPanels(sweep) + panel;
  Index panelAt = slice * (spec.panelShape(sweep)[1] * spec.panelShape(sweep)[2]);
  Products products{number, height, vectors, panelAt, states};
  if (spec.storage != PanelStorage::I8)
    return addProducts(products, k.index(0), k.index(hidden), inits);
  // Whole numbers are summed up group by group, then scaled.
  int64_t numGroups = spec.scaleShape(sweep)[1];
  Vecs none(inits.size(), splat(0));
  return k.loop(0, numGroups, 1, inits, [&](Index group, Vecs carried) {
    Index begin = group * spec.group, end = minimum(begin + spec.group, hidden);
    if (numGroups == 1)
      begin = k.index(0), end = k.index(hidden);
    Vecs sums = addProducts(products, begin, end, none);
    Index scaleAt = (slice * numGroups + group) * width;
    for (int64_t v = 0; v < vectors; ++v) {
      Vec scale = scales(number).vector(lanes, scaleAt + v * lanes);
      for (int64_t n = v; n < height * vectors; n += vectors)
        sums[n] = multiplyAdd(sums[n], scale, carried[n]);
    }
    return sums;
  });
}

/// `sums` and the products of rows [begin, end) of a panel with the states.
SmallVector<Vec> RecurrentEmitter::addProducts(const Products &of, Index begin, Index end, Vecs sums) {
  int64_t vectors = of.vectors, count = of.height * vectors, perStep = spec.rowsPerStep();
  bool isEven = hidden % 2 == 0 && spec.group % 2 == 0;
  // A fused multiply-add takes 4 cycles and two start in each: few sums are
  // split in two, for even and odd k.
  bool split = count < 8 && isEven;
  int64_t stride = split ? 2 : perStep;
  if (split)
    sums.append(count, splat(0));
  auto addRow = [&](MutableArrayRef<Vec> sums, Index row, int64_t part) {
    Index from = of.panelAt + row * (vectors * lanes);
    Vecs columns;
    for (int64_t v = 0; v < vectors; ++v)
      columns.push_back(loadWeights(of.sweep, from + v * lanes * perStep, part));
    for (int64_t r = 0; r < of.height; ++r) {
      Vec h = k.splat(at.states(of.states[r] + (row + part)), lanes);
      for (int64_t v = 0; v < vectors; ++v)
        sums[r * vectors + v] = multiplyAdd(h, columns[v], sums[r * vectors + v]);
    }
  };
  // Interleaved rows: both parts of the pair that begins at `row`.
  auto addStep = [&](MutableArrayRef<Vec> sums, Index row, int64_t rows) {
    for (int64_t u = 0; u < rows; ++u)
      addRow(split && u % 2 ? sums.drop_front(count) : sums, perStep == 2 ? row : row + u, perStep == 2 ? u : 0);
  };
  bool hasOdd = perStep == 2 && hidden % 2;
  sums = k.loop(begin, hasOdd ? k.index(hidden - 1) : end, stride, sums, [&](Index row, Vecs next) {
    addStep(next, row, stride);
    return next;
  });
  if (hasOdd)
    addStep(sums, k.index(hidden - 1), 1);
  if (split)
    for (int64_t n = 0; n < count; ++n)
      sums[n] = sums[n] + sums[count + n];
  sums.truncate(count);
  return sums;
}

/// Weights of one row as f32; of an interleaved pair, those of its `part`.
Vec RecurrentEmitter::loadWeights(unsigned sweep, Index offset, int64_t part) {
  return widened(panels(sweep).vector(lanes * spec.rowsPerStep(), offset), spec.storage, part);
}

void RecurrentEmitter::emitBlock(const Task &task, unsigned number, Index panel, Index row, int64_t height) {
  const RecurrentSpec::Sweep &sweep = sweeps[number];
  Vecs sums = emitSums(task, number, panel, row, height);
  Index unit = panel * spec.panelUnits(sweep);
  for (int64_t r = 0; r < height; ++r)
    for (int64_t v = 0; v < sweep.vectors; ++v) {
      Vecs gates;
      for (int64_t g = 0; g < sweep.numGates; ++g)
        gates.push_back(sums[(r * sweep.numGates + g) * sweep.vectors + v]);
      Cell(*this, task, row + r, unit + v * lanes).update(number, gates);
    }
}

/// One panel for all rows of the group, in blocks whose heights differ by one
/// at most.
void RecurrentEmitter::emitPanels(const Task &task, unsigned number, Index panel) {
  int64_t most = tileRows(sweeps[number]);
  Index blocks = ceilDiv(task.rows, most), divisor = maximum(blocks, 1);
  Index height = task.rows / divisor, extra = task.rows % divisor;
  // Of a group whose size is known only one height or two occur.
  int64_t known = getConstantIntValue(task.rows.value()).value_or(ShapedType::kDynamic);
  std::pair<int64_t, int64_t> heights = tileHeights(known, most);
  k.loop(0, blocks, 1, [&](Index block) {
    Index row = task.firstRow + (block * height + minimum(block, extra));
    k.match(height + toIndex(block < extra), heights.first, heights.second,
            [&](int64_t rows) { emitBlock(task, number, panel, row, rows); });
  });
}

} // namespace attn
