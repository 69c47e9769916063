#include "passes/kernels/gpu/GemmEmitter.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/Support/MathExtras.h"

// Products of few rows (or columns) and many of the other side, the matrix: as
// fast as its elements come from memory. Each lane takes a small part of the
// matrix in loads of 16 bytes, and adds its products with all rows; lanes of a
// warp lie side by side in lines of 128 bytes, the rest of them, the warps and
// blocks share the sum.

using namespace mlir;

namespace attn {

using Values = LaneBuilder::Values;

constexpr int64_t kWarp = 32, kProcessors = 132;
constexpr int64_t kRegisterThreads = 256; ///< which have as many registers as a thread can

/// Of those that have more than one element the innermost dimension of an operand, which then lie side by side.
static std::optional<unsigned> findContiguous(const GpuGemmSpec &spec, AffineMap map) {
  for (AffineExpr expr : llvm::reverse(map.getResults()))
    if (unsigned dim = cast<AffineDimExpr>(expr).getPosition(); spec.sizes[dim] != 1)
      return dim;
  return std::nullopt;
}

static int64_t bytesOf(MemRefType type) { return type.getElementTypeBitWidth() / 8; }

GpuGemmSpec::Lines::Lines(const GpuGemmSpec &spec, bool isFewLeft, int64_t rows) : isFewLeft(isFewLeft), rows(rows) {
  constexpr int64_t kLine = 128, kLoad = 16, kLoads = 4;
  MemRefType matrix = isFewLeft ? spec.right : spec.left;
  std::optional<unsigned> inner = findContiguous(spec, isFewLeft ? spec.rightMap : spec.leftMap);
  isDeep = inner && llvm::is_contained(spec.sums, *inner);
  int64_t width = kLoad / bytesOf(matrix), across = kLine / kLoad;
  isVector = inner && !llvm::is_contained(spec.batch, *inner) && !ShapedType::isDynamic(spec.sizes[*inner]) &&
             spec.sizes[*inner] % width == 0;
  laneSums = isDeep ? width : kLoads, laneColumns = isDeep ? kLoads : width;
  sumLanes = isDeep ? across : kWarp / across;

  auto guess = [&](ArrayRef<unsigned> dims, int64_t unknown) {
    constexpr int64_t kMany = 1 << 20;
    int64_t product = 1;
    for (unsigned dim : dims)
      product = std::min(kMany,
                         product * std::min(kMany, ShapedType::isDynamic(spec.sizes[dim]) ? unknown : spec.sizes[dim]));
    return product;
  };
  int64_t sums = guess(spec.sums, 1024), columns = guess(isFewLeft ? spec.columns : spec.rows, 64);
  int64_t batches = guess(spec.batch, 1), warpSums = sumLanes * laneSums;
  // More threads of a block cost less than more blocks, whose sums another launch adds, but must do with fewer
  // registers.
  int64_t kept = rows * laneColumns, most = kept <= 8 ? 32 : kept <= 32 ? 16 : 8;
  sumWarps = 8;
  while (sumWarps < most && 2 * sumWarps * warpSums <= sums &&
         llvm::divideCeil(columns, kWarp / sumLanes * laneColumns) * batches < kProcessors)
    sumWarps *= 2;
  while (sumWarps > 1 && sumWarps * warpSums >= 2 * sums)
    sumWarps /= 2, columnWarps *= 2;
  unroll = rows <= 4 ? 2 : 1;
  // So many that nothing is left over, if there are.
  for (int64_t n = sumWarps; columnWarps == 1 && n > sumWarps / 2; --n)
    if (sums % (n * warpSums * unroll) == 0) {
      sumWarps = n;
      break;
    }
  int64_t blocks = llvm::divideCeil(columns, tileColumns()) * batches, steps = sums / (sumWarps * warpSums);
  constexpr int64_t kMostSplits = 16, kFewSteps = 4;
  if (blocks < kProcessors && steps >= 2 * kFewSteps)
    splits = std::min({2 * kProcessors / blocks, steps / kFewSteps, kMostSplits});
}

namespace {

class GemvEmitter : public GpuGemmEmitter {
public:
  GemvEmitter(OpBuilder &b, Location loc, const GpuGemmSpec &spec)
      : GpuGemmEmitter(b, loc, spec, spec.tile), lines(*spec.lines), few(lines.isFewLeft ? 0 : 1) {}

  void emitLaunches(ValueRange buffers, Value scratch);

private:
  using Fragment = SmallVector<Values>;

