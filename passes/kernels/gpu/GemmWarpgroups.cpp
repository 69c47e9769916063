#include "passes/kernels/gpu/Float8.h"
#include "passes/kernels/gpu/GemmEmitter.h"
#include "passes/kernels/gpu/Warpgroups.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

// Products by warpgroups, on sm_90a. Of a block one warp copies tiles of both sides
// into a ring, and two warpgroups have 64 rows each. Tiles of a matrix in the 16
// bits of the product are copied as they lie. For any other side a launch in front
// rounds it, once for all tiles of the other, to what they are in shared memory. A
// weight of e4m3 stays as it is: the warpgroup that copies widens its pieces on
// their way into the ring.

using namespace mlir;

namespace attn {

namespace {

constexpr int64_t kStages = 4, kConsumers = 2, kPackThreads = 256, kRows = kConsumers * Warpgroups::kRows;
constexpr int64_t kConsumerThreads = kConsumers * Warpgroups::kThreads;
// Of a thread that widens 16 numbers eight times, and of one that multiplies beside it.
constexpr int64_t kWideningRegisters = 56, kBesideRegisters = 224;

GpuGemmSpec::Tile tileOf(int64_t columns) {
  // So that the epilogue goes over all rows at once.
  return {kRows, columns, kRows / 8, columns / 64, Warpgroups::kPanel, /*isMatrix=*/true};
}

class WarpgroupsGemm : public GpuGemmEmitter {
public:
  WarpgroupsGemm(OpBuilder &b, Location loc, const GpuGemmSpec &spec)
      : GpuGemmEmitter(b, loc, spec, tileOf(spec.warpgroupColumns)), w(k) {}

  void emitLaunches(ArrayRef<Buffer> buffers, const Buffer &scratch);

private:
  static int64_t bytesOf(const Side &side) { return side.tile * Warpgroups::kRowBytes; }
  static int64_t elementsOf(const Side &side) { return bytesOf(side) / 4; }
  Index tilesOf(const Side &side) { return ceilDiv(side.extent, side.tile); }
  void pack(Side &side, Index offset);
  Nums readPiece(const Side &side, Index base, const Mask &isRow, Index depth);
  void multiply();
  void produce();
  void produceWidened();
  void widenRight(Index panel, Index to);
  Nums sumUp();
  void finish(const Nums &sums);

  Index barrier(bool isFull, Index slot) {
    return memory + ((isFull ? 0 : 8 * kStages) + kStages * stageBytes()) + slot * 8;
  }
  Index stageAt(Index slot) { return memory + slot * stageBytes(); }
  Value mapTiles(unsigned n);
  void copySide(unsigned n, Index to, Index panel);
  Warpgroups::Panels panelsOf(unsigned n, Index place) {
    return {place, isAcross(n) ? Warpgroups::kPanel : sides[n].tile, isAcross(n)};
  }
  bool isAcross(unsigned n) const { return maps[n] && !sides[n].isDeep; }
  int64_t stageBytes() const { return bytesOf(sides[0]) + bytesOf(sides[1]); }
  void findSlot(Index panel) { slot = panel % kStages, parity = panel / kStages % 2; }

