// The sums of a product by AMX: tiles of 16 x 16, two by two of them at a time.
#include "passes/kernels/cpu/GemmEmitter.h"
#include "passes/kernels/cpu/TileRegisters.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include <algorithm>

using namespace mlir;

namespace attn {

namespace {

constexpr int64_t kTileRows = TileRegisters::kRows;
constexpr int64_t kTileBytes = TileRegisters::kBytes;
constexpr int64_t kBlockRows = TileRegisters::kBlock;
constexpr int64_t kTileDepth = 32; // elements of A's rows, rows of B
// While a part of the panel stays in the first-level cache, so many rows pass it.
constexpr int64_t kGroupBlocks = 4, kGroupRows = kGroupBlocks * kBlockRows;
constexpr int64_t kCachedSteps = 8;
constexpr int64_t kHalfBytes = 2, kSumBytes = 4;

} // namespace

/// Emits the tasks of one kernel.
class GemmEmitter::Tiles {
public:
  Tiles(GemmEmitter &gemm) : gemm(gemm), b(gemm.b), loc(gemm.loc), k(b, loc), spec(gemm.spec), registers(k) {}

  void emit(Value task, Value groups);

private:
  /// Rows of A for the next pass: [begin, end) of blocks of 32 rows, of which the
  /// last 16 are left out unless `isHigh`.
  struct Blocks {
    Value begin, end;
    bool isHigh;
  };

  Value constant(int64_t value) { return gemm.constant(value); }
  Value add(Value x, Value y) { return gemm.add(x, y); }
  Value mul(Value x, int64_t y) { return gemm.mul(x, constant(y)); }
  Value addressOf(Value buffer) { return k.asBuffer(buffer).address(); }
  void branch(Value condition, function_ref<void()> then, function_ref<void()> otherwise = nullptr);

  Index asIndex(Value x) { return k.asIndex(x); }
  void configure(Value top, Value bottom) { registers.configure(asIndex(top), asIndex(bottom)); }

  void copyTails();
  void emitBlocks(const Blocks &blocks);
  void emitPass(const Blocks &blocks, Value firstStep, Value endStep, bool isFirst, bool isTail);
  void forSums(Value block, bool isHigh, function_ref<void(int64_t number, Index address, Index stride)> body);
  void emitStep(Value block, bool isHigh, Value step, bool isTail);
  void prefetch(Value block, Value step);

  GemmEmitter &gemm;
  OpBuilder &b;
  Location loc;
  Code k;
  const GemmSpec &spec;
  TileRegisters registers;
  SmallVector<Value> rows; // addresses of A's parts
  Value panels, sums, tails, tailBuffer;
};

void GemmEmitter::Tiles::branch(Value condition, function_ref<void()> then, function_ref<void()> otherwise) {
  auto choice = scf::IfOp::create(b, loc, condition, static_cast<bool>(otherwise));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(choice.thenBlock());
  then();
  if (!otherwise)
    return;
  b.setInsertionPointToStart(choice.elseBlock());
  otherwise();
}

/// A task is one panel and up to 128 rows, whose sums pass through memory.
void GemmEmitter::Tiles::emit(Value task, Value groups) {
  auto scratch = [&](ArrayRef<int64_t> shape, Type type) -> Value {
    return memref::AllocaOp::create(b, loc, MemRefType::get(shape, type), ValueRange(), b.getI64IntegerAttr(64));
  };
  gemm.scratch = scratch({kGroupRows, gemm.width}, b.getF32Type());
  Value inChunk = groups, firstGroup = gemm.zero;
  if (spec.tileGroups) {
    Value size = constant(spec.tileGroups), perChunk = gemm.mul(gemm.numPanels, size);
    firstGroup = gemm.mul(arith::DivUIOp::create(b, loc, task, perChunk), size);
    task = arith::RemUIOp::create(b, loc, task, perChunk);
    inChunk = arith::MinUIOp::create(b, loc, size, arith::SubIOp::create(b, loc, groups, firstGroup));
  }
  gemm.panel = gemm.panelAt = arith::DivUIOp::create(b, loc, task, inChunk);
  gemm.firstColumn = mul(gemm.panel, gemm.width);
  gemm.row = mul(add(firstGroup, arith::RemUIOp::create(b, loc, task, inChunk)), kGroupRows);
  gemm.tileHeight =
      arith::MinUIOp::create(b, loc, constant(kGroupRows), arith::SubIOp::create(b, loc, gemm.rows, gemm.row));
  for (Value part : gemm.rowParts)
    rows.push_back(addressOf(part));
  panels = addressOf(gemm.panels);
  sums = addressOf(gemm.scratch);
  if (spec.k % kTileDepth) {
    tailBuffer = scratch({spec.parts, kGroupRows, kTileDepth}, b.getBF16Type());
    tails = addressOf(tailBuffer);
    copyTails();
  }

  Value whole = arith::DivUIOp::create(b, loc, gemm.tileHeight, constant(kBlockRows));
  Value rest = arith::RemUIOp::create(b, loc, gemm.tileHeight, constant(kBlockRows));
  Value full = constant(kTileRows);
  auto isGreater = [&](Value x, Value y) -> Value {
    return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ugt, x, y);
  };
  bool isOpen = ShapedType::isDynamic(spec.m);
  if (isOpen || spec.m >= kBlockRows)
    branch(isGreater(whole, gemm.zero), [&] {
      configure(full, full);
      emitBlocks({gemm.zero, whole, /*isHigh=*/true});
    });
  // A tile of fewer rows costs as much less.
  Value end = add(whole, constant(1));
  auto emitLow = [&] {
    configure(rest, full);
    emitBlocks({whole, end, /*isHigh=*/false});
  };
  auto emitHigh = [&] {
    configure(full, arith::SubIOp::create(b, loc, rest, full));
    emitBlocks({whole, end, /*isHigh=*/true});
  };
  if (isOpen)
    branch(isGreater(rest, gemm.zero), [&] { branch(isGreater(rest, full), emitHigh, emitLow); });
  else if (spec.m % kBlockRows)
    branch(isGreater(rest, gemm.zero), [&] { spec.m % kBlockRows > kTileRows ? emitHigh() : emitLow(); });
  registers.release();
  gemm.emitStaged();
}

