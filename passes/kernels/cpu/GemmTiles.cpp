// The sums of a product by AMX: tiles of 16 x 16, two by two of them at a time.
#include "passes/kernels/cpu/GemmEmitter.h"
#include "passes/kernels/cpu/TileRegisters.h"

#include <algorithm>

using namespace mlir;

namespace attn {

namespace {

constexpr int64_t kTileRows = TileRegisters::kRows;
constexpr int64_t kTileBytes = TileRegisters::kBytes;
constexpr int64_t kBlockRows = TileRegisters::kBlock;
constexpr int64_t kTileDepth = 32; // elements of A's rows, rows of B
constexpr int64_t kGroupRows = PanelCut::kGroupRows, kGroupBlocks = kGroupRows / kBlockRows;
// While a part of the panel stays in the first-level cache, a group of rows passes it.
constexpr int64_t kCachedSteps = 8;
constexpr int64_t kHalfBytes = 2, kSumBytes = 4;

} // namespace

/// Emits the tasks of one kernel.
class GemmEmitter::Tiles {
public:
  explicit Tiles(GemmEmitter &gemm)
      : gemm(gemm), k(gemm.k), spec(gemm.spec), hasTail(spec.k % kTileDepth), registers(k) {}

  void emit(const Index &task);

private:
  /// Rows of A for the next pass: [begin, end) of blocks of 32 rows, of which the
  /// last 16 are left out unless `isHigh`.
  struct Blocks {
    Index begin, end;
    bool isHigh;
  };

  void copyTails();
  void emitBlocks(const Blocks &blocks);
  void emitPass(const Blocks &blocks, const Index &firstStep, const Index &endStep, bool isFirst, bool isTail);
  void forSums(const Index &block, bool isHigh, function_ref<void(int64_t number, Index address, Index stride)> body);
  void emitStep(const Index &block, bool isHigh, const Index &step, bool isTail);
  void prefetch(const Index &block, const Index &step);