  Warpgroups w;
  Buffer scratch;
  Index panels, numBatches; ///< the latter two from outside of launches
  Value maps[2];            ///< of the tiles of a side that is copied as it lies; null: it is packed
  Index begins[2];          ///< of the sides in the scratch
  Index packed[2];          ///< of the block's tiles in the scratch
  Index memory, slot, parity;
};

void WarpgroupsGemm::emitLaunches(ArrayRef<Buffer> buffers, const Buffer &scratchBuffer) {
  prepare(buffers);
  scratch = scratchBuffer;
  panels = ceilDiv(numSums, Warpgroups::kPanel), numBatches = product(spec.batch);
  Index offset = k.index(0);
  for (auto [n, side] : llvm::enumerate(sides)) {
    if (spec.isTiled(/*isLeft=*/n == 0)) {
      maps[n] = mapTiles(n);
      continue;
    }
    if (n == 1 && spec.hasFloat8())
      break;
    begins[n] = offset;
    pack(side, offset);
    offset = offset + numBatches * tilesOf(side) * panels * elementsOf(side);
  }
  multiply();
}

/// Of a side as a matrix: its dimensions along the sum are neighbours, and so are the others.
Value WarpgroupsGemm::mapTiles(unsigned n) {
  const Side &side = sides[n];
  int64_t dims = side.map.getNumResults();
  int64_t first = side.isDeep ? side.outer.size() : spec.sums.size();
  SmallVector<ReassociationIndices> groups(2);
  for (int64_t dim = 0; dim < dims; ++dim)
    groups[dim < first ? 0 : 1].push_back(dim);
  Value matrix = arguments[n];
  if (dims > 2)
    matrix = memref::CollapseShapeOp::create(k.b, k.loc, matrix, groups);
  return w.mapTiles(matrix, {side.isDeep ? side.tile : Warpgroups::kPanel, Warpgroups::kPanel});
}

/// A launch with a block for each tile and 64 of the sum.
void WarpgroupsGemm::pack(Side &side, Index offset) {
  OpBuilder::InsertionGuard guard(k.b);
  Index tiles = tilesOf(side);
  k.launch(numBatches * tiles * panels, kPackThreads, {});
  k.b.getInsertionBlock()->getParentOp()->setAttr(AttnDialect::kOnlyExactAttr,
                                                  k.b.getI64IntegerAttr(Warpgroups::kArch));
  Index panel = k.block % panels, outer = k.block / panels;
  Index base = offsetOf(side, spec.batch, delinearize(outer / tiles, sizesOf(spec.batch)));
  Index first = outer % tiles * side.tile;
  offset = offset + k.block * elementsOf(side);
  constexpr int64_t kPieces = Warpgroups::kPanel / 8;
  for (int64_t n = 0; n < side.tile * kPieces; n += kPackThreads) {
    // Lanes side by side read what is side by side.
    Index number = k.thread + n, inner = k.index(side.isDeep ? kPieces : side.tile);
    Index row = side.isDeep ? number / inner : number % inner;
    Index piece = side.isDeep ? number % inner : number / inner;
    Index at = first + row;
    Mask isRow = at < side.extent;
    Index begin = base + offsetOf(side, side.outer, delinearize(at, sizesOf(side.outer)));
    Index depth = panel * Warpgroups::kPanel + piece * 8;
    Nums words;
    Nums eight = readPiece(side, begin, isRow, depth);
    for (const Num &word : w.piece(eight, spec.precision))
      words.push_back(k.asFloat(word));
    k.store4(words, scratch, offset + w.pieceAt(row, piece) * 4);
  }
}

/// Eight elements of a row from `depth` of the sum on; zeros where nothing is.
Nums WarpgroupsGemm::readPiece(const Side &side, Index base, const Mask &isRow, Index depth) {
  Nums eight;
  bool isVector = side.isVector && side.isDeep;
  for (int64_t e = 0; e < 8; e += isVector ? side.width() : 1) {
    Index at = depth + e;
    Mask isInside = isRow & (at < numSums);
    Index offset = base + offsetOf(side, spec.sums, delinearize(at, sizesOf(spec.sums)));
    // The address must be valid even where nothing is wanted.
    offset = select(isInside, offset, k.index(0));
    for (const Num &x : k.loadWide(side.flat, offset, isVector ? side.width() : 1))
      eight.push_back(select(isInside, x, k.f32(0)));
  }
  return eight;
}

void WarpgroupsGemm::multiply() {
  OpBuilder::InsertionGuard guard(k.b);
  Index rowTiles = tilesOf(sides[0]), columnTiles = tilesOf(sides[1]), tiles = rowTiles * columnTiles;
  int64_t bytes = std::max(kStages * stageBytes() + 16 * kStages, 4 * stagedElements());
  memory = w.launch(tiles * numBatches, Warpgroups::kThreads + kConsumerThreads, bytes);
  Index batch = k.block / tiles, position = k.block % tiles;
  Index numbers[] = {position / columnTiles, position % columnTiles}, counts[] = {rowTiles, columnTiles};
  batchIndices = delinearize(batch, sizesOf(spec.batch));
  for (auto [n, side] : llvm::enumerate(sides)) {
    side.first = numbers[n] * side.tile;
    if (!begins[n].value())
      continue;
    Index tile = batch * counts[n] + numbers[n];
    packed[n] = begins[n] + tile * panels * elementsOf(side);
  }
  k.when(k.thread < 1, [&] {
    for (int64_t n = 0; n < kStages; ++n) {
      w.initialize(barrier(true, k.index(n)), spec.hasFloat8() ? 1 + Warpgroups::kThreads / 32 : 1);
      w.initialize(barrier(false, k.index(n)), kConsumerThreads / 32);
    }
    w.publishBarriers();
  });
  k.barrier();
  auto copyPieces = [&] {
    w.setRegisters(spec.hasFloat8() ? kWideningRegisters : Warpgroups::kFewRegisters, false);
    if (spec.hasFloat8())
      return produceWidened();
    k.when(k.thread < 32, [&] { produce(); });
  };
  auto consume = [&] {
    w.setRegisters(spec.hasFloat8() ? kBesideRegisters : Warpgroups::kManyRegisters, true);
    k.numberFrom(Warpgroups::kThreads);
    finish(sumUp());
  };
  k.when(k.thread < Warpgroups::kThreads, copyPieces, consume);
}

/// One warp, of which one thread copies.
void WarpgroupsGemm::produce() {
  k.loop(0, panels, 1, [&](Index panel) {
    findSlot(panel);
    w.wait(barrier(false, slot), 1 - parity);
    k.when(k.thread < 1, [&] {
      w.arriveExpecting(barrier(true, slot), stageBytes());
      Index to = stageAt(slot);
      for (unsigned n : {0, 1}) {
        copySide(n, to, panel);
        to = to + bytesOf(sides[n]);
      }
    });
  });
}

/// Panel `panel` along the sum.
void WarpgroupsGemm::copySide(unsigned n, Index to, Index panel) {
  const Side &side = sides[n];
  Index depth = panel * Warpgroups::kPanel, full = barrier(true, slot);
  if (!maps[n]) {
    w.copy(to, scratch, packed[n] + panel * elementsOf(side), bytesOf(side), full);
  } else if (side.isDeep) {
    w.copyTile(to, maps[n], {side.first, depth}, full);
  } else {
    for (int64_t at = 0; at < side.tile; at += Warpgroups::kPanel)
      w.copyTile(to + at * Warpgroups::kRowBytes, maps[n], {depth, side.first + at}, full);
  }
}

/// The whole warpgroup, of which one thread copies the left side.
void WarpgroupsGemm::produceWidened() {
  k.loop(0, panels, 1, [&](Index panel) {
    findSlot(panel);
    w.wait(barrier(false, slot), 1 - parity);
    Index full = barrier(true, slot), to = stageAt(slot);
    k.when(k.thread < 1, [&] {
      w.arriveExpecting(full, bytesOf(sides[0]));
      copySide(0, to, panel);
    });
    widenRight(panel, to + bytesOf(sides[0]));
    w.publishStores();
    k.warpBarrier();
    k.when(k.thread % 32 < 1, [&] { w.arrive(full); });
  });
}

/// Each thread 16 numbers of a row, two pieces, at a time. Four lanes have what a row has in a panel.
void WarpgroupsGemm::widenRight(Index panel, Index to) {
  constexpr int64_t kNumbers = 16, kAcross = Warpgroups::kPanel / kNumbers, kWords = 4, kPieceBytes = 16;
  const Side &side = sides[1];
  Index row = k.thread / kAcross, part = k.thread % kAcross;
  Index depth = panel * Warpgroups::kPanel + part * kNumbers;
  for (int64_t first = 0; first < side.tile; first += Warpgroups::kThreads / kAcross) {
    Index at = row + first;
    Mask isInside = (side.first + at < side.extent) & (depth < numSums);
    Index offset = (side.first + at) * numSums + depth;
    Nums numbers;
    for (const Num &word : k.loadWords(side.flat, select(isInside, offset, k.index(0)), kWords))
      llvm::append_range(numbers, fromFloat8Word(k, select(isInside, word, k.i32(0))));
    for (int64_t half = 0; half < 2; ++half) {
      Index place = w.pieceAt(at, part * 2 + half);
      w.storePiece(w.piece(ArrayRef(numbers).slice(8 * half, 8), spec.precision), to + place * kPieceBytes);
    }
  }
}

Nums WarpgroupsGemm::sumUp() {
  Nums zeros(tile.columns / 2, k.f32(0));
  Index warpgroup = k.thread / Warpgroups::kThreads;
  Mask isFirst = k.thread % 32 < 1;
  return k.loop(0, panels, 1, zeros, [&](Index panel, Nums sums) {
    findSlot(panel);
    w.wait(barrier(true, slot), parity);
    Index left = stageAt(slot) + warpgroup * (Warpgroups::kRows * Warpgroups::kRowBytes);
    Index right = stageAt(slot) + bytesOf(sides[0]);
    Nums next = w.finish(
        w.startShared(sums, panelsOf(0, left), panelsOf(1, right), tile.columns, Warpgroups::kPanel, spec.precision));
    k.when(isFirst, [&] { w.arrive(barrier(false, slot)); });
    return next;
  });
}

/// The sums pass through shared memory, where the ring was.
void WarpgroupsGemm::finish(const Nums &sums) {
  constexpr int64_t kBarrier = 1; // 0 is the block's
  w.barrier(k.index(kBarrier), kConsumerThreads);
  shared = w.asFloats(memory, stagedElements());
  Index lane = k.thread % 32, warp = k.thread / 32;
  Index row = warp * 16 + lane / 4, column = lane % 4 * 2;
  Index place = row * stagedPitch() + column;
  for (int64_t n = 0; n < tile.columns / 8; ++n)
    for (int64_t r = 0; r < 2; ++r)
      k.storeFew({sums[4 * n + 2 * r], sums[4 * n + 2 * r + 1]}, shared, place + (8 * r * stagedPitch() + 8 * n));
  w.barrier(k.index(kBarrier), kConsumerThreads);
  startLoops();
  finishStaged(0);
}

} // namespace

void emitWarpgroupsGemm(OpBuilder &builder, Location loc, const GpuGemmSpec &spec, ArrayRef<Buffer> buffers,
                        const Buffer &scratch) {
  WarpgroupsGemm(builder, loc, spec).emitLaunches(buffers, scratch);
}

} // namespace attn