/// The last elements of A's rows where they fill no tile, zeros behind them:
/// what follows in memory may be another row's, or nobody's.
void GemmEmitter::Tiles::copyTails() {
  auto halves = VectorType::get({kTileDepth}, b.getBF16Type());
  scf::ForOp loop = gemm.createLoop(gemm.zero, gemm.tileHeight, ValueRange());
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value none = arith::ConstantOp::create(b, loc, b.getZeroAttr(halves));
  Value mask = vector::ConstantMaskOp::create(b, loc, VectorType::get({kTileDepth}, b.getI1Type()),
                                              ArrayRef<int64_t>{spec.k % kTileDepth});
  Value from = constant(spec.k / kTileDepth * kTileDepth), at = loop.getInductionVar();
  for (auto [part, buffer] : llvm::enumerate(gemm.rowParts)) {
    Value tail = vector::MaskedLoadOp::create(b, loc, halves, buffer, ValueRange{add(gemm.row, at), from}, mask, none);
    vector::StoreOp::create(b, loc, tail, tailBuffer, ValueRange{constant(part), at, gemm.zero});
  }
}

void GemmEmitter::Tiles::emitBlocks(const Blocks &blocks) {
  int64_t steps = spec.k / kTileDepth, cached = std::max<int64_t>(kCachedSteps / spec.parts, 1);
  // One block meets its panel once: no cache to keep it in.
  if (!ShapedType::isDynamic(spec.m) && spec.m <= kBlockRows)
    cached = steps;
  if (steps)
    emitPass(blocks, gemm.zero, constant(std::min(steps, cached)), /*isFirst=*/true, /*isTail=*/false);
  if (steps > cached) {
    scf::ForOp loop = gemm.createLoop(constant(1), constant(llvm::divideCeil(steps, cached)), ValueRange());
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Value first = mul(loop.getInductionVar(), cached);
    Value end = arith::MinUIOp::create(b, loc, add(first, constant(cached)), constant(steps));
    emitPass(blocks, first, end, /*isFirst=*/false, /*isTail=*/false);
  }
  if (tails)
    emitPass(blocks, constant(steps), constant(steps + 1), /*isFirst=*/steps == 0, /*isTail=*/true);
}

/// Adds the products of steps [firstStep, endStep) to the sums of each block.
void GemmEmitter::Tiles::emitPass(const Blocks &blocks, Value firstStep, Value endStep, bool isFirst, bool isTail) {
  scf::ForOp overBlocks = gemm.createLoop(blocks.begin, blocks.end, ValueRange());
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(overBlocks.getBody());
  Value block = overBlocks.getInductionVar();
  if (isFirst)
    for (int64_t number = 0; number < (blocks.isHigh ? 4 : 2); ++number)
      registers.zero(number);
  else
    forSums(block, blocks.isHigh,
            [&](int64_t number, Index address, Index stride) { registers.load(number, address, stride); });
  scf::ForOp overSteps = gemm.createLoop(firstStep, endStep, ValueRange());
  {
    OpBuilder::InsertionGuard inner(b);
    b.setInsertionPointToStart(overSteps.getBody());
    emitStep(block, blocks.isHigh, overSteps.getInductionVar(), isTail);
    prefetch(block, overSteps.getInductionVar());
  }
  forSums(block, blocks.isHigh,
          [&](int64_t number, Index address, Index stride) { registers.store(number, address, stride); });
}

