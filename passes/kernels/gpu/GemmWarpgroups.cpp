#include "passes/kernels/gpu/GemmEmitter.h"
#include "passes/kernels/gpu/Warpgroups.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

// Products by warpgroups, on sm_90a. A launch for each side rounds it, once for
// all tiles of the other, to pieces of a tile that are in memory what they are in
// shared memory. Of a block then one warp copies pieces into a ring, and two
// warpgroups have 64 rows each.

using namespace mlir;

namespace attn {

using Values = LaneBuilder::Values;

namespace {

constexpr int64_t kStages = 4, kConsumers = 2, kPackThreads = 256, kRows = kConsumers * Warpgroups::kRows;
constexpr int64_t kConsumerThreads = kConsumers * Warpgroups::kThreads;

GpuGemmSpec::Tile tileOf(int64_t columns) {
  // So that the epilogue goes over all rows at once.
  return {kRows, columns, kRows / 8, columns / 64, Warpgroups::kPanel, /*isMatrix=*/true};
}

class WarpgroupsGemm : public GpuGemmEmitter {
public:
  WarpgroupsGemm(OpBuilder &b, Location loc, const GpuGemmSpec &spec)
      : GpuGemmEmitter(b, loc, spec, tileOf(spec.warpgroupColumns)), w(k) {}

  void emitLaunches(ValueRange buffers, Value scratch);

private:
  static int64_t bytesOf(const Side &side) { return side.tile * Warpgroups::kRowBytes; }
  static int64_t elementsOf(const Side &side) { return bytesOf(side) / 4; }
  Value tilesOf(const Side &side) { return k.ceilDiv(side.extent, side.tile); }
  void pack(Side &side, Value offset);
  Values readPiece(const Side &side, Value base, Value isRow, Value depth);
  void multiply();
  void produce();
  Values sumUp();
  void finish(const Values &sums);

  Value barrier(bool isFull, Value slot) {
    return k.add(k.add(memory, (isFull ? 0 : 8 * kStages) + kStages * stageBytes()), k.mul(slot, 8));
  }
  Value stageAt(Value slot) { return k.add(memory, k.mul(slot, stageBytes())); }
  int64_t stageBytes() const { return bytesOf(sides[0]) + bytesOf(sides[1]); }
  void findSlot(Value panel) {
    slot = k.rem(panel, k.index(kStages)), parity = k.rem(k.div(panel, k.index(kStages)), k.index(2));
  }