  const Side &rows() const { return sides[few]; }
  const Side &matrix() const { return sides[1 - few]; }
  void placeThread();
  Values sumOffsets(const Side &side, Value depth, int64_t count);
  Fragment readMatrix(Value depth, Value end);
  Fragment readRows(Value depth, Value end);
  void addProducts(Values &sums, Value depth, Value end = {});
  Values sumUp(Value begin, Value end);
  void share(const Values &sums);
  void finish(Value split, Value scratch);
  void mergeSplits(Value scratch);
  void store(Value sum, Value row, Value column);
  Value placeInScratch(Value batch, Value split, Value row, Value column);

  const GpuGemmSpec::Lines lines;
  const unsigned few;
  bool areRowsVectors = false;                ///< contiguous along the sum
  bool isOneStretch = false;                  ///< a thread's part lies in one row of the last loop of the sum
  bool isWhole = false;                       ///< no part is cut off by the end of the sum
  Value batch, firstColumn, column, firstSum; ///< of the block; of the thread, within the block's
  Value sumWarp;
  Values rowOffsets, columnOffsets;
};

void GemvEmitter::emitLaunches(ValueRange buffers, Value scratch) {
  prepare(buffers);
  unsigned last = spec.sums.back();
  int64_t lastSize = spec.sizes[last];
  isWhole = !ShapedType::isDynamic(lastSize) && lastSize % lines.laneSums == 0;
  isOneStretch = isWhole || spec.sums.size() == 1;
  areRowsVectors = isWhole && findContiguous(spec, rows().map) == last;
  {
    OpBuilder::InsertionGuard guard(k.b);
    Value tiles = k.ceilDiv(matrix().extent, lines.tileColumns()), splits = k.index(lines.splits);
    Value perBatch = k.mul(tiles, splits);
    shared = k.launch(k.mul(perBatch, product(spec.batch)), lines.threads(),
                      {lines.sumWarps * lines.rows * lines.tileColumns()})[0];
    if (lines.threads() > kRegisterThreads)
      k.setResidentBlocks(1);
    batch = k.div(k.block, perBatch);
    batchIndices = delinearize(k, batch, sizesOf(spec.batch));
    Value position = k.rem(k.block, perBatch), split = k.div(position, tiles);
    firstColumn = k.mul(k.rem(position, tiles), lines.tileColumns());
    placeThread();
    Value begin = k.index(0), end = numSums;
    if (lines.splits > 1) {
      Value stretch = k.mul(k.ceilDiv(numSums, lines.splits * lines.stepSums()), lines.stepSums());
      begin = k.min(k.mul(split, stretch), numSums);
      end = k.min(k.add(begin, stretch), numSums);
    }
    share(sumUp(begin, end));
    finish(split, scratch);
  }
  if (lines.splits > 1)
    mergeSplits(scratch);
}

/// Which part of the matrix is a thread's, and where it and the rows begin. What is not there is another's:
/// those sums are not stored.
void GemvEmitter::placeThread() {
  Value lane = k.rem(k.thread, k.index(kWarp)), warp = k.div(k.thread, k.index(kWarp));
  // Lanes side by side read what is side by side.
  Value across = k.index(lines.isDeep ? lines.sumLanes : kWarp / lines.sumLanes);
  Value minor = k.rem(lane, across), major = k.div(lane, across);
  Value sumLane = lines.isDeep ? minor : major, columnLane = lines.isDeep ? major : minor;
  sumWarp = k.rem(warp, k.index(lines.sumWarps));
  Value columnWarp = k.div(warp, k.index(lines.sumWarps));
  firstSum = k.mul(k.add(k.mul(sumWarp, lines.sumLanes), sumLane), lines.laneSums);
  column = k.mul(k.add(k.mul(columnWarp, kWarp / lines.sumLanes), columnLane), lines.laneColumns);

  auto offsetAt = [&](const Side &side, Value at) {
    return k.add(offsetOf(side, spec.batch, batchIndices),
                 offsetOf(side, side.outer, delinearize(k, at, sizesOf(side.outer))));
  };
  bool isGroup = lines.isVector && !lines.isDeep;
  Value first = k.add(firstColumn, column);
  for (int64_t n = 0; n < (isGroup ? 1 : lines.laneColumns); ++n) {
    Value last = k.sub(matrix().extent, k.index(isGroup ? lines.laneColumns : 1));
    columnOffsets.push_back(offsetAt(matrix(), k.min(k.add(first, n), last)));
  }
  Value last = k.sub(rows().extent, k.index(1));
  for (int64_t n = 0; n < lines.rows; ++n)
    rowOffsets.push_back(offsetAt(rows(), k.min(k.index(n), last)));
}

/// Of an operand the offsets of `count` places of the sum, from `depth` on.
Values GemvEmitter::sumOffsets(const Side &side, Value depth, int64_t count) {
  Values offsets;
  for (int64_t n = 0; n < count; ++n)
    offsets.push_back(isOneStretch && n
                          ? k.add(offsets[0], k.mul(side.strides[spec.sums.back()], n))
                          : offsetOf(side, spec.sums, delinearize(k, k.add(depth, n), sizesOf(spec.sums))));
  return offsets;
}

/// The thread's part of the matrix, [column][place of the sum]; zeros from `end` on, if given.
GemvEmitter::Fragment GemvEmitter::readMatrix(Value depth, Value end) {
  Fragment fragment(lines.laneColumns, Values(lines.laneSums));
  Values offsets = sumOffsets(matrix(), depth, lines.laneSums);
  auto isInside = [&](int64_t sum) { return k.less(k.add(depth, sum), end); };
  auto place = [&](Value base, int64_t sum) {
    Value offset = k.add(base, offsets[sum]);
    return end ? k.select(isInside(sum), offset, k.index(0)) : offset;
  };
  for (int64_t n = 0; n < lines.laneColumns; ++n)
    for (int64_t sum = 0; sum < lines.laneSums; ++sum) {
      bool isRead = !lines.isVector || (lines.isDeep ? sum : n) == 0;
      if (isRead && lines.isVector && lines.isDeep)
        fragment[n] = k.loadWide(matrix().flat, place(columnOffsets[n], 0), lines.laneSums);
      else if (isRead && lines.isVector)
        for (auto [column, x] :
             llvm::enumerate(k.loadWide(matrix().flat, place(columnOffsets[0], sum), lines.laneColumns)))
          fragment[column][sum] = x;
      else if (isRead)
        fragment[n][sum] = k.loadWide(matrix().flat, place(columnOffsets[n], sum), 1)[0];
    }
  if (end)
    for (Values &sums : fragment)
      for (auto [sum, x] : llvm::enumerate(sums))
        x = k.select(isInside(sum), x, k.scalar(0));
  return fragment;
}

/// The same of the rows, [row][place of the sum].
GemvEmitter::Fragment GemvEmitter::readRows(Value depth, Value end) {
  Fragment fragment(lines.rows);
  Values offsets = sumOffsets(rows(), depth, lines.laneSums);
  for (auto [row, sums] : llvm::enumerate(fragment))
    for (int64_t sum = 0; sum < lines.laneSums; sum += areRowsVectors ? lines.laneSums : 1) {
      Value offset = k.add(rowOffsets[row], offsets[sum]);
      Value isInside = end ? k.less(k.add(depth, sum), end) : Value();
      if (end)
        offset = k.select(isInside, offset, k.index(0));
      for (Value x : k.loadWide(rows().flat, offset, areRowsVectors ? lines.laneSums : 1))
        sums.push_back(end ? k.select(isInside, x, k.scalar(0)) : x);
    }
  return fragment;
}

void GemvEmitter::addProducts(Values &sums, Value depth, Value end) {
  Fragment left = readRows(depth, end), right = readMatrix(depth, end);
  for (int64_t place = 0; place < lines.laneSums; ++place)
    for (int64_t row = 0; row < lines.rows; ++row)
      for (int64_t n = 0; n < lines.laneColumns; ++n) {
        Value &sum = sums[row * lines.laneColumns + n];
        sum = k.fma(left[row][place], right[n][place], sum);
      }
}

/// The thread's sums, [row][column], over its part of [begin, end).
Values GemvEmitter::sumUp(Value begin, Value end) {
  Values zeros(lines.rows * lines.laneColumns, k.scalar(0));
  int64_t step = lines.stepSums();
  Value whole = k.add(begin, k.floorTo(k.sub(end, begin), lines.unroll * step));
  Values sums = k.loop(begin, whole, lines.unroll * step, zeros, [&](Value at, ValueRange carried) {
    Values next(carried);
    for (int64_t n = 0; n < lines.unroll; ++n)
      addProducts(next, k.add(k.add(at, n * step), firstSum));
    return next;
  });
  return k.loop(whole, end, step, sums, [&](Value at, ValueRange carried) {
    Values next(carried);
    Value depth = k.add(at, firstSum);
    auto add = [&](Value last) {
      addProducts(next, depth, last);
      return next;
    };
    return isWhole
               ? k.branch(
                     k.less(depth, end), carried.getTypes(), [&] { return add({}); }, [&] { return Values(carried); })
               : add(end);
  });
}

/// Sums of warps to shared memory, [warp of the sum][row][column of the block].
void GemvEmitter::share(const Values &sums) {
  Values total;
  int64_t distance = lines.isDeep ? 1 : kWarp / lines.sumLanes;
  for (Value sum : sums)
    total.push_back(k.acrossThreads(sum, lines.sumLanes, [&](Value x, Value y) { return k.addf(x, y); }, distance));
  Value isFirst = k.less(k.rem(firstSum, k.index(lines.sumLanes * lines.laneSums)), k.index(1));
  k.branch(isFirst, [&] {
    for (int64_t row = 0; row < lines.rows; ++row)
      for (int64_t n = 0; n < lines.laneColumns; n += 4) {
        Value place = k.mul(k.add(k.mul(sumWarp, lines.rows), row), lines.tileColumns());
        k.store4(ArrayRef(total).slice(row * lines.laneColumns + n, 4), shared, k.add(k.add(place, column), n));
      }
  });
  k.barrier();
}

/// Adds the warps' sums, in their order, and stores the results, or parts of them.
void GemvEmitter::finish(Value split, Value scratch) {
  int64_t count = lines.rows * lines.tileColumns();
  k.loop(k.thread, k.index(count), lines.threads(), [&](Value at) {
    Value row = k.div(at, k.index(lines.tileColumns()));
    Value columnAt = k.add(firstColumn, k.rem(at, k.index(lines.tileColumns())));
    k.branch(k.both(k.less(row, rows().extent), k.less(columnAt, matrix().extent)), [&] {
      Values parts;
      for (int64_t n = 0; n < lines.sumWarps; ++n)
        parts.push_back(k.load(shared, k.add(at, n * count)));
      Value sum = k.tree(parts, [&](Value x, Value y) { return k.addf(x, y); });
      if (lines.splits == 1)
        return store(sum, row, columnAt);
      memref::StoreOp::create(k.b, k.loc, sum, scratch, placeInScratch(batch, split, row, columnAt));
    });
  });
}

Value GemvEmitter::placeInScratch(Value batch, Value split, Value row, Value column) {
  Value line = k.add(k.mul(k.add(k.mul(batch, lines.splits), split), lines.rows), row);
  return k.add(k.mul(line, matrix().extent), column);
}

/// A launch with a thread for each result.
void GemvEmitter::mergeSplits(Value scratch) {
  OpBuilder::InsertionGuard guard(k.b);
  constexpr int64_t kThreads = 128;
  Value results = k.mul(rows().extent, matrix().extent), count = k.mul(results, product(spec.batch));
  k.launch(k.ceilDiv(count, kThreads), kThreads, {});
  Value at = k.add(k.mul(k.block, kThreads), k.thread);
  k.branch(k.less(at, count), [&] {
    Value batchAt = k.div(at, results), within = k.rem(at, results);
    Value row = k.div(within, matrix().extent), columnAt = k.rem(within, matrix().extent);
    batchIndices = delinearize(k, batchAt, sizesOf(spec.batch));
    Values parts;
    for (int64_t n = 0; n < lines.splits; ++n)
      parts.push_back(k.load(scratch, placeInScratch(batchAt, k.index(n), row, columnAt)));
    store(k.tree(parts, [&](Value x, Value y) { return k.addf(x, y); }), row, columnAt);
  });
}

void GemvEmitter::store(Value sum, Value row, Value columnAt) {
  startLoops();
  placeLoops(rows().outer, delinearize(k, row, sizesOf(rows().outer)));
  placeLoops(matrix().outer, delinearize(k, columnAt, sizesOf(matrix().outer)));
  Values at = resultIndices();
  memref::StoreOp::create(k.b, k.loc, applyEpilogue(sum, at), arguments.back(), at);
}

/// The loops of each kind in the order in which the matrix has them.
GpuGemmSpec inOrderOfMatrix(GpuGemmSpec spec) {
  AffineMap map = spec.lines->isFewLeft ? spec.rightMap : spec.leftMap;
  for (SmallVector<unsigned> *dims : {&spec.sums, spec.lines->isFewLeft ? &spec.columns : &spec.rows})
    llvm::stable_sort(*dims, [&](unsigned x, unsigned y) {
      // Those of one element first: the last one is contiguous then.
      auto key = [&](unsigned dim) {
        return std::pair(spec.sizes[dim] != 1, *map.getResultPosition(getAffineDimExpr(dim, map.getContext())));
      };
      return key(x) < key(y);
    });
  return spec;
}

} // namespace

void emitGemv(OpBuilder &builder, Location loc, const GpuGemmSpec &spec, ValueRange buffers, Value scratch) {
  GpuGemmSpec ordered = inOrderOfMatrix(spec);
  GemvEmitter(builder, loc, ordered).emitLaunches(buffers, scratch);
}

} // namespace attn
