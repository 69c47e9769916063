// The sums of a product of bytes by AMX: tiles of 16 x 16, two by two of them at a time.
#include "passes/kernels/cpu/IntegerGemmEmitter.h"
#include "passes/kernels/cpu/PackRows.h"
#include "passes/kernels/cpu/TileRegisters.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;

namespace attn {

namespace {

constexpr int64_t kGroupRows = IntegerGemmSpec::kGroupRows, kBlockRows = TileRegisters::kBlock;
constexpr int64_t kTileRows = TileRegisters::kRows, kTileBytes = TileRegisters::kBytes;
constexpr int64_t kTileDepth = PackRowsSpec::kDepth; // bytes of A's rows, rows of B
constexpr int64_t kWords = kTileDepth / 4;           // of B's rows in a tile
static_assert(kBlockRows == PackRowsSpec::kRows && kTileDepth == kTileBytes);
// So much of a panel stays in the first-level cache beside the rows that pass it: 24 KB of 48.
constexpr int64_t kCachedSteps = 12;
constexpr int64_t kSumBytes = 4;
constexpr int64_t kStepLines = 32; // of a panel

} // namespace

/// Whether all of a panel stays in the first-level cache, or need not: a single block meets it once.
static bool needsOnePass(const IntegerGemmSpec &spec) {
  bool isShort =
      !ShapedType::isDynamic(spec.k) && llvm::divideCeil(spec.k, kTileDepth) <= static_cast<uint64_t>(kCachedSteps);
  return isShort || (!ShapedType::isDynamic(spec.m) && spec.m <= kBlockRows);
}

/// Emits the tasks of one kernel.
class IntegerGemmEmitter::Tiles {
public:
  explicit Tiles(IntegerGemmEmitter &gemm)
      : gemm(gemm), k(gemm.k), spec(gemm.spec), hasTail(ShapedType::isDynamic(spec.k) || spec.k % kTileDepth),
        isOnePass(needsOnePass(spec)), registers(k) {}

  void emit(Index task, const Index &groups);

private:
  void findPlace(Index task, const Index &groups);
  void copyTail();
  void emitBlock(const Index &block, const Index &first, const Index &end);
  /// The row of the scratch where a block's sums are kept.
  Index placeOf(const Index &block) { return isOnePass ? k.index(0) : block * kBlockRows; }
  void forSums(const Index &block, function_ref<void(int64_t number, const Index &address)> body);
  void addProducts(const Index &left, const Index &right);
  void prefetch(const Index &block, const Index &step);

