#include "passes/kernels/cpu/BlockGemmEmitter.h"

using namespace mlir;

namespace attn {

void BlockGemmEmitter::declareArguments() {
  Type scaleType = spec.hasHalfScales ? Type(k.b.getF16Type()) : f32;
  a = f.buffer({spec.m, spec.k}, f32);
  codes = f.buffer(spec.panelShape(), i32);
  scales = f.buffer(spec.scaleShape(), scaleType);
  if (spec.zeros != BlockZeros::Constant)
    zeros = f.buffer(spec.scaleShape(), spec.zeros == BlockZeros::Float ? scaleType : Type(k.b.getI8Type()));
  result.takeOperands(f, spec.m);
  if (spec.hasByteRows) {
    rowBytes = f.buffer(spec.rowShape(), i8);
    rowScales = f.buffer(spec.rowScaleShape(), f32);
    rowStarts = f.buffer(spec.rowScaleShape(), i32);
  } else if (spec.hasTiles) {
    rowParts = f.buffer(spec.rowShape(), k.b.getBF16Type());
  }
  if (spec.hasDigits) {
    digits = f.buffer(spec.digitShape(), i8);
    digitScales = f.buffer(spec.digitScaleShape(), f32);
    digitStarts = f.buffer(spec.digitStartShape(), i32);
  }
  result.takeResult(f.buffer({spec.m, spec.n}, f32));
}

func::FuncOp BlockGemmEmitter::emit() {
  f.function.setPrivate();
  declareArguments();
  flatCodes = codes.flat();
  rows = a.dim(0);
  // Chunks of one size, in whole tiles.
  Index chunks = ceilDiv(rows, BlockGemmSpec::kChunkRows);
  chunkRows = ceilTo(ceilDiv(rows, maximum(chunks, 1)), spec.tileRows);
  Index tasks = chunks * spec.numPanels();
  if (spec.hasTiles) {
    usesTiles = k.asMask(HasTilesOp::create(k.b, k.loc, k.b.getI1Type()));
    usesTiles = usesTiles & (rows >= BlockGemmSpec::kFewestTileRows);
    tasks = select(usesTiles, k.index(0), tasks);
  }
  if (spec.hasByteRows)
    roundRows();
  else if (spec.hasTiles)
    partRows();
  if (spec.hasDigits)
    takeDigits();
  if (spec.hasTiles)
    emitTileTasks();
  k.parallel(tasks, [&](Index task) { emitTask(task); });
  return f.function;
}

/// Finds the panel and the rows of a task.
void BlockGemmEmitter::takeTask(const Index &task, const Index &rowsOfChunk) {
  panel = task % spec.numPanels();
  firstRow = minimum(task / spec.numPanels() * rowsOfChunk, rows);
  taskRows = minimum(rowsOfChunk, rows - firstRow);
}

/// Writes what codes of 4 bits stand for, where one instruction looks them up.
void BlockGemmEmitter::makeTable() {
  if (!hasTable())
    return;
  SmallVector<float> values;
  for (int64_t code = 0; code < 16; ++code)
    values.push_back(static_cast<float>(code - base()));
  table = k.asVec(
      arith::ConstantOp::create(k.b, k.loc, DenseElementsAttr::get(VectorType::get({16}, f32), ArrayRef(values))));
}

void BlockGemmEmitter::emitTask(const Index &task) {
  int64_t most = llvm::alignTo(BlockGemmSpec::kChunkRows, spec.tileRows);
  bool isFew = !ShapedType::isDynamic(spec.m) && spec.m <= BlockGemmSpec::kFewRows;
  sums = k.scratch({isFew ? std::max<int64_t>(spec.m, 1) : most, width}, f32);
  if (!isFew && spec.hasByteRows)
    unpacked = k.scratch({spec.depth() / 4, width}, i32);
  else if (!isFew)
    unpacked = k.scratch({spec.depth(), width}, f32);
  takeTask(task, chunkRows);
  makeTable();
  if (isFew)
    emitFewRows();
  else if (ShapedType::isDynamic(spec.m))
    k.when(rows <= BlockGemmSpec::kFewRows, [&] { emitFewRows(); }, [&] { emitMany(); });
  else
    emitMany();
  emitRows();
}

/// Asks for codes that lie ahead of those of `step`: where each is read once they are a stream from memory.
void BlockGemmEmitter::prefetchAhead(const Index &step) {
  constexpr int64_t kLineBytes = 64, kAhead = 4096, kWordBytes = 4;
  Index at = (panel * spec.panelShape()[1] + step) * width + kAhead / kWordBytes;
  for (int64_t byte = 0; byte < width * kWordBytes; byte += kLineBytes)
    flatCodes.prefetch(at + byte / kWordBytes);
}

BlockGemmEmitter::BlockFactors BlockGemmEmitter::factors(const Index &number) {
  BlockFactors result;
  int64_t half = int64_t(1) << (spec.bits - 1);
  for (int64_t v = 0; v < spec.tileVectors; ++v) {
    Vec scale = scales.vector(spec.lanes, panel, number, v * spec.lanes);
    result.scales.push_back(spec.hasHalfScales ? convert(scale, f32) : scale);
    if (spec.zeros == BlockZeros::Constant)
      continue;
    Vec zero = zeros.vector(spec.lanes, panel, number, v * spec.lanes);
    if (spec.zeros == BlockZeros::Unsigned)
      zero = convert(convertUnsigned(zero, i32), f32);
    else if (spec.zeros == BlockZeros::Signed)
      zero = convert(convert(zero, i32), f32);
    else if (spec.hasHalfScales)
      zero = convert(zero, f32);
    result.zeros.push_back(spec.isUnsigned ? zero - static_cast<double>(half) : zero);
  }
  return result;
}

Vec BlockGemmEmitter::row(const Vec &word, int64_t place, const BlockFactors &factors, int64_t v) {
  int64_t shift = place % 4 * 8 + place / 4 * spec.bits;
  Vec moved = shift ? word >> shift : word, value;
  if (hasTable()) { // vpermps looks at the low four bits alone
    value = k.asVec(k.intrinsic("llvm.x86.avx512.permvar.sf.512", table.type(), {table, moved}));
  } else {
    Vec code = shift + spec.bits == 32 ? moved : moved & ((int64_t(1) << spec.bits) - 1);
    value = convert(code, f32) - static_cast<double>(base());
  }
  return factors.zeros.empty() ? value : value - factors.zeros[v];
}

//===----------------------------------------------------------------------===//
// Few rows
//===----------------------------------------------------------------------===//

/// The sums of up to kFewRows rows.
void BlockGemmEmitter::emitFewRows() {
  auto byNumbers = [&] {
    auto [least, most] = tileHeights(spec.m, BlockGemmSpec::kFewRows);
    k.match(taskRows, least, most, [&](int64_t height) { emitFew(height); });
  };
  if (!spec.hasDigits)
    return byNumbers();
  k.when(isInDigits, [&] { emitDigits(); }, byNumbers);
}

/// The sums of `height` rows and the panel, to the scratch.
void BlockGemmEmitter::emitFew(int64_t height) {
  int64_t whole = spec.k / spec.block, rest = spec.k % spec.block;
  if (spec.hasByteRows) { // padded with zeros
    whole = spec.numBlocks();
    rest = 0;
  }
  Vecs totals(height * spec.tileVectors, zeroVec());
  if (whole)
    totals =
        k.loop(0, whole, 1, totals, [&](Index number, Vecs now) { return addBlock(height, number, spec.block, now); });
  if (rest)
    totals = addBlock(height, k.index(whole), rest, totals);
  for (int64_t r = 0; r < height; ++r)
    sums.setVectors(ArrayRef(totals).slice(r * spec.tileVectors, spec.tileVectors), r);
}

/// totals + the sums of block `number`, of which `size` rows are there, times its scales.
Vecs BlockGemmEmitter::addBlock(int64_t height, const Index &number, int64_t size, const Vecs &totals) {
  if (spec.hasByteRows)
    return addByteBlock(height, number, totals);
  int64_t vectors = spec.tileVectors;
  BlockFactors factor = factors(number);
  // Two sums a column where there are too few to hide what an addition takes.
  int64_t parts = height == 1 ? 2 : 1;
  Vecs blockSums(height * vectors * parts, zeroVec());
  auto addWord = [&](const Index &step, int64_t count, Vecs now) {
    Index first = step * group;
    Vecs loaded = codes.vectors(vectors, spec.lanes, panel, step);
    prefetchAhead(step);
    for (int64_t place = 0; place < count; ++place) {
      Vecs left;
      for (int64_t r = 0; r < height; ++r)
        left.push_back(k.splat(a(firstRow + r, first + place), spec.lanes));
      for (int64_t v = 0; v < vectors; ++v) {
        Vec right = row(loaded[v], place, factor, v);
        for (int64_t r = 0; r < height; ++r) {
          Vec &sum = now[(r * vectors + v) * parts + place % parts];
          sum = multiplyAdd(left[r], right, sum);
        }
      }
    }
    return now;
  };
  Index begin = number * (spec.block / group);
  if (size / group)
    blockSums = k.loop(begin, begin + size / group, 1, blockSums,
                       [&](Index step, Vecs now) { return addWord(step, group, now); });
  if (size % group)
    blockSums = addWord(begin + size / group, size % group, blockSums);
  Vecs result;
  for (int64_t n = 0; n < height * vectors; ++n) {
    Vec sum = blockSums[n * parts];
    if (parts == 2)
      sum = sum + blockSums[n * parts + 1];
    result.push_back(multiplyAdd(sum, factor.scales[n % vectors], totals[n]));
  }
  return result;
}

//===----------------------------------------------------------------------===//
// Many rows
//===----------------------------------------------------------------------===//

void BlockGemmEmitter::emitMany() {
  if (spec.hasByteRows)
    return emitManyBytes();
  const int64_t most = spec.depth(), perDepth = most / spec.block;
  Index numTiles = ceilDiv(taskRows, spec.tileRows);
  k.loop(0, spec.k, most, [&](Index depth) {
    Index size = minimum(k.index(most), k.index(spec.k) - depth);
    unpack(depth / spec.block, minimum(k.index(perDepth), k.index(spec.numBlocks()) - depth / spec.block));
    k.loop(0, numTiles, 1, [&](Index tile) {
      Index height = minimum(k.index(spec.tileRows), taskRows - tile * spec.tileRows);
      k.match(height, 1, spec.tileRows, [&](int64_t rows) { addDepth(rows, tile, depth, size, depth == 0); });
    });
  });
}

/// Writes `blocks` blocks of the panel out as f32.
void BlockGemmEmitter::unpack(const Index &firstBlock, const Index &blocks) {
  int64_t rest = spec.k % spec.block;
  Index whole = rest ? minimum(blocks, k.index(spec.k / spec.block) - firstBlock) : blocks;
  k.loop(0, whole, 1, [&](Index number) { unpackBlock(firstBlock + number, number * spec.block, spec.block); });
  if (rest)
    k.when(whole < blocks, [&] { unpackBlock(firstBlock + whole, whole * spec.block, rest); });
}

void BlockGemmEmitter::unpackBlock(const Index &number, const Index &target, int64_t size) {
  BlockFactors factor = factors(number);
  auto unpackWord = [&](const Index &word, int64_t count) {
    for (int64_t v = 0; v < spec.tileVectors; ++v) {
      Vec loaded = words(number * (spec.block / group) + word, v);
      for (int64_t place = 0; place < count; ++place)
        unpacked.setVector(row(loaded, place, factor, v) * factor.scales[v], target + word * group + place,
                           v * spec.lanes);
    }
  };
  if (size / group)
    k.loop(0, size / group, 1, [&](Index word) { unpackWord(word, group); });
  if (size % group)
    unpackWord(k.index(size / group), size % group);
}

/// Adds the products of `size` rows of the scratch to the sums of `height` rows of a tile.
void BlockGemmEmitter::addDepth(int64_t height, const Index &tile, const Index &depth, const Index &size,
                                const Mask &isFirst) {
  int64_t vectors = spec.tileVectors;
  Index local = tile * spec.tileRows, first = firstRow + local;
  Vecs start;
  for (int64_t r = 0; r < height; ++r)
    for (int64_t v = 0; v < vectors; ++v)
      start.push_back(select(isFirst, zeroVec(), sums.vector(spec.lanes, local + r, v * spec.lanes)));
  Vecs total = k.loop(0, size, 1, start, [&](Index at, Vecs now) {
    Vecs right = unpacked.vectors(vectors, spec.lanes, at);
    for (int64_t r = 0; r < height; ++r) {
      Vec left = k.splat(a(first + r, depth + at), spec.lanes);
      for (int64_t v = 0; v < vectors; ++v)
        now[r * vectors + v] = multiplyAdd(left, right[v], now[r * vectors + v]);
    }
    return now;
  });
  for (int64_t r = 0; r < height; ++r)
    sums.setVectors(ArrayRef(total).slice(r * vectors, vectors), local + r);
}

//===----------------------------------------------------------------------===//
// Results
//===----------------------------------------------------------------------===//

void BlockGemmEmitter::emitRows() {
  result.forColumns(panel, [&](const PanelColumns &columns) {
    k.loop(0, taskRows, 1, [&](Index r) {
      for (int64_t v = 0; v < result.vectorsOf(columns); ++v)
        result.store(sums.vector(spec.lanes, r, v * spec.lanes), firstRow + r, panel, columns, v);
    });
  });
}

func::FuncOp buildBlockGemm(OpBuilder &builder, Location loc, const BlockGemmSpec &spec) {
  assert(canBuildBlockGemm(spec));
  return BlockGemmEmitter(builder, loc, spec).emit();
}

} // namespace attn