  GemmEmitter &gemm;
  Code &k;
  const GemmSpec &spec;
  const bool hasTail; ///< the last step fills no tile
  TileRegisters registers;
  Buffer tails;              ///< of A's rows, by part
  SmallVector<Index> rowsAt; ///< addresses: of A's parts
  Index panelsAt, sumsAt, tailsAt;
};

/// A task is one panel and up to 128 rows, whose sums pass through memory.
void GemmEmitter::Tiles::emit(const Index &task) {
  gemm.scratch = k.scratch({kGroupRows, gemm.width}, gemm.f32);
  gemm.takeGroup(task);
  for (const Buffer &part : gemm.rowParts)
    rowsAt.push_back(part.address());
  panelsAt = gemm.panels.address();
  sumsAt = gemm.scratch.address();
  if (hasTail) {
    tails = k.scratch({spec.parts, kGroupRows, kTileDepth}, k.b.getBF16Type());
    tailsAt = tails.address();
    copyTails();
  }

  Index zero = k.index(0), full = k.index(kTileRows);
  Index whole = gemm.tileHeight / kBlockRows, rest = gemm.tileHeight % kBlockRows, end = whole + 1;
  bool isOpen = ShapedType::isDynamic(spec.m);
  if (isOpen || spec.m >= kBlockRows)
    k.when(whole > 0, [&] {
      registers.configure(full, full);
      emitBlocks({zero, whole, /*isHigh=*/true});
    });
  // A tile of fewer rows costs as much less.
  auto emitLow = [&] {
    registers.configure(rest, full);
    emitBlocks({whole, end, /*isHigh=*/false});
  };
  auto emitHigh = [&] {
    registers.configure(full, rest - full);
    emitBlocks({whole, end, /*isHigh=*/true});
  };
  if (isOpen)
    k.when(rest > 0, [&] { k.when(rest > full, emitHigh, emitLow); });
  else if (spec.m % kBlockRows)
    k.when(rest > 0, [&] { spec.m % kBlockRows > kTileRows ? emitHigh() : emitLow(); });
  registers.release();
  gemm.emitStaged();
}

/// The last elements of A's rows where they fill no tile, zeros behind them:
/// what follows in memory may be another row's, or nobody's.
void GemmEmitter::Tiles::copyTails() {
  int64_t whole = spec.k / kTileDepth * kTileDepth;
  k.loop(0, gemm.tileHeight, 1, [&](Index at) {
    for (auto [part, buffer] : llvm::enumerate(gemm.rowParts))
      tails.setVector(buffer.first(spec.k - whole, kTileDepth, gemm.row + at, whole), int64_t(part), at, 0);
  });
}

void GemmEmitter::Tiles::emitBlocks(const Blocks &blocks) {
  int64_t steps = spec.k / kTileDepth, cached = std::max<int64_t>(kCachedSteps / spec.parts, 1);
  // One block meets its panel once: no cache to keep it in.
  if (!ShapedType::isDynamic(spec.m) && spec.m <= kBlockRows)
    cached = steps;
  if (steps)
    emitPass(blocks, k.index(0), k.index(std::min(steps, cached)), /*isFirst=*/true, /*isTail=*/false);
  if (steps > cached)
    k.loop(1, static_cast<int64_t>(llvm::divideCeil(steps, cached)), 1, [&](Index pass) {
      Index first = pass * cached;
      emitPass(blocks, first, minimum(first + cached, k.index(steps)), /*isFirst=*/false, /*isTail=*/false);
    });
  if (hasTail)
    emitPass(blocks, k.index(steps), k.index(steps + 1), /*isFirst=*/steps == 0, /*isTail=*/true);
}

/// Adds the products of steps [firstStep, endStep) to the sums of each block.
void GemmEmitter::Tiles::emitPass(const Blocks &blocks, const Index &firstStep, const Index &endStep, bool isFirst,
                                  bool isTail) {
  k.loop(blocks.begin, blocks.end, 1, [&](Index block) {
    if (isFirst)
      for (int64_t number = 0; number < (blocks.isHigh ? 4 : 2); ++number)
        registers.zero(number);
    else
      forSums(block, blocks.isHigh,
              [&](int64_t number, Index address, Index stride) { registers.load(number, address, stride); });
    k.loop(firstStep, endStep, 1, [&](Index step) {
      emitStep(block, blocks.isHigh, step, isTail);
      prefetch(block, step);
    });
    forSums(block, blocks.isHigh,
            [&](int64_t number, Index address, Index stride) { registers.store(number, address, stride); });
  });
}

/// Runs `body` for the tiles of a block's sums and where they are kept.
void GemmEmitter::Tiles::forSums(const Index &block, bool isHigh, function_ref<void(int64_t, Index, Index)> body) {
  int64_t stride = gemm.width * kSumBytes;
  Index first = sumsAt + block * (kBlockRows * stride);
  for (int64_t i = 0; i < (isHigh ? 2 : 1); ++i)
    for (int64_t j = 0; j < 2; ++j)
      body(TileRegisters::sum(i, j), first + (i * kTileRows * stride + j * kTileBytes), k.index(stride));
}

/// One step of 32 along the sum. Of factors in parts, neighbouring products
/// share the tiles of one side.
void GemmEmitter::Tiles::emitStep(const Index &block, bool isHigh, const Index &step, bool isTail) {
  int64_t height = isHigh ? 2 : 1;
  int64_t rowStride = (isTail ? kTileDepth : spec.k) * kHalfBytes, pairStride = gemm.rowElements * kHalfBytes;
  Index place =
      isTail ? block * (kBlockRows * rowStride) : (gemm.row + block * kBlockRows) * rowStride + step * kTileBytes;
  Index panel = panelsAt + gemm.panelAt * gemm.panelElements * kHalfBytes + step * (kTileDepth / 2 * pairStride);
  auto loadRows = [&](int64_t part) {
    Index base = isTail ? tailsAt + part * kGroupRows * rowStride : rowsAt[part];
    for (int64_t i = 0; i < height; ++i)
      registers.load(TileRegisters::rows(i), base + place + i * kTileRows * rowStride, k.index(rowStride));
  };
  int64_t loaded = -1;
  for (int64_t right = 0; right < spec.parts; ++right) {
    for (int64_t j = 0; j < 2; ++j)
      registers.load(TileRegisters::columns(j), panel + (2 * right * gemm.width * kHalfBytes + j * kTileBytes),
                     k.index(pairStride));
    int64_t count = spec.parts - right;
    for (int64_t n = 0; n < count; ++n) {
      int64_t left = right % 2 ? n : count - 1 - n;
      if (left != loaded)
        loadRows(loaded = left);
      for (int64_t i = 0; i < height; ++i)
        for (int64_t j = 0; j < 2; ++j)
          registers.multiply("llvm.x86.tdpbf16ps", i, j);
    }
  }
}

/// The blocks of a group together ask for the next panel.
void GemmEmitter::Tiles::prefetch(const Index &block, const Index &step) {
  int64_t lines = kTileDepth / 2 * gemm.rowElements * kHalfBytes / kTileBytes, blocks = kGroupBlocks;
  if (!ShapedType::isDynamic(spec.m))
    blocks = std::clamp<int64_t>(llvm::divideCeil(spec.m, kBlockRows), 1, kGroupBlocks);
  Index next = minimum(gemm.panelAt + 1, gemm.allPanels - 1);
  int64_t perBlock = llvm::divideCeil(lines, blocks), lineElements = kTileBytes / kHalfBytes;
  Index at = next * gemm.panelElements + step * (lines * lineElements) + block * (perBlock * lineElements);
  for (int64_t line = 0; line < perBlock; ++line)
    gemm.flatPanels.prefetch(at + line * lineElements);
}

void GemmEmitter::emitTileTasks(const Mask &hasTiles) {
  k.parallel(select(hasTiles, countGroups(), k.index(0)), [&](Index task) { Tiles(*this).emit(task); });
}

void GemmSpec::useTiles(TargetAttr target) {
  hasTiles = true;
  panelDepth = kTileDepth;
  tileVectors = kBlockRows / lanes;
  tileRows = parts > 1 ? 8 : 12; // without tiles: 24 sums, 2 factors, or 16, 6 and 3
  fitCaches(target);
  chooseGroups(target, m, k * kHalfBytes * parts);
}

} // namespace attn
