#include "passes/kernels/gpu/GemmEmitter.h"

#include "llvm/Support/MathExtras.h"

// Products of few rows (or columns) and many of the other side, the matrix: as
// fast as its elements come from memory. Each lane takes a small part of the
// matrix in loads of 16 bytes, and adds its products with all rows; lanes of a
// warp lie side by side in lines of 128 bytes, the rest of them, the warps and
// blocks share the sum.

using namespace mlir;

namespace attn {

constexpr int64_t kWarp = 32;

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
  // Sixteen numbers of a byte, for several rows, take more registers than there are.
  int64_t width = std::min<int64_t>(kLoad / bytesOf(matrix), rows > 1 ? 8 : kLoad), across = kLine / kLoad;
  isVector = inner && !llvm::is_contained(spec.batch, *inner) && !ShapedType::isDynamic(spec.sizes[*inner]) &&
             spec.sizes[*inner] % width == 0;
  laneSums = isDeep ? width : kLoads, laneColumns = isDeep ? kLoads : width;
  sumLanes = isDeep ? across : kWarp / across;

  int64_t sums = spec.guessProduct(spec.sums, 1024);
  int64_t columns = spec.guessProduct(isFewLeft ? spec.columns : spec.rows, 64);
  int64_t batches = spec.guessProduct(spec.batch, 1);
  auto countBlocks = [&] { return llvm::divideCeil(columns, kWarp / sumLanes * laneColumns) * batches; };
  // Where whole lines leave processors without work, the lanes of a warp take narrower pieces of more rows, down to a
  // sector of 32 bytes, or longer ones of fewer columns.
  constexpr int64_t kSector = 32;
  int64_t mostLanes = isDeep ? kWarp : kWarp / (kSector / kLoad);
  while (sumLanes < mostLanes && 2 * sumLanes * laneSums <= sums && countBlocks() < kProcessors)
    sumLanes *= 2;
  int64_t warpSums = sumLanes * laneSums;
  // More threads of a block cost less than more blocks, whose sums another launch adds, but must do with fewer
  // registers.
  int64_t kept = rows * laneColumns, most = kept <= 8 ? 32 : kept <= 32 ? 16 : 8;
  sumWarps = 8;
  while (sumWarps < most && 2 * sumWarps * warpSums <= sums && countBlocks() < kProcessors)
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

  void emitLaunches(ArrayRef<Buffer> buffers, const Buffer &scratch);

private:
  using Fragment = SmallVector<Nums>;

  const Side &rows() const { return sides[few]; }
  const Side &matrix() const { return sides[1 - few]; }
  void placeThread();
  Indices sumOffsets(const Side &side, Index depth, int64_t count);
  Fragment readMatrix(Index depth, Index end);
  Fragment readRows(Index depth, Index end);
  void addProducts(Nums &sums, Index depth, Index end = {});
  Nums sumUp(Index begin, Index end);
  void share(const Nums &sums);
  void finish(Index split, const Buffer &scratch);
  void mergeSplits(const Buffer &scratch);
  void store(Num sum, Index row, Index column);
  Index placeInScratch(Index batch, Index split, Index row, Index column);

  const GpuGemmSpec::Lines lines;
  const unsigned few;
  bool areRowsVectors = false;                ///< contiguous along the sum
  bool isOneStretch = false;                  ///< a thread's part lies in one row of the last loop of the sum
  bool isWhole = false;                       ///< no part is cut off by the end of the sum
  Index batch, firstColumn, column, firstSum; ///< of the block; of the thread, within the block's
  Index sumWarp;
  Indices rowOffsets, columnOffsets;
};

