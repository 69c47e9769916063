// The sums of a product of bytes by AMX: tiles of 16 x 16, two by two of them at a time.
#include "passes/kernels/cpu/IntegerGemmEmitter.h"
#include "passes/kernels/cpu/PackRows.h"
#include "passes/kernels/cpu/TileRegisters.h"

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
constexpr int64_t kStepBytes = 2 * kTileRows * kTileBytes; // of a panel
constexpr int64_t kGroupBlocks = kGroupRows / kBlockRows;

} // namespace

/// Whether all of a panel stays in the first-level cache.
static bool isPanelCached(const IntegerGemmSpec &spec) {
  return !ShapedType::isDynamic(spec.k) && llvm::divideCeil(spec.k, kTileDepth) <= static_cast<uint64_t>(kCachedSteps);
}

/// Emits the tasks of one kernel.
class IntegerGemmEmitter::Tiles {
public:
  explicit Tiles(IntegerGemmEmitter &gemm)
      : gemm(gemm), k(gemm.k), spec(gemm.spec), hasTail(ShapedType::isDynamic(spec.k) || spec.k % kTileDepth),
        isOneBlock(!ShapedType::isDynamic(spec.m) && spec.m <= kBlockRows),
        isOnePass(isOneBlock || isPanelCached(spec)), sumStride(gemm.width * kSumBytes), registers(k) {}

  void emit(const Index &task);

private:
  void copyTail();
  void emitBlock(const Index &block, const Index &first, const Index &end);
  void begin(const Index &block, const Index &first, const Mask &isWhole);
  /// The row of the scratch where a block's sums are kept.
  Index placeOf(const Index &block) { return isOnePass ? k.index(0) : block * kBlockRows; }
  Index sumOf(const Index &block, int64_t number);
  void store(const Index &block, int64_t number) { registers.store(number, sumOf(block, number), k.index(sumStride)); }
  void start(const Index &block, const Index &first, int64_t number);
  void addProducts(const Index &left, const Index &right, bool keepsRows,
                   function_ref<void(int64_t number)> beforeProduct = nullptr);
  Index nextPanel(const Index &block, const Index &step);
  void prefetch(const Index &at);

  IntegerGemmEmitter &gemm;
  Code &k;
  const IntegerGemmSpec &spec;
  const bool hasTail;    ///< the last step fills no tile, or may not
  const bool isOneBlock; ///< that of a task, which meets its panel once
  const bool isOnePass;  ///< the sums of a block are made at once
  const int64_t sumStride;
  TileRegisters registers;
  Buffer rightTail;
  Index steps, whole; ///< of 64, and those that B has all of
  Index lastBlock;
  Index leftAt, rightAt, sumsAt; ///< addresses: of the task's rows, of its panel, of its sums
  Index pieceBytes;              ///< what a block asks for of a step of the next panel
};

/// A task is one panel and up to 128 rows, whose sums pass through memory.
void IntegerGemmEmitter::Tiles::emit(const Index &task) {
  gemm.scratch = k.scratch({isOnePass ? kBlockRows : kGroupRows, gemm.width}, gemm.i32);
  Index group = gemm.takeGroup(task), stepsOfBlock = gemm.packedRows.dim(2) * (kBlockRows * kTileDepth);
  Index block = gemm.batch * gemm.packedRows.dim(1) + group * kGroupBlocks;
  leftAt = gemm.packedRows.address() + block * stepsOfBlock;
  steps = gemm.packedRows.dim(2);
  whole = gemm.depth / kTileDepth;
  rightAt = gemm.panels.address() + gemm.panelAt * gemm.panelBytes;
  sumsAt = gemm.scratch.address();
  if (hasTail)
    copyTail();
  Index blocks = ceilDiv(gemm.tileHeight, kBlockRows);
  lastBlock = blocks - 1;
  pieceBytes = ceilDiv(k.index(kStepBytes / kTileBytes), blocks) * kTileBytes;

  // A part of the panel at a time, which stays in the first-level cache for all blocks.
  auto pass = [&](const Index &first, const Index &end) {
    k.loop(0, blocks, 1, [&](Index block) { emitBlock(block, first, end); });
  };
  if (isOnePass) {
    pass(k.index(0), steps);
  } else {
    Index passes = select(blocks == 1, k.index(1), ceilDiv(steps, kCachedSteps));
    Index perPass = ceilDiv(steps, passes);
    k.loop(0, passes, 1, [&](Index number) { pass(number * perPass, minimum((number + 1) * perPass, steps)); });
    markLong(k.b);
  }
  for (int64_t number = 0; number < 4; ++number)
    store(lastBlock, number);
  registers.release();
  Index done = lastBlock * kBlockRows;
  gemm.emitRows(gemm.row + done, placeOf(lastBlock), gemm.tileHeight - done);
}

/// The last step of a panel: what follows in memory may be nobody's. A's rows have zeros there, so that any bytes do.
void IntegerGemmEmitter::Tiles::copyTail() {
  rightTail = k.scratch({kWords, gemm.stepBytes}, gemm.i8);
  k.when(whole < steps, [&] {
    Index last = gemm.panels.dim(1) - 1;
    k.loop(0, kWords, 1, [&](Index word) {
      for (int64_t at = 0; at < gemm.stepBytes; at += kTileBytes)
        rightTail.setVector(gemm.panels.vector(kTileBytes, gemm.panelAt, minimum(whole * kWords + word, last), at),
                            word, at);
    });
  });
}

