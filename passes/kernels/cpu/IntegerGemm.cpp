#include "passes/kernels/cpu/IntegerGemmEmitter.h"
#include "passes/kernels/cpu/PackRows.h"

using namespace mlir;

namespace attn {

namespace {

constexpr int64_t kLineBytes = 64;
/// How far ahead of it lines are asked for where one block of rows reads all panels: a stream from memory.
constexpr int64_t kStreamAhead = 4096;

} // namespace

void IntegerGemmEmitter::takeArguments(KernelFunction &f) {
  a = f.buffer({spec.m, spec.k}, i8);
  if (spec.hasTiles)
    packedRows = f.buffer(PackRowsSpec{spec.m, spec.k}.shape(), i8);
  if (spec.hasTiles && spec.columnZero != ZeroPoint::None)
    rowSums = f.buffer({spec.m}, i32);
  panels = f.buffer(spec.panelShape(), i8);
  columnSums = f.buffer(spec.sumShape(), i32);
  if (spec.ordersSteps())
    order = f.buffer({spec.panelShape()[0], spec.stepOrder().size()}, spec.stepOrder().element(k.b.getContext()));
  if (spec.hasRowZero)
    rowZero = convertUnsigned(f.buffer({}, i8)(), i32);
  if (spec.columnZero == ZeroPoint::Scalar)
    columnZero = f.buffer({}, i8);
  else if (spec.columnZero == ZeroPoint::ByColumn)
    columnZero = f.buffer({spec.n}, i8);
  result.takeOperands(f, spec.m);
  c = f.buffer({spec.m, spec.n}, spec.resultType(k.b.getContext()));
  result.takeResult(c);
}

void IntegerGemmEmitter::emit() {
  flatPanels = panels.flat();
  Index tasks = countTasks(a, panels, c);
  depth = a.dim(1);
  panelBytes = panels.dim(1) * stepBytes;
  if (spec.hasTiles) {
    Mask hasTiles = k.asMask(HasTilesOp::create(k.b, k.loc, k.b.getI1Type()));
    hasTiles = hasTiles & (rows >= IntegerGemmSpec::kFewestTileRows) & (depth > 0);
    emitTileTasks(hasTiles);
    tasks = select(hasTiles, k.index(0), tasks);
  }
  k.parallel(tasks, [&](Index task) { emitTask(task); });
}

void IntegerGemmEmitter::emitTask(Index task) {
  scratch = k.scratch({spec.tileRows, width}, i32);
  takeBlock(task);
  // The blocks of a panel together ask for the next one; a single block for what it will read itself.
  prefetchStep = ceilDiv(k.index(stepBytes), inChunk);
  Index next = minimum(panelAt + 1, allPanels - 1);
  prefetchAt = next * panelBytes + at * prefetchStep * panels.dim(1);
  prefetchAt = select(blocks == 1, panelAt * panelBytes + kStreamAhead, prefetchAt);
  if (spec.m == 0)
    return;
  auto [least, most] = tileHeights(spec.m, spec.tileRows);
  k.match(tileHeight, least, most, [&](int64_t height) { emitTile(height); });
  emitRows(row, k.index(0), tileHeight);
}

Vecs IntegerGemmEmitter::loadRight(const Index &step) {
  return panels.vectors(vectors, spec.lanes * group, panelAt, step);
}

/// Adds the products of whole steps `from`..`to`, or of those that stand there in the order.
IntegerGemmEmitter::Sums IntegerGemmEmitter::addSteps(const Sums &init, int64_t height, const Index &from,
                                                      const Index &to, Steps steps) {
  int64_t together = steps == Steps::Double ? 2 : 1;
  Sums result = k.loop(from, to, together, init, [&](Index number, Vecs sums, Index at) {
    SmallVector<Index> taken;
    SmallVector<Vecs> right;
    for (int64_t n = 0; n < together; ++n) {
      taken.push_back(steps == Steps::All ? number : toIndex(order(panelAt, number + n + StepOrder::kCounts)));
      right.push_back(loadRight(taken.back()));
      for (int64_t byte = 0; byte < stepBytes; byte += kLineBytes)
        flatPanels.prefetch(at + byte);
      at = at + prefetchStep;
    }
    if (steps == Steps::Double || steps == Steps::Narrow)
      sums = multiplyNarrow(sums, height, taken, right);
    else
      sums = multiply(sums, height, right[0], [&](int64_t r) { return rowBytes(row + r, taken[0] * group, group); });
    return std::tuple(sums, at);
  });
  markLong(k.b);
  return result;
}

/// The sums of `height` rows and one panel, to the scratch.
void IntegerGemmEmitter::emitTile(int64_t height) {
  int64_t tail = ShapedType::isDynamic(spec.k) ? 0 : spec.k % group;
  Index whole = depth / group;
  Sums carried(Vecs(height * vectors, sumsOf(0)), prefetchAt);
  // A single row waits for the panel's bytes, however they are multiplied. Of more rows narrow steps take 0.69 of the
  // time of wide ones (117 -> 170 GOP/s, Zen 3), doubles three multiplications where narrow ones have four.
  if (spec.ordersSteps() && height > 1) {
    Index none = k.index(0), doubles = toIndex(order(panelAt, 0)), narrow = doubles + toIndex(order(panelAt, 1));
    carried = addSteps(carried, height, none, doubles, Steps::Double);
    carried = addSteps(carried, height, doubles, narrow, Steps::Narrow);
    carried = addSteps(carried, height, narrow, whole, Steps::Wide);
  } else {
    carried = addSteps(carried, height, k.index(0), whole, Steps::All);
  }
  Vecs &sums = std::get<0>(carried);
  // The panel has zeros there, A has not.
  if (tail)
    sums = multiply(sums, height, loadRight(whole), [&](int64_t r) { return rowBytes(row + r, whole * group, tail); });
  if (ShapedType::isDynamic(spec.k) && group > 1)
    sums = k.loop(whole, ceilDiv(depth, group), 1, sums, [&](Index step, Vecs sums) {
      Index first = step * group;
      return multiply(sums, height, loadRight(step),
                      [&](int64_t r) { return lastBytes(row + r, first, depth - first); });
    });
  for (int64_t r = 0; r < height; ++r)
    scratch.setVectors(ArrayRef(sums).slice(r * vectors, vectors), r);
}

/// The sums + the products of a step's bytes, those of `left` in every lane.
Vecs IntegerGemmEmitter::multiply(Vecs sums, int64_t height, const Vecs &right, function_ref<Vec(int64_t)> left) {
  SmallVector<Vecs> factors;
  for (const Vec &columns : right)
    factors.push_back(bytes.signedFactors(columns));
  for (int64_t r = 0; r < height; ++r) {
    Vecs row = bytes.unsignedFactors(left(r));
    for (auto [v, columns] : llvm::enumerate(factors)) {
      Vec &sum = sums[r * right.size() + v];
      sum = bytes.add(sum, row, columns);
    }
  }
  return sums;
}

/// The same of one step or of two, whose products fit 16 bits together.
Vecs IntegerGemmEmitter::multiplyNarrow(Vecs sums, int64_t height, ArrayRef<Index> steps, ArrayRef<Vecs> right) {
  for (int64_t r = 0; r < height; ++r) {
    Vecs left;
    for (const Index &step : steps)
      left.push_back(rowBytes(row + r, step * group, group));
    for (int64_t v = 0; v < vectors; ++v) {
      Vecs columns;
      for (const Vecs &ofStep : right)
        columns.push_back(ofStep[v]);
      Vec &sum = sums[r * vectors + v];
      sum = bytes.addNarrow(sum, left, columns);
    }
  }
  return sums;
}

/// `count` bytes of A, at most `group`, with zeros behind them, in every lane.
Vec IntegerGemmEmitter::rowBytes(Index row, Index first, int64_t count) {
  if (group == 1)
    return k.splat(a(row, first), spec.lanes);
  Type word = k.b.getIntegerType(8 * group);
  Num bits = k.number(word, int64_t(0));
  if (count == group)
    bits = extract(bitcast(a.vector(group, row, first), word), 0);
  else
    for (int64_t n = 0; n < count; ++n)
      bits = bits | (convertUnsigned(a(row, first + n), word) << 8 * n);
  return bitcast(k.splat(bits, spec.lanes), i8);
}

/// The same of a number of bytes that the run knows, one at least.
Vec IntegerGemmEmitter::lastBytes(Index row, Index first, Index count) {
  Type word = k.b.getIntegerType(8 * group);
  Num bits = k.number(word, int64_t(0));
  for (int64_t n = 0; n < group; ++n) {
    Num byte = convertUnsigned(a(row, first + minimum(count - 1, n)), word) << 8 * n;
    bits = bits | select(count > n, byte, k.number(word, int64_t(0)));
  }
  return bitcast(k.splat(bits, spec.lanes), i8);
}

/// The sum of a row of A.
Num IntegerGemmEmitter::rowSum(Index row) {
  int64_t step = spec.lanes * group;
  Index whole = depth / step * step;
  Vec ones = k.splat(k.number(i8, int64_t(1)), step);
  auto add = [&](const Vec &sum, const Vec &of) {
    return spec.dot == ByteDot::Single ? bytes.add(sum, {of}, {ones}) : bytes.addNarrow(sum, {of}, {ones});
  };
  Vec sum =
      k.loop(0, whole, step, sumsOf(0), [&](Index first, Vec sum) { return add(sum, a.vector(step, row, first)); });
  markLong(k.b);
  if (ShapedType::isDynamic(spec.k) || spec.k % step)
    sum = add(sum, a.first(depth - whole, step, row, whole));
  return sumOfLanes(sum);
}

/// Corrects `count` rows of sums, which stand in the scratch from row `place` on, by the zero points, applies the
/// epilogue and stores them from row `first` on.
void IntegerGemmEmitter::emitRows(const Index &first, const Index &place, const Index &count) {
  result.forColumns(panel, [&](const PanelColumns &columns) {
    int64_t used = result.vectorsOf(columns);
    Vecs corrections, zeros;
    for (int64_t v = 0; v < used; ++v) {
      int64_t offset = v * spec.lanes;
      if (spec.hasRowZero)
        corrections.push_back(rowZero * columnSums.vector(spec.lanes, panelAt, offset));
      if (spec.columnZero == ZeroPoint::Scalar)
        zeros.push_back(k.splat(convert(columnZero(), i32), spec.lanes));
      else if (spec.columnZero == ZeroPoint::ByColumn)
        zeros.push_back(convert(result.load(columnZero, columns, v, panel * width + offset), i32));
    }
    k.loop(0, count, 1, [&](Index r) {
      Index at = first + r;
      Vec difference;
      if (spec.columnZero != ZeroPoint::None) { // K za - sum of the row
        Num all = spec.hasRowZero ? rowZero * toNum(depth, i32) : k.i32(0);
        difference = k.splat(all - (hasRowSums ? rowSums(at) : rowSum(at)), spec.lanes);
      }
      for (int64_t v = 0; v < used; ++v) {
        Vec sum = scratch.vector(spec.lanes, place + r, v * spec.lanes);
        if (spec.hasRowZero)
          sum = sum - corrections[v];
        if (spec.columnZero != ZeroPoint::None)
          sum = sum + zeros[v] * difference;
        result.store(sum, at, panel, columns, v);
      }
    });
  });
}

func::FuncOp buildIntegerGemm(OpBuilder &builder, Location loc, const IntegerGemmSpec &spec) {
  assert(canBuildIntegerGemm(spec));
  KernelFunction f(builder, loc, spec.symbol());
  f.function.setPrivate();
  IntegerGemmEmitter(f, spec).emit();
  return f.function;
}

} // namespace attn