/// Runs `body` for the tiles of a block's sums and where they are kept.
void GemmEmitter::Tiles::forSums(Value block, bool isHigh, function_ref<void(int64_t, Index, Index)> body) {
  int64_t stride = gemm.width * kSumBytes;
  Value first = add(sums, mul(block, kBlockRows * stride));
  for (int64_t i = 0; i < (isHigh ? 2 : 1); ++i)
    for (int64_t j = 0; j < 2; ++j)
      body(TileRegisters::sum(i, j), asIndex(add(first, constant(i * kTileRows * stride + j * kTileBytes))),
           k.index(stride));
}

/// One step of 32 along the sum. Of factors in parts, neighbouring products
/// share the tiles of one side.
void GemmEmitter::Tiles::emitStep(Value block, bool isHigh, Value step, bool isTail) {
  int64_t height = isHigh ? 2 : 1;
  int64_t rowStride = (isTail ? kTileDepth : spec.k) * kHalfBytes, pairStride = gemm.rowElements * kHalfBytes;
  Value place = isTail ? mul(block, kBlockRows * rowStride)
                       : add(mul(add(gemm.row, mul(block, kBlockRows)), rowStride), mul(step, kTileBytes));
  Value panel = add(add(panels, mul(gemm.mul(gemm.panelAt, gemm.panelElements), kHalfBytes)),
                    mul(step, kTileDepth / 2 * pairStride));
  auto loadRows = [&](int64_t part) {
    Value base = isTail ? add(tails, constant(part * kGroupRows * rowStride)) : rows[part];
    for (int64_t i = 0; i < height; ++i)
      registers.load(TileRegisters::rows(i), asIndex(add(add(base, place), constant(i * kTileRows * rowStride))),
                     k.index(rowStride));
  };
  int64_t loaded = -1;
  for (int64_t right = 0; right < spec.parts; ++right) {
    for (int64_t j = 0; j < 2; ++j)
      registers.load(TileRegisters::columns(j),
                     asIndex(add(panel, constant(2 * right * gemm.width * kHalfBytes + j * kTileBytes))),
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
void GemmEmitter::Tiles::prefetch(Value block, Value step) {
  int64_t lines = kTileDepth / 2 * gemm.rowElements * kHalfBytes / kTileBytes, blocks = kGroupBlocks;
  if (!ShapedType::isDynamic(spec.m))
    blocks = std::clamp<int64_t>(llvm::divideCeil(spec.m, kBlockRows), 1, kGroupBlocks);
  Value last = arith::SubIOp::create(b, loc, gemm.numPanels, constant(1));
  Value next = arith::MinUIOp::create(b, loc, add(gemm.panelAt, constant(1)), last);
  int64_t perBlock = llvm::divideCeil(lines, blocks), lineElements = kTileBytes / kHalfBytes;
  Value at = add(add(gemm.mul(next, gemm.panelElements), mul(step, lines * lineElements)),
                 mul(block, perBlock * lineElements));
  for (int64_t line = 0; line < perBlock; ++line)
    memref::PrefetchOp::create(b, loc, gemm.flatPanels, ValueRange{add(at, constant(line * lineElements))},
                               /*isWrite=*/false, /*localityHint=*/2, /*isDataCache=*/true);
}

void GemmEmitter::emitTileTasks(Value hasTiles) {
  Value groups = arith::CeilDivUIOp::create(b, loc, rows, constant(kGroupRows));
  Value tasks = arith::SelectOp::create(b, loc, hasTiles, mul(numPanels, groups), zero);
  auto parallel = scf::ParallelOp::create(b, loc, ValueRange{zero}, ValueRange{tasks}, ValueRange{constant(1)});
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(parallel.getBody());
  Tiles(*this).emit(parallel.getInductionVars()[0], groups);
}

/// As many groups of A's rows as half the second-level cache holds, so that they
/// come once from beyond it while the panels pass.
void GemmSpec::useTiles(TargetAttr target) {
  hasTiles = true;
  panelDepth = kTileDepth;
  tileVectors = kBlockRows / lanes;
  tileRows = parts > 1 ? 8 : 12; // without tiles: 24 sums, 2 factors, or 16, 6 and 3
  chooseChunks(target);
  int64_t bytes = kGroupRows * k * kHalfBytes * parts;
  tileGroups = std::max<int64_t>(target.getL2() / 2 / std::max<int64_t>(bytes, 1), 1);
  if (!ShapedType::isDynamic(m) && tileGroups * kGroupRows >= m)
    tileGroups = 0;
}

} // namespace attn
