// The products of rows of bytes by codes with AMX. A tile of 16 rows by a block gives sums in i32, which leave the
// registers and are scaled in vectors while the next block is multiplied.
#include "passes/kernels/cpu/BlockGemmEmitter.h"
#include "passes/kernels/cpu/TileRegisters.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;

namespace attn {

using Vecs = SmallVector<Vec>;

namespace {

constexpr int64_t kRows = BlockGemmSpec::kTileRows, kTileBytes = TileRegisters::kBytes;
static_assert(kRows == TileRegisters::kRows);

} // namespace

class BlockGemmEmitter::Tiles {
public:
  explicit Tiles(BlockGemmEmitter &gemm)
      : gemm(gemm), k(gemm.k), spec(gemm.spec), depth(std::min(spec.block, kTileBytes)),
        perPass(spec.depth() / spec.block), registers(k) {}

  void emit(const Index &task, const Index &rowsOfChunk);

private:
  void emitPass(const Index &firstBlock, int64_t blocks);
  void unpack(const Index &firstBlock, int64_t blocks);
  void emitTile(const Index &tile, const Index &vector, const Index &firstBlock, int64_t blocks);
  void begin(const Index &number, int64_t slot);
  void store(int64_t slot);
  void finish(const Index &number, int64_t slot, Vecs &totals);

  BlockGemmEmitter &gemm;
  Code &k;
  const BlockGemmSpec &spec;
  const int64_t depth;   ///< that a product of tiles takes in
  const int64_t perPass; ///< blocks that are unpacked at a time
  TileRegisters registers;
  Buffer columns;   ///< of each block and vector all words, less their zero points
  Buffer blockSums; ///< two tiles
  // Of the tile at hand: its blocks among all, the first of this pass and the vector.
  Index rowsAt, firstNumber, column;
};

void BlockGemmEmitter::Tiles::emit(const Index &task, const Index &rowsOfChunk) {
  gemm.sums = k.scratch({BlockGemmSpec::kTileChunkRows, gemm.width}, gemm.f32);
  columns = k.scratch({perPass * spec.tileVectors, spec.block * spec.lanes}, gemm.i8);
  blockSums = k.scratch({2, kRows * spec.lanes}, gemm.i32);
  gemm.takeTask(task, rowsOfChunk);
  registers.configure(k.index(kRows), k.index(kRows), depth);
  int64_t whole = spec.numBlocks() / perPass * perPass, rest = spec.numBlocks() - whole;
  if (whole) {
    k.rolledLoop(0, whole, perPass, [&](Index firstBlock) { emitPass(firstBlock, perPass); });
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
  k.rolledLoop(0, ceilDiv(gemm.taskRows, kRows), 1, [&](Index tile) {
    k.rolledLoop(0, spec.tileVectors, 1, [&](Index vector) { emitTile(tile, vector, firstBlock, blocks); });
  });
}

/// Writes blocks of the panel out as tiles of s8.
void BlockGemmEmitter::Tiles::unpack(const Index &firstBlock, int64_t blocks) {
  int64_t parts = 8 / spec.bits, words = spec.block / gemm.group;
  Index last = k.index(spec.panelShape()[1] - 1);
  k.rolledLoop(0, blocks, 1, [&](Index number) {
    Vecs points;
    for (int64_t v = 0; v < spec.tileVectors; ++v)
      points.push_back(
          spec.zeros == BlockZeros::Constant
              ? k.splat(k.number(gemm.i8, gemm.base()), kTileBytes)
              : bitcast(gemm.zeroPoints(firstBlock + number, k.index(v * spec.lanes)) * int64_t(0x01010101), gemm.i8));
    k.rolledLoop(0, words, 1, [&](Index word) {
      Index step = minimum((firstBlock + number) * words + word, last); // beyond the end rows are 0
      gemm.prefetchAhead(step);
      for (int64_t v = 0; v < spec.tileVectors; ++v) {
        Vec loaded = gemm.words(step, v);
        for (int64_t part = 0; part < parts; ++part) {
          Vec codes = bitcast(gemm.fourRows(loaded, part), gemm.i8) - points[v];
          columns.setVector(codes, number * spec.tileVectors + v, (word * parts + part) * kTileBytes);
        }
      }
    });
  });
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
    totals = k.rolledLoop(2, begun, 2, totals, [&](Index number, Vecs now) {
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
  Index left = gemm.rowBytes.address() + (rowsAt + (firstNumber + number) * kRows) * spec.block;
  Index right = columns.address() + (number * spec.tileVectors + column) * (spec.block * spec.lanes);
  registers.zero(TileRegisters::sum(slot, slot));
  for (int64_t at = 0; at < spec.block; at += depth) {
    registers.load(TileRegisters::rows(slot), left + at, k.index(spec.block));
    registers.load(TileRegisters::columns(slot), right + at * spec.lanes, k.index(kTileBytes));
    registers.multiply("llvm.x86.tdpbssd", slot, slot);
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
  Buffer rowScales = gemm.rowScales.flat();
  for (int64_t r = 0; r < kRows; ++r) {
    Vec scaled = convert(blockSums.vector(spec.lanes, slot, r * spec.lanes), gemm.f32) * factor;
    Num rowScale = rowScales(rowsAt + (firstNumber + number) * kRows + r);
    totals[r] = gemm.multiplyAdd(scaled, k.splat(rowScale, spec.lanes), totals[r]);
  }
}

/// Tasks that make all sums by AMX where the run uses tiles, and none where not.
void BlockGemmEmitter::emitTileTasks() {
  Index chunks = ceilDiv(rows, BlockGemmSpec::kTileChunkRows), divisor = maximum(chunks, 1);
  Index rowsOfChunk = ceilDiv((rows + divisor - 1) / divisor, kRows) * kRows;
  k.parallel(select(usesTiles, chunks * spec.numPanels(), k.index(0)),
             [&](Index task) { Tiles(*this).emit(task, rowsOfChunk); });
}

} // namespace attn