  Warpgroups w;
  Value scratch, panels, numBatches; ///< the latter two from outside of launches
  Value begins[2];                   ///< of the sides in the scratch
  Value packed[2];                   ///< of the block's tiles in the scratch
  Value memory, slot, parity;
};

void WarpgroupsGemm::emitLaunches(ValueRange buffers, Value scratchBuffer) {
  prepare(buffers);
  scratch = scratchBuffer;
  panels = k.ceilDiv(numSums, Warpgroups::kPanel), numBatches = product(spec.batch);
  Value offset = k.index(0);
  for (auto [n, side] : llvm::enumerate(sides)) {
    begins[n] = offset;
    pack(side, offset);
    offset = k.add(offset, k.mul(k.mul(k.mul(numBatches, tilesOf(side)), panels), elementsOf(side)));
  }
  multiply();
}

/// A launch with a block for each tile and 64 of the sum.
void WarpgroupsGemm::pack(Side &side, Value offset) {
  OpBuilder::InsertionGuard guard(k.b);
  Value tiles = tilesOf(side);
  k.launch(k.mul(k.mul(numBatches, tiles), panels), kPackThreads, {});
  k.b.getInsertionBlock()->getParentOp()->setAttr(AttnDialect::kOnlyExactAttr,
                                                  k.b.getI64IntegerAttr(Warpgroups::kArch));
  Value panel = k.rem(k.block, panels), outer = k.div(k.block, panels);
  Value base = offsetOf(side, spec.batch, delinearize(k, k.div(outer, tiles), sizesOf(spec.batch)));
  Value first = k.mul(k.rem(outer, tiles), side.tile);
  offset = k.add(offset, k.mul(k.block, elementsOf(side)));
  constexpr int64_t kPieces = Warpgroups::kPanel / 8;
  for (int64_t n = 0; n < side.tile * kPieces; n += kPackThreads) {
    // Lanes side by side read what is side by side.
    Value number = k.add(k.thread, n), inner = k.index(side.isDeep ? kPieces : side.tile);
    Value row = side.isDeep ? k.div(number, inner) : k.rem(number, inner);
    Value piece = side.isDeep ? k.rem(number, inner) : k.div(number, inner);
    Value at = k.add(first, row), isRow = k.less(at, side.extent);
    Value begin = k.add(base, offsetOf(side, side.outer, delinearize(k, at, sizesOf(side.outer))));
    Value depth = k.add(k.mul(panel, Warpgroups::kPanel), k.mul(piece, 8));
    Values words;
    for (Value word : w.piece(readPiece(side, begin, isRow, depth), spec.precision))
      words.push_back(k.bitcast(word, k.b.getF32Type()));
    k.store4(words, scratch, k.add(offset, k.mul(w.pieceAt(row, piece), 4)));
  }
}

/// Eight elements of a row from `depth` of the sum on; zeros where nothing is.
Values WarpgroupsGemm::readPiece(const Side &side, Value base, Value isRow, Value depth) {
  Values eight;
  bool isVector = side.isVector && side.isDeep;
  for (int64_t e = 0; e < 8; e += isVector ? side.width() : 1) {
    Value at = k.add(depth, e), isInside = k.both(isRow, k.less(at, numSums));
    Value offset = k.add(base, offsetOf(side, spec.sums, delinearize(k, at, sizesOf(spec.sums))));
    // The address must be valid even where nothing is wanted.
    offset = k.select(isInside, offset, k.index(0));
    for (Value x : k.loadWide(side.flat, offset, isVector ? side.width() : 1))
      eight.push_back(k.select(isInside, x, k.scalar(0)));
  }
  return eight;
}

void WarpgroupsGemm::multiply() {
  OpBuilder::InsertionGuard guard(k.b);
  Value rowTiles = tilesOf(sides[0]), columnTiles = tilesOf(sides[1]), tiles = k.mul(rowTiles, columnTiles);
  int64_t bytes = std::max(kStages * stageBytes() + 16 * kStages, 4 * stagedElements());
  memory = w.launch(k.mul(tiles, numBatches), Warpgroups::kThreads + kConsumerThreads, bytes);
  Value batch = k.div(k.block, tiles), position = k.rem(k.block, tiles);
  Value numbers[] = {k.div(position, columnTiles), k.rem(position, columnTiles)}, counts[] = {rowTiles, columnTiles};
  batchIndices = delinearize(k, batch, sizesOf(spec.batch));
  for (auto [n, side] : llvm::enumerate(sides)) {
    side.first = k.mul(numbers[n], side.tile);
    Value tile = k.add(k.mul(batch, counts[n]), numbers[n]);
    packed[n] = k.add(begins[n], k.mul(k.mul(tile, panels), elementsOf(side)));
  }
  k.branch(k.less(k.thread, k.index(1)), [&] {
    for (int64_t n = 0; n < kStages; ++n) {
      w.initialize(barrier(true, k.index(n)), 1);
      w.initialize(barrier(false, k.index(n)), kConsumerThreads / 32);
    }
    w.publishBarriers();
  });
  k.barrier();
  auto copyPieces = [&]() -> Values {
    w.setRegisters(Warpgroups::kFewRegisters, false);
    k.branch(k.less(k.thread, k.index(32)), [&] { produce(); });
    return {};
  };
  auto consume = [&]() -> Values {
    w.setRegisters(Warpgroups::kManyRegisters, true);
    k.thread = k.sub(k.thread, k.index(Warpgroups::kThreads));
    finish(sumUp());
    return {};
  };
  k.branch(k.less(k.thread, k.index(Warpgroups::kThreads)), TypeRange(), copyPieces, consume);
}

/// One warp, of which one thread copies.
void WarpgroupsGemm::produce() {
  k.loop(k.index(0), panels, 1, [&](Value panel) {
    findSlot(panel);
    w.wait(barrier(false, slot), k.sub(k.index(1), parity));
    k.branch(k.less(k.thread, k.index(1)), [&] {
      w.arriveExpecting(barrier(true, slot), stageBytes());
      Value to = stageAt(slot);
      for (auto [n, side] : llvm::enumerate(sides)) {
        w.copy(to, scratch, k.add(packed[n], k.mul(panel, elementsOf(side))), bytesOf(side), barrier(true, slot));
        to = k.add(to, bytesOf(side));
      }
    });
  });
}

Values WarpgroupsGemm::sumUp() {
  Values zeros(tile.columns / 2, k.scalar(0));
  Value warpgroup = k.div(k.thread, k.index(Warpgroups::kThreads));
  Value isFirst = k.less(k.rem(k.thread, k.index(32)), k.index(1));
  return k.loop(k.index(0), panels, 1, zeros, [&](Value panel, ValueRange sums) {
    findSlot(panel);
    w.wait(barrier(true, slot), parity);
    Value left = k.add(stageAt(slot), k.mul(warpgroup, Warpgroups::kRows * Warpgroups::kRowBytes));
    Value right = k.add(stageAt(slot), bytesOf(sides[0]));
    Values next =
        w.multiplyShared(sums, left, Warpgroups::kRows, right, tile.columns, Warpgroups::kPanel, spec.precision);
    k.branch(isFirst, [&] { w.arrive(barrier(false, slot)); });
    return next;
  });
}

/// The sums pass through shared memory, where the ring was.
void WarpgroupsGemm::finish(const Values &sums) {
  constexpr int64_t kBarrier = 1; // 0 is the block's
  w.barrier(k.index(kBarrier), kConsumerThreads);
  shared = w.asFloats(memory, stagedElements());
  Value lane = k.rem(k.thread, k.index(32)), warp = k.div(k.thread, k.index(32));
  Value row = k.add(k.mul(warp, 16), k.div(lane, k.index(4))), column = k.mul(k.rem(lane, k.index(4)), 2);
  Value place = k.add(k.mul(row, stagedPitch()), column);
  for (int64_t n = 0; n < tile.columns / 8; ++n)
    for (int64_t r = 0; r < 2; ++r)
      k.storeFew({sums[4 * n + 2 * r], sums[4 * n + 2 * r + 1]}, shared, k.add(place, 8 * r * stagedPitch() + 8 * n));
  w.barrier(k.index(kBarrier), kConsumerThreads);
  startLoops();
  finishStaged(0);
}

} // namespace

void emitWarpgroupsGemm(OpBuilder &builder, Location loc, const GpuGemmSpec &spec, ValueRange buffers, Value scratch) {
  WarpgroupsGemm(builder, loc, spec).emitLaunches(buffers, scratch);
}

} // namespace attn
