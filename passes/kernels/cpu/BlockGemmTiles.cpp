// The products of rows by codes with AMX. A tile of 16 rows by a block gives sums, which leave the registers and are
// scaled in vectors while the next block is multiplied. Rows are bytes, or f32 in three parts of bf16: an f32 has 24
// bits, a bf16 8 of them, and a code is a bf16, so that all products are exact.
#include "passes/kernels/cpu/BlockGemmEmitter.h"
#include "passes/kernels/cpu/HalfParts.h"
#include "passes/kernels/cpu/TileRegisters.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;

namespace attn {

namespace {

constexpr int64_t kRows = BlockGemmSpec::kTileRows, kTileBytes = TileRegisters::kBytes;
static_assert(kRows == TileRegisters::kRows);

} // namespace

class BlockGemmEmitter::Tiles {
public:
  explicit Tiles(BlockGemmEmitter &gemm)
      : gemm(gemm), k(gemm.k), spec(gemm.spec), parts(spec.hasByteRows ? 1 : BlockGemmSpec::kParts),
        bytes(spec.hasByteRows ? 1 : 2), depth(std::min(spec.block * bytes, kTileBytes)),
        perPass(spec.depth() / spec.block), sumType(spec.hasByteRows ? gemm.i32 : gemm.f32), registers(k) {}

  void emit(const Index &task, const Index &rowsOfChunk);

private:
  void emitPass(const Index &firstBlock, int64_t blocks);
  void unpack(const Index &firstBlock, int64_t blocks);
  Vecs linesOfBytes(const Vec &word, const Vec &points);
  Vecs linesOfPairs(const Vec &word, const BlockFactors &factors, int64_t vector);
  void emitTile(const Index &tile, const Index &vector, const Index &firstBlock, int64_t blocks);
  void begin(const Index &number, int64_t slot);
  void store(int64_t slot);
  void finish(const Index &number, int64_t slot, Vecs &totals);