void GemvEmitter::emitLaunches(ArrayRef<Buffer> buffers, const Buffer &scratch) {
  prepare(buffers);
  unsigned last = spec.sums.back();
  int64_t lastSize = spec.sizes[last];
  isWhole = !ShapedType::isDynamic(lastSize) && lastSize % lines.laneSums == 0;
  isOneStretch = isWhole || spec.sums.size() == 1;
  areRowsVectors = isWhole && findContiguous(spec, rows().map) == last;
  {
    OpBuilder::InsertionGuard guard(k.b);
    Index tiles = ceilDiv(matrix().extent, lines.tileColumns()), splits = k.index(lines.splits);
    Index perBatch = tiles * splits;
    shared = k.launch(perBatch * product(spec.batch), lines.threads(),
                      {lines.sumWarps * lines.rows * lines.tileColumns()})[0];
    k.setResidentBlocks(1); // else ptxas waits for some loads before it asks for the others, to save registers
    batch = k.block / perBatch;
    batchIndices = delinearize(batch, sizesOf(spec.batch));
    Index position = k.block % perBatch, split = position / tiles;
    firstColumn = position % tiles * lines.tileColumns();
    placeThread();
    Index begin = k.index(0), end = numSums;
    if (lines.splits > 1) {
      Index stretch = ceilDiv(numSums, lines.splits * lines.stepSums()) * lines.stepSums();
      begin = minimum(split * stretch, numSums);
      end = minimum(begin + stretch, numSums);
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
  Index lane = k.thread % kWarp, warp = k.thread / kWarp;
  // Lanes side by side read what is side by side.
  Index across = k.index(lines.isDeep ? lines.sumLanes : kWarp / lines.sumLanes);
  Index minor = lane % across, major = lane / across;
  Index sumLane = lines.isDeep ? minor : major, columnLane = lines.isDeep ? major : minor;
  sumWarp = warp % lines.sumWarps;
  Index columnWarp = warp / lines.sumWarps;
  firstSum = (sumWarp * lines.sumLanes + sumLane) * lines.laneSums;
  column = (columnWarp * (kWarp / lines.sumLanes) + columnLane) * lines.laneColumns;

  auto offsetAt = [&](const Side &side, Index at) {
    return offsetOf(side, spec.batch, batchIndices) + offsetOf(side, side.outer, delinearize(at, sizesOf(side.outer)));
  };
  bool isGroup = lines.isVector && !lines.isDeep;
  Index first = firstColumn + column;
  for (int64_t n = 0; n < (isGroup ? 1 : lines.laneColumns); ++n) {
    Index last = matrix().extent - (isGroup ? lines.laneColumns : 1);
    columnOffsets.push_back(offsetAt(matrix(), minimum(first + n, last)));
  }
  Index last = rows().extent - 1;
  for (int64_t n = 0; n < lines.rows; ++n)
    rowOffsets.push_back(offsetAt(rows(), minimum(k.index(n), last)));
}

/// Of an operand the offsets of `count` places of the sum, from `depth` on.
Indices GemvEmitter::sumOffsets(const Side &side, Index depth, int64_t count) {
  Indices offsets;
  for (int64_t n = 0; n < count; ++n)
    offsets.push_back(isOneStretch && n ? offsets[0] + side.strides[spec.sums.back()] * n
                                        : offsetOf(side, spec.sums, delinearize(depth + n, sizesOf(spec.sums))));
  return offsets;
}

/// The thread's part of the matrix, [column][place of the sum]; zeros from `end` on, if given.
GemvEmitter::Fragment GemvEmitter::readMatrix(Index depth, Index end) {
  Fragment fragment(lines.laneColumns, Nums(lines.laneSums));
  Indices offsets = sumOffsets(matrix(), depth, lines.laneSums);
  auto isInside = [&](int64_t sum) { return depth + sum < end; };
  auto place = [&](Index base, int64_t sum) {
    Index offset = base + offsets[sum];
    return end.value() ? select(isInside(sum), offset, k.index(0)) : offset;
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
  if (end.value())
    for (Nums &sums : fragment)
      for (auto [sum, x] : llvm::enumerate(sums))
        x = select(isInside(sum), x, k.f32(0));
  return fragment;
}

/// The same of the rows, [row][place of the sum].
GemvEmitter::Fragment GemvEmitter::readRows(Index depth, Index end) {
  Fragment fragment(lines.rows);
  Indices offsets = sumOffsets(rows(), depth, lines.laneSums);
  for (auto [row, sums] : llvm::enumerate(fragment))
    for (int64_t sum = 0; sum < lines.laneSums; sum += areRowsVectors ? lines.laneSums : 1) {
      Index offset = rowOffsets[row] + offsets[sum];
      Mask isInside = end.value() ? depth + sum < end : Mask();
      if (end.value())
        offset = select(isInside, offset, k.index(0));
      for (Num x : k.loadWide(rows().flat, offset, areRowsVectors ? lines.laneSums : 1))
        sums.push_back(end.value() ? select(isInside, x, k.f32(0)) : x);
    }
  return fragment;
}

void GemvEmitter::addProducts(Nums &sums, Index depth, Index end) {
  Fragment left = readRows(depth, end), right = readMatrix(depth, end);
  for (int64_t place = 0; place < lines.laneSums; ++place)
    for (int64_t row = 0; row < lines.rows; ++row)
      for (int64_t n = 0; n < lines.laneColumns; ++n) {
        Num &sum = sums[row * lines.laneColumns + n];
        sum = fma(left[row][place], right[n][place], sum);
      }
}

/// The thread's sums, [row][column], over its part of [begin, end).
Nums GemvEmitter::sumUp(Index begin, Index end) {
  Nums zeros(lines.rows * lines.laneColumns, k.f32(0));
  int64_t step = lines.stepSums();
  Index whole = begin + floorTo(end - begin, lines.unroll * step);
  Nums sums = k.loop(begin, whole, lines.unroll * step, zeros, [&](Index at, Nums next) {
    for (int64_t n = 0; n < lines.unroll; ++n)
      addProducts(next, at + n * step + firstSum);
    return next;
  });
  return k.loop(whole, end, step, sums, [&](Index at, Nums now) {
    Index depth = at + firstSum;
    auto added = [&](Index last) {
      Nums next = now;
      addProducts(next, depth, last);
      return next;
    };
    return isWhole ? k.choose(depth < end, [&] { return added({}); }, [&] { return now; }) : added(end);
  });
}

/// Sums of warps to shared memory, [warp of the sum][row][column of the block].
void GemvEmitter::share(const Nums &sums) {
  Nums total;
  int64_t distance = lines.isDeep ? 1 : kWarp / lines.sumLanes;
  for (const Num &sum : sums)
    total.push_back(k.acrossThreads(sum, lines.sumLanes, [](Num x, Num y) { return x + y; }, distance));
  Mask isFirst = firstSum % (lines.sumLanes * lines.laneSums) < 1;
  k.when(isFirst, [&] {
    for (int64_t row = 0; row < lines.rows; ++row)
      for (int64_t n = 0; n < lines.laneColumns; n += 4) {
        Index place = (sumWarp * lines.rows + row) * lines.tileColumns();
        k.store4(ArrayRef(total).slice(row * lines.laneColumns + n, 4), shared, place + column + n);
      }
  });
  k.barrier();
}

/// Adds the warps' sums, in their order, and stores the results, or parts of them.
void GemvEmitter::finish(Index split, const Buffer &scratch) {
  int64_t count = lines.rows * lines.tileColumns();
  k.loop(k.thread, count, lines.threads(), [&](Index at) {
    Index row = at / lines.tileColumns();
    Index columnAt = firstColumn + at % lines.tileColumns();
    k.when((row < rows().extent) & (columnAt < matrix().extent), [&] {
      Nums parts;
      for (int64_t n = 0; n < lines.sumWarps; ++n)
        parts.push_back(shared(at + n * count));
      Num sum = tree<Num>(parts, [](Num x, Num y) { return x + y; });
      if (lines.splits == 1)
        return store(sum, row, columnAt);
      scratch.set(sum, placeInScratch(batch, split, row, columnAt));
    });
  });
}

Index GemvEmitter::placeInScratch(Index batch, Index split, Index row, Index column) {
  Index line = (batch * lines.splits + split) * lines.rows + row;
  return line * matrix().extent + column;
}

/// A launch with a thread for each result.
void GemvEmitter::mergeSplits(const Buffer &scratch) {
  OpBuilder::InsertionGuard guard(k.b);
  constexpr int64_t kThreads = 128;
  Index results = rows().extent * matrix().extent, count = results * product(spec.batch);
  k.launch(ceilDiv(count, kThreads), kThreads, {});
  Index at = k.block * kThreads + k.thread;
  k.when(at < count, [&] {
    Index batchAt = at / results, within = at % results;
    Index row = within / matrix().extent, columnAt = within % matrix().extent;
    batchIndices = delinearize(batchAt, sizesOf(spec.batch));
    Nums parts;
    for (int64_t n = 0; n < lines.splits; ++n)
      parts.push_back(scratch(placeInScratch(batchAt, k.index(n), row, columnAt)));
    store(tree<Num>(parts, [](Num x, Num y) { return x + y; }), row, columnAt);
  });
}

void GemvEmitter::store(Num sum, Index row, Index columnAt) {
  startLoops();
  placeLoops(rows().outer, delinearize(row, sizesOf(rows().outer)));
  placeLoops(matrix().outer, delinearize(columnAt, sizesOf(matrix().outer)));
  Indices at = resultIndices();
  storeResult(applyEpilogue(sum, at), at);
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

void emitGemv(OpBuilder &builder, Location loc, const GpuGemmSpec &spec, ArrayRef<Buffer> buffers,
              const Buffer &scratch) {
  GpuGemmSpec ordered = inOrderOfMatrix(spec);
  GemvEmitter(builder, loc, ordered).emitLaunches(buffers, scratch);
}

} // namespace attn