/// Adds the products of steps [first, end), one at least, to the sums of a block. What is left to do for the block
/// before happens on the way, while the tiles are at work: its sums leave their registers one by one as this block
/// takes these, and of its rows a few are finished with each step.
void IntegerGemmEmitter::Tiles::emitBlock(const Index &block, const Index &first, const Index &end) {
  Mask isWhole = (block > 0) & (gemm.tileHeight - block * kBlockRows >= kBlockRows);
  begin(block, first, isWhole);
  Index before = block - 1, left = leftAt + (block * steps + first) * (kBlockRows * kTileDepth);
  Index finished = select((end == steps) & (block > 0), k.index(kBlockRows), k.index(0));
  Index count = end - first, perStep = ceilDiv(k.index(kBlockRows), count);
  // Addresses are carried: worked out from the number of the step, they don't fit the registers.
  std::tuple<Index, Index, Index, Index> places(left, rightAt + first * kStepBytes, nextPanel(block, first),
                                                k.index(0));
  k.loop(first, end, 1, places, [&](Index step, Index left, Index right, Index next, Index row) {
    Index columns = hasTail ? select(step < whole, right, rightTail.address()) : right;
    auto addOnly = [&] {
      k.when(
          lastBlock == 0, [&] { addProducts(left, columns, /*keepsRows=*/true); },
          [&] { addProducts(left, columns, /*keepsRows=*/false); });
    };
    auto addFirst = [&] {
      addProducts(left, columns, /*keepsRows=*/false, [&](int64_t number) {
        store(before, number);
        start(block, first, number);
      });
    };
    if (isOneBlock)
      addProducts(left, columns, /*keepsRows=*/true);
    else
      k.when((step == first) & isWhole, addFirst, addOnly);
    prefetch(next);
    Index rest = row;
    if (!isOneBlock) {
      Index count = minimum(perStep, finished - row);
      gemm.emitRows(gemm.row + before * kBlockRows + row, placeOf(before) + row, count);
      rest = row + count;
    }
    return std::tuple(left + kBlockRows * kTileDepth, right + kStepBytes, next + kStepBytes, rest);
  });
}

/// Makes the registers ready for a block, where they are not as the block before left them.
void IntegerGemmEmitter::Tiles::begin(const Index &block, const Index &first, const Mask &isWhole) {
  k.when(!isWhole, [&] {
    if (!isOneBlock) {
      Index before = select(block == 0, lastBlock, block - 1);
      k.when((block > 0) | (first > 0), [&] {
        for (int64_t number = 0; number < 4; ++number)
          store(before, number);
      });
    }
    // A tile of fewer rows costs as much less. The lower one has a row at least, of which nothing is kept.
    Index height = minimum(k.index(kBlockRows), gemm.tileHeight - block * kBlockRows);
    registers.configure(minimum(height, kTileRows), maximum(height - kTileRows, 1));
    for (int64_t number = 0; number < 4; ++number)
      start(block, first, number);
  });
}

/// Where a sum of a block is kept.
Index IntegerGemmEmitter::Tiles::sumOf(const Index &block, int64_t number) {
  int64_t inBlock = number / 2 * kTileRows * sumStride + number % 2 * kTileBytes;
  return sumsAt + placeOf(block) * sumStride + inBlock;
}

/// A sum is zero before its first step, or what the last pass left.
void IntegerGemmEmitter::Tiles::start(const Index &block, const Index &first, int64_t number) {
  if (isOnePass)
    return registers.zero(number);
  k.when(
      first == 0, [&] { registers.zero(number); },
      [&] { registers.load(number, sumOf(block, number), k.index(sumStride)); });
}

/// One step along the sum, of the rows and the panel at these addresses. The first-level cache keeps what is read again
/// soonest: rows that the next panel meets at once, else the panel.
void IntegerGemmEmitter::Tiles::addProducts(const Index &left, const Index &right, bool keepsRows,
                                            function_ref<void(int64_t)> beforeProduct) {
  Index ofRows = k.index(kTileDepth), ofWords = k.index(gemm.stepBytes);
  auto load = [&](bool keeps, int64_t number, const Index &address, const Index &stride) {
    keeps ? registers.load(number, address, stride) : registers.loadOnce(number, address, stride);
  };
  for (int64_t j = 0; j < 2; ++j)
    load(!keepsRows, TileRegisters::columns(j), right + j * kTileBytes, ofWords);
  for (int64_t i = 0; i < 2; ++i) {
    load(keepsRows, TileRegisters::rows(i), left + i * (kTileRows * kTileDepth), ofRows);
    for (int64_t j = 0; j < 2; ++j) {
      if (beforeProduct)
        beforeProduct(TileRegisters::sum(i, j));
      registers.multiply("llvm.x86.tdpbusd", i, j);
    }
  }
}

/// Where a block asks for its share of a step of the next panel: those of a task together ask for all of it.
Index IntegerGemmEmitter::Tiles::nextPanel(const Index &block, const Index &step) {
  Index next = minimum(gemm.panelAt + 1, gemm.allPanels - 1);
  return next * gemm.panelBytes + step * kStepBytes + block * pieceBytes;
}

void IntegerGemmEmitter::Tiles::prefetch(const Index &at) {
  constexpr int64_t kLeast = kStepBytes / kGroupBlocks; // the share of one of all blocks
  for (int64_t byte = 0; byte < kLeast; byte += kTileBytes)
    gemm.flatPanels.prefetch(at + byte);
  k.loop(kLeast, pieceBytes, kTileBytes, [&](Index byte) { gemm.flatPanels.prefetch(at + byte); });
}

void IntegerGemmEmitter::emitTileTasks(const Mask &isWanted) {
  hasRowSums = spec.columnZero != ZeroPoint::None; // to sum a row takes half as long as to multiply it by a panel
  k.parallel(select(isWanted, countGroups(), k.index(0)), [&](Index task) { Tiles(*this).emit(task); });
  hasRowSums = false;
}

} // namespace attn