  BlockGemmEmitter &gemm;
  Code &k;
  const BlockGemmSpec &spec;
  const int64_t parts;   ///< of a row
  const int64_t bytes;   ///< of an element of a part
  const int64_t depth;   ///< bytes that a product of tiles takes in
  const int64_t perPass; ///< blocks that are unpacked at a time
  const Type sumType;    ///< of a block
  TileRegisters registers;
  Buffer columns;   ///< of each block and vector all words, less their zero points
  Buffer blockSums; ///< two tiles
  // Of the tile at hand: its blocks among all, the first of this pass and the vector.
  Index rowsAt, firstNumber, column;
};

void BlockGemmEmitter::Tiles::emit(const Index &task, const Index &rowsOfChunk) {
  gemm.sums = k.scratch({BlockGemmSpec::kTileChunkRows, gemm.width}, gemm.f32);
  columns = k.scratch({perPass * spec.tileVectors, spec.block * spec.lanes * bytes}, gemm.i8);
  blockSums = k.scratch({2, kRows * spec.lanes}, sumType);
  gemm.takeTask(task, rowsOfChunk);
  gemm.makeTable();
  registers.configure(k.index(kRows), k.index(kRows), depth);
  int64_t whole = spec.numBlocks() / perPass * perPass, rest = spec.numBlocks() - whole;
  if (whole) {
    k.loop(0, whole, perPass, [&](Index firstBlock) { emitPass(firstBlock, perPass); });
    markLong(k.b);
  }
  if (rest)
    emitPass(k.index(whole), rest);
  registers.release();
  gemm.emitRows();
}

/// Adds `blocks` blocks to all sums.
void BlockGemmEmitter::Tiles::emitPass(const Index &firstBlock, int64_t blocks) {
  unpack(firstBlock, blocks);
  k.loop(0, ceilDiv(gemm.taskRows, kRows), 1, [&](Index tile) {
    k.loop(0, spec.tileVectors, 1, [&](Index vector) { emitTile(tile, vector, firstBlock, blocks); });
  });
}

/// Writes blocks of the panel out as tiles of s8, or of bf16.
void BlockGemmEmitter::Tiles::unpack(const Index &firstBlock, int64_t blocks) {
  int64_t words = spec.block / gemm.group;
  Index last = k.index(spec.panelShape()[1] - 1);
  k.loop(0, blocks, 1, [&](Index number) {
    Vecs points;
    BlockFactors factors;
    if (!spec.hasByteRows)
      factors = gemm.factors(firstBlock + number);
    for (int64_t v = 0; v < spec.tileVectors && spec.hasByteRows; ++v)
      points.push_back(
          spec.zeros == BlockZeros::Constant
              ? k.splat(k.number(gemm.i8, gemm.base()), kTileBytes)
              : bitcast(gemm.zeroPoints(firstBlock + number, k.index(v * spec.lanes)) * int64_t(0x01010101), gemm.i8));
    k.loop(0, words, 1, [&](Index word) {
      Index step = minimum((firstBlock + number) * words + word, last); // beyond the end rows are 0
      gemm.prefetchAhead(step);
      for (int64_t v = 0; v < spec.tileVectors; ++v) {
        Vecs lines = spec.hasByteRows ? linesOfBytes(gemm.words(step, v), points[v])
                                      : linesOfPairs(gemm.words(step, v), factors, v);
        for (auto [n, line] : llvm::enumerate(lines))
          columns.setVector(line, number * spec.tileVectors + v,
                            (word * static_cast<int64_t>(lines.size()) + static_cast<int64_t>(n)) * kTileBytes);
      }
    });
  });
}

/// The codes of a word less their zero points, four rows a line.
Vecs BlockGemmEmitter::Tiles::linesOfBytes(const Vec &word, const Vec &points) {
  Vecs lines;
  for (int64_t part = 0; part < 8 / spec.bits; ++part)
    lines.push_back(bitcast(gemm.fourRows(word, part), gemm.i8) - points);
  return lines;
}

/// The same as bf16, two rows a line: integers of 8 bits and a sign have no more bits than that.
Vecs BlockGemmEmitter::Tiles::linesOfPairs(const Vec &word, const BlockFactors &factors, int64_t vector) {
  Vecs lines;
  for (int64_t place = 0; place < gemm.group; place += 2) {
    Vec first = gemm.row(word, place, factors, vector), second = gemm.row(word, place + 1, factors, vector);
    lines.push_back(bitcast(toPairs(first, second), gemm.i8));
  }
  return lines;
}

/// Adds `blocks` blocks to the sums of 16 rows by the columns of a vector. Two are on their way: the tiles of one are
/// at work while the sums of the other are scaled.
void BlockGemmEmitter::Tiles::emitTile(const Index &tile, const Index &vector, const Index &firstBlock,
                                       int64_t blocks) {
  firstNumber = firstBlock;
  column = vector;
  rowsAt = (gemm.firstRow / kRows + tile) * (kRows * spec.numBlocks());
  Index local = tile * kRows, place = vector * spec.lanes;
  Vecs totals;
  for (int64_t r = 0; r < kRows; ++r)
    totals.push_back(select(firstBlock == 0, gemm.zeroVec(), gemm.sums.vector(spec.lanes, local + r, place)));
  for (int64_t slot = 0; slot < std::min<int64_t>(blocks, 2); ++slot)
    begin(k.index(slot), slot);
  // Block `number` follows the one two before it.
  auto advance = [&](const Index &number, int64_t slot, Vecs &totals) {
    store(slot);
    begin(number, slot);
    finish(number - 2, slot, totals);
  };
  int64_t begun = std::max<int64_t>(blocks / 2 * 2, std::min<int64_t>(blocks, 2));
  if (begun > 2)
    totals = k.loop(2, begun, 2, totals, [&](Index number, Vecs now) {
      advance(number, 0, now);
      advance(number + 1, 1, now);
      return now;
    });
  if (begun < blocks)
    advance(k.index(begun), 0, totals);
  for (int64_t number = std::max<int64_t>(blocks - 2, 0); number < blocks; ++number) {
    store(number % 2);
    finish(k.index(number), number % 2, totals);
  }
  for (int64_t r = 0; r < kRows; ++r)
    gemm.sums.setVector(totals[r], local + r, place);
}

/// Sets the tiles to work on block `number` of this pass.
void BlockGemmEmitter::Tiles::begin(const Index &number, int64_t slot) {
  const Buffer &rows = spec.hasByteRows ? gemm.rowBytes : gemm.rowParts;
  int64_t partBytes = spec.block * bytes, stride = partBytes * parts;
  Index left = rows.address() + (rowsAt + (firstNumber + number) * kRows) * stride;
  Index right = columns.address() + (number * spec.tileVectors + column) * (partBytes * spec.lanes);
  int64_t sum = TileRegisters::sum(slot, slot);
  registers.zero(sum);
  for (int64_t at = 0; at < partBytes; at += depth) {
    registers.load(TileRegisters::columns(slot), right + at * spec.lanes, k.index(kTileBytes));
    for (int64_t part = 0; part < parts; ++part) {
      int64_t loaded = TileRegisters::rows((slot + part) % 2);
      registers.load(loaded, left + part * partBytes + at, k.index(stride));
      registers.multiply(spec.hasByteRows ? "llvm.x86.tdpbssd" : "llvm.x86.tdpbf16ps", sum, loaded,
                         TileRegisters::columns(slot));
    }
  }
}

void BlockGemmEmitter::Tiles::store(int64_t slot) {
  Index to = blockSums.address() + slot * (kRows * kTileBytes);
  registers.store(TileRegisters::sum(slot, slot), to, k.index(kTileBytes));
}

/// Adds the sums of block `number`, times both scales, to `totals`.
void BlockGemmEmitter::Tiles::finish(const Index &number, int64_t slot, Vecs &totals) {
  Vec factor = gemm.scales.vector(spec.lanes, gemm.panel, firstNumber + number, column * spec.lanes);
  if (spec.hasHalfScales)
    factor = convert(factor, gemm.f32);
  for (int64_t r = 0; r < kRows; ++r) {
    Vec sum = blockSums.vector(spec.lanes, slot, r * spec.lanes);
    if (!spec.hasByteRows) {
      totals[r] = gemm.multiplyAdd(sum, factor, totals[r]);
      continue;
    }
    Num rowScale = gemm.rowScales.flat()(rowsAt + (firstNumber + number) * kRows + r);
    totals[r] = gemm.multiplyAdd(convert(sum, gemm.f32) * factor, k.splat(rowScale, spec.lanes), totals[r]);
  }
}

/// Writes the rows of A in parts where the run uses tiles.
void BlockGemmEmitter::partRows() {
  int64_t whole = spec.k / spec.block, rest = spec.k % spec.block;
  k.parallel(select(usesTiles, rows, k.index(0)), [&](Index row) {
    // As rows of bytes.
    Index first = row / kRows * (kRows * spec.numBlocks()) + row % kRows;
    k.loop(0, whole, 1, [&](Index number) { partBlock(row, number, first + number * kRows, spec.block); });
    if (rest)
      partBlock(row, k.index(whole), first + whole * kRows, rest);
  });
}

/// The parts of block `number` of a row, of which `size` elements are there, to that place among all blocks; zeros
/// behind them.
void BlockGemmEmitter::partBlock(const Index &row, const Index &number, const Index &place, int64_t size) {
  constexpr int64_t kParts = BlockGemmSpec::kParts;
  Index first = number * spec.block;
  for (int64_t at = 0; at < spec.block; at += spec.lanes) {
    Vec x = a.first(size - at, spec.lanes, row, first + at);
    for (auto [n, part] : llvm::enumerate(splitIntoHalves(x, kParts)))
      rowParts.flat().setVector(toHalves(part), ((place + 1) * kParts - 1 - static_cast<int64_t>(n)) * spec.block + at);
  }
}

/// Tasks that make all sums by AMX where the run uses tiles, and none where not.
void BlockGemmEmitter::emitTileTasks() {
  Index chunks = ceilDiv(rows, BlockGemmSpec::kTileChunkRows);
  Index rowsOfChunk = ceilTo(ceilDiv(rows, maximum(chunks, 1)), kRows);
  k.parallel(select(usesTiles, chunks * spec.numPanels(), k.index(0)),
             [&](Index task) { Tiles(*this).emit(task, rowsOfChunk); });
}

} // namespace attn