  IntegerGemmEmitter &gemm;
  Code &k;
  const IntegerGemmSpec &spec;
  const bool hasTail;   ///< the last step fills no tile, or may not
  const bool isOnePass; ///< the sums of a block are made at once
  TileRegisters registers;
  Buffer rightTail;
  Index steps, whole;            ///< of 64, and those that B has all of
  Index leftAt, rightAt, sumsAt; ///< addresses: of the task's rows, of its panel, of its sums
  Index pieceBytes;              ///< what a block asks for of a step of the next panel
};

/// A task is one panel and up to 128 rows, whose sums pass through memory.
void IntegerGemmEmitter::Tiles::emit(Index task, const Index &groups) {
  gemm.scratch = k.scratch({isOnePass ? kBlockRows : kGroupRows, gemm.width}, gemm.i32);
  findPlace(task, groups);
  steps = gemm.packedRows.dim(2);
  whole = gemm.depth / kTileDepth;
  rightAt = gemm.panels.address() + gemm.panelAt * gemm.panelBytes;
  sumsAt = gemm.scratch.address();
  if (hasTail)
    copyTail();
  Index blocks = ceilDiv(gemm.tileHeight, kBlockRows);
  pieceBytes = (kStepLines - 1 + blocks) / blocks * kTileBytes;

  // A part of the panel at a time, which stays in the first-level cache for all blocks.
  auto pass = [&](const Index &first, const Index &end) {
    k.rolledLoop(0, blocks, 1, [&](Index block) { emitBlock(block, first, end); });
  };
  if (isOnePass) {
    pass(k.index(0), steps);
  } else {
    Index passes = maximum(ceilDiv(steps, kCachedSteps), 1), perPass = (steps + passes - 1) / passes;
    k.rolledLoop(0, passes, 1, [&](Index number) { pass(number * perPass, minimum((number + 1) * perPass, steps)); });
  }
  registers.release();
}

void IntegerGemmEmitter::Tiles::findPlace(Index task, const Index &groups) {
  Index inChunk = groups, firstGroup = k.index(0), batch = k.index(0);
  if (spec.isBatched) {
    Index ofOne = gemm.numPanels * groups;
    batch = task / ofOne;
    task = task % ofOne;
  }
  if (spec.tileGroups) { // all chunks are whole but the last
    Index perChunk = gemm.numPanels * spec.tileGroups;
    firstGroup = task / perChunk * spec.tileGroups;
    task = task % perChunk;
    inChunk = minimum(k.index(spec.tileGroups), groups - firstGroup);
  }
  gemm.panel = task / inChunk;
  gemm.panelAt = batch * gemm.numPanels + gemm.panel;
  Index group = firstGroup + task % inChunk, inMatrix = group * kGroupRows;
  gemm.tileHeight = minimum(k.index(kGroupRows), gemm.rows - inMatrix);
  gemm.row = batch * gemm.rows + inMatrix;
  Index block = batch * gemm.packedRows.dim(1) + group * (kGroupRows / kBlockRows);
  leftAt = gemm.packedRows.address() + block * (gemm.packedRows.dim(2) * (kBlockRows * kTileDepth));
}

/// The last step of a panel: what follows in memory may be nobody's. A's rows have zeros there, so that any bytes do.
void IntegerGemmEmitter::Tiles::copyTail() {
  rightTail = k.scratch({kWords, gemm.stepBytes}, gemm.i8);
  k.when(whole < steps, [&] {
    Index last = gemm.panels.dim(1) - 1;
    k.rolledLoop(0, kWords, 1, [&](Index word) {
      for (int64_t at = 0; at < gemm.stepBytes; at += kTileBytes)
        rightTail.setVector(gemm.panels.vector(kTileBytes, gemm.panelAt, minimum(whole * kWords + word, last), at),
                            word, at);
    });
  });
}

/// Adds the products of steps [first, end) to the sums of a block, and finishes them with the last one.
void IntegerGemmEmitter::Tiles::emitBlock(const Index &block, const Index &first, const Index &end) {
  Index height = minimum(k.index(kBlockRows), gemm.tileHeight - block * kBlockRows);
  // A tile of fewer rows costs as much less. The lower one has a row at least, of which nothing is kept.
  k.when((block == 0) | (height < kBlockRows),
         [&] { registers.configure(minimum(height, kTileRows), maximum(height - kTileRows, 1)); });
  k.when(
      first == 0, [&] { forSums(block, [&](int64_t number, const Index &) { registers.zero(number); }); },
      [&] {
        forSums(block, [&](int64_t number, const Index &address) {
          registers.load(number, address, k.index(gemm.width * kSumBytes));
        });
      });
  Index left = leftAt + block * (steps * (kBlockRows * kTileDepth));
  auto leftOf = [&](const Index &step) { return left + step * (kBlockRows * kTileDepth); };
  k.rolledLoop(first, minimum(end, whole), 1, [&](Index step) {
    addProducts(leftOf(step), rightAt + step * (kWords * gemm.stepBytes));
    prefetch(block, step);
  });
  if (hasTail)
    k.when((end == steps) & (whole < steps), [&] { addProducts(leftOf(whole), rightTail.address()); });
  forSums(block, [&](int64_t number, const Index &address) {
    registers.store(number, address, k.index(gemm.width * kSumBytes));
  });
  k.when(end == steps, [&] { gemm.emitRows(gemm.row + block * kBlockRows, placeOf(block), height); });
}

/// Runs `body` for the tiles of a block's sums and where they are kept.
void IntegerGemmEmitter::Tiles::forSums(const Index &block, function_ref<void(int64_t, const Index &)> body) {
  int64_t stride = gemm.width * kSumBytes;
  Index first = sumsAt + placeOf(block) * stride;
  for (int64_t i = 0; i < 2; ++i)
    for (int64_t j = 0; j < 2; ++j)
      body(TileRegisters::sum(i, j), first + (i * kTileRows * stride + j * kTileBytes));
}

/// One step along the sum, of the rows and the panel at these addresses.
void IntegerGemmEmitter::Tiles::addProducts(const Index &left, const Index &right) {
  Index ofRows = k.index(kTileDepth), ofWords = k.index(gemm.stepBytes);
  for (int64_t j = 0; j < 2; ++j)
    registers.load(TileRegisters::columns(j), right + j * kTileBytes, ofWords);
  for (int64_t i = 0; i < 2; ++i) {
    registers.load(TileRegisters::rows(i), left + i * (kTileRows * kTileDepth), ofRows);
    for (int64_t j = 0; j < 2; ++j)
      registers.multiply("llvm.x86.tdpbusd", i, j);
  }
}

/// The blocks of a task together ask for the next panel.
void IntegerGemmEmitter::Tiles::prefetch(const Index &block, const Index &step) {
  Index next = minimum(gemm.panelAt + 1, gemm.allPanels - 1);
  Index at = next * gemm.panelBytes + step * (kStepLines * kTileBytes) + block * pieceBytes;
  k.rolledLoop(0, pieceBytes, kTileBytes, [&](Index byte) {
    memref::PrefetchOp::create(k.b, k.loc, gemm.flatPanels, ValueRange{at + byte}, /*isWrite=*/false,
                               /*localityHint=*/2, /*isDataCache=*/true);
  });
}

void IntegerGemmEmitter::emitTileTasks(const Mask &isWanted) {
  Index groups = ceilDiv(rows, kGroupRows);
  k.parallel(select(isWanted, batches * numPanels * groups, k.index(0)),
             [&](Index task) { Tiles(*this).emit(task, groups); });
}

} // namespace attn
