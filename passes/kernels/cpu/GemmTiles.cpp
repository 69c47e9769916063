// The sums of a product by AMX: tiles of 16 x 16, two by two of them at a time.
#include "passes/kernels/cpu/GemmEmitter.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include <algorithm>

using namespace mlir;

namespace attn {

namespace {

constexpr int64_t kTileRows = 16;
constexpr int64_t kTileColumns = 16; // of sums, and of B in pairs of rows
constexpr int64_t kTileDepth = 32;   // elements of A's rows, rows of B
constexpr int64_t kBlockRows = 2 * kTileRows;
constexpr int64_t kTileBytes = 64; // a row of any tile
// While a part of the panel stays in the first-level cache, so many rows pass it.
constexpr int64_t kGroupBlocks = 4, kGroupRows = kGroupBlocks * kBlockRows;
constexpr int64_t kCachedSteps = 8;
constexpr int64_t kHalfBytes = 2, kSumBytes = 4;

// The eight tile registers.
constexpr int64_t sumTile(int64_t i, int64_t j) { return 2 * i + j; }
constexpr int64_t rowTile(int64_t i) { return 4 + i; }
constexpr int64_t columnTile(int64_t j) { return 6 + j; }

} // namespace

/// Emits the tasks of one kernel.
class GemmEmitter::Tiles {
public:
  Tiles(GemmEmitter &gemm) : gemm(gemm), b(gemm.b), loc(gemm.loc), spec(gemm.spec) {}

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
  void call(StringRef name, ValueRange operands) {
    LLVM::CallIntrinsicOp::create(b, loc, b.getStringAttr(name), operands);
  }
  Value tile(int64_t number) { return arith::ConstantOp::create(b, loc, b.getI8IntegerAttr(number)); }
  Value addressOf(Value buffer) { return memref::ExtractAlignedPointerAsIndexOp::create(b, loc, buffer); }
  Value pointer(Value address) {
    Value number = arith::IndexCastOp::create(b, loc, b.getI64Type(), address);
    return LLVM::IntToPtrOp::create(b, loc, LLVM::LLVMPointerType::get(b.getContext()), number);
  }
  void access(StringRef name, int64_t number, Value address, int64_t stride) {
    Value bytes = arith::ConstantOp::create(b, loc, b.getI64IntegerAttr(stride));
    call(name, {tile(number), pointer(address), bytes});
  }
  void branch(Value condition, function_ref<void()> then, function_ref<void()> otherwise = nullptr);

  void copyTails();
  void configure(Value top, Value bottom);
  void emitBlocks(const Blocks &blocks);
  void emitPass(const Blocks &blocks, Value firstStep, Value endStep, bool isFirst, bool isTail);
  void moveSums(StringRef name, Value block, bool isHigh);
  void emitStep(Value block, bool isHigh, Value step, bool isTail);
  void prefetch(Value block, Value step);

  GemmEmitter &gemm;
  OpBuilder &b;
  Location loc;
  const GemmSpec &spec;
  SmallVector<Value> rows; // addresses of A's parts
  Value panels, sums, tails, tailBuffer, config;
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
  config = scratch({64}, b.getI8Type());
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
  call("llvm.x86.tilerelease", {});
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

/// Gives the tiles of the upper sums `top` rows and those below `bottom`, all
/// others 16; each row has 64 bytes. All tiles are zero then.
void GemmEmitter::Tiles::configure(Value top, Value bottom) {
  SmallVector<int8_t> bytes(64, 0);
  bytes[0] = 1; // the palette of 8 tiles of 1 KB
  for (int64_t n = 0; n < 8; ++n) {
    bytes[16 + 2 * n] = kTileBytes;
    bytes[48 + n] = kTileRows;
  }
  auto type = VectorType::get({64}, b.getI8Type());
  Value all = arith::ConstantOp::create(b, loc, DenseElementsAttr::get(type, ArrayRef<int8_t>(bytes)));
  vector::StoreOp::create(b, loc, all, config, gemm.zero);
  auto setRows = [&](Value count, int64_t number) {
    Value byte = arith::IndexCastOp::create(b, loc, b.getI8Type(), count);
    memref::StoreOp::create(b, loc, byte, config, constant(48 + number));
  };
  for (int64_t i = 0; i < 2; ++i)
    for (int64_t number : {sumTile(i, 0), sumTile(i, 1), rowTile(i)})
      setRows(i == 0 ? top : bottom, number);
  call("llvm.x86.ldtilecfg", pointer(addressOf(config)));
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
      call("llvm.x86.tilezero", tile(number));
  else
    moveSums("llvm.x86.tileloadd64", block, blocks.isHigh);
  scf::ForOp overSteps = gemm.createLoop(firstStep, endStep, ValueRange());
  {
    OpBuilder::InsertionGuard inner(b);
    b.setInsertionPointToStart(overSteps.getBody());
    emitStep(block, blocks.isHigh, overSteps.getInductionVar(), isTail);
    prefetch(block, overSteps.getInductionVar());
  }
  moveSums("llvm.x86.tilestored64", block, blocks.isHigh);
}

void GemmEmitter::Tiles::moveSums(StringRef name, Value block, bool isHigh) {
  int64_t stride = gemm.width * kSumBytes;
  Value first = add(sums, mul(block, kBlockRows * stride));
  for (int64_t i = 0; i < (isHigh ? 2 : 1); ++i)
    for (int64_t j = 0; j < 2; ++j)
      access(name, sumTile(i, j), add(first, constant(i * kTileRows * stride + j * kTileBytes)), stride);
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
      access("llvm.x86.tileloadd64", rowTile(i), add(add(base, place), constant(i * kTileRows * rowStride)), rowStride);
  };
  int64_t loaded = -1;
  for (int64_t right = 0; right < spec.parts; ++right) {
    for (int64_t j = 0; j < 2; ++j)
      access("llvm.x86.tileloadd64", columnTile(j),
             add(panel, constant(2 * right * gemm.width * kHalfBytes + j * kTileBytes)), pairStride);
    int64_t count = spec.parts - right;
    for (int64_t n = 0; n < count; ++n) {
      int64_t left = right % 2 ? n : count - 1 - n;
      if (left != loaded)
        loadRows(loaded = left);
      for (int64_t i = 0; i < height; ++i)
        for (int64_t j = 0; j < 2; ++j)
          call("llvm.x86.tdpbf16ps", {tile(sumTile(i, j)), tile(rowTile(i)), tile(columnTile(j))});
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
