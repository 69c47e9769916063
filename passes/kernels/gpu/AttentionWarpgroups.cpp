#include "passes/kernels/gpu/AttentionWarpgroups.h"
#include "dialects/attn/DeviceOps.h"

#include "llvm/Support/MathExtras.h"

// The launches around the products of AttentionWarpgroupTiles.cpp.

using namespace mlir;

namespace attn {

using Dim = AttentionOp::Dim;

constexpr int64_t kMaxWidth = 256, kPackThreads = 256;
/// Fewer queries are faster without the launch that packs, where there is one; where there is none, if there are too
/// few blocks of queries for the processors. On an H100, heads of 64 and 128 queries, by CUPTI: 384 heads 16 us, and 21
/// us by warps alone; 12 heads 6 us and 5 us.
constexpr int64_t kManyQueries = 256, kManyBlocks = 132;

/// Whether warpgroups are faster, if that is known. Wide heads have no kernel by warps on matrix units.
static std::optional<bool> isWorthwhile(const AttentionSpec &spec, const Packing &packing, Precision precision) {
  std::optional<int64_t> b = spec.getStaticSize(Dim::B), h = spec.getStaticSize(Dim::H), i = spec.getStaticSize(Dim::I);
  if (i && (*i >= kManyQueries || *i <= Warpgroups::kRows || packing.isPacked))
    return *i >= kManyQueries;
  if (i && !canUseMatrices(spec, precision))
    return true;
  if (b && h && i)
    return *b * *h * llvm::divideCeil(*i, 2 * Warpgroups::kRows) >= kManyBlocks;
  return std::nullopt;
}

/// The same on the host.
static Mask isWorthwhile(const AttentionSpec &spec, const Packing &packing, Precision precision,
                         llvm::function_ref<Index(int64_t)> sizeOf) {
  Index queries = sizeOf(Dim::I);
  Mask areMany = kManyQueries - 1 < queries;
  if (packing.isPacked)
    return areMany;
  Mask areMore = Warpgroups::kRows < queries;
  if (!canUseMatrices(spec, precision))
    return areMore;
  Index blocks = sizeOf(Dim::B) * sizeOf(Dim::H) * ceilDiv(queries, 2 * Warpgroups::kRows);
  return areMany | (areMore & (kManyBlocks - 1 < blocks));
}

static bool needsScratch(const AttentionSpec &spec, const Packing &packing) {
  return packing.isPacked || spec.canMask();
}

/// Of a head, one for each warp of each block.
static Index countMarks(const Index &numQueries) {
  constexpr int64_t kConsumers = 2, kWarps = kConsumers * Warpgroups::kThreads / 32;
  return ceilDiv(numQueries, kConsumers * Warpgroups::kRows) * kWarps;
}

WarpgroupsEmitter::WarpgroupsEmitter(OpBuilder &b, Location loc, const AttentionSpec &spec, Precision precision)
    : AttentionEmitter(b, loc, spec), precision(precision), packing(spec), queries(spec, spec.query, Dim::I, Dim::D),
      w(k) {
  keysPerTile = packing.keysPerTile;
  queriesPerBlock = kConsumers * Warpgroups::kRows, groupWidth = 4, neighbours = 2;
  rows = 2, columns = keysPerTile / 4, width = packing.values.padded / 4;
  places = countPlaces();
}

WarpgroupsEmitter::Places WarpgroupsEmitter::countPlaces() const {
  constexpr int64_t kFewest = 2, kMost = 4;
  constexpr int64_t kSharedBytes = 225 * 1024; // 227 less what barriers and alignment take
  int64_t tile = packing.keys.bytes(keysPerTile) + packing.values.bytes(keysPerTile);
  for (int64_t ofQueries = copiesQueries() ? 2 : 1;; --ofQueries) {
    int64_t left = kSharedBytes - ofQueries * queries.bytes(queriesPerBlock), tiles = std::min(left / tile, kMost);
    if (tiles < kFewest && ofQueries > 1)
      continue;
    bool hasMoreValues = tiles < kMost && left - tiles * tile >= packing.values.bytes(keysPerTile);
    return {ofQueries, std::max(tiles, kFewest), std::max(tiles, kFewest) + hasMoreValues};
  }
}

//===----------------------------------------------------------------------===//
// Packing
//===----------------------------------------------------------------------===//

void WarpgroupsEmitter::measure(ValueRange buffers) {
  groups = packing.groups(sizeOf(buffers, Dim::H));
  numTiles = ceilDiv(sizeOf(buffers, Dim::J), keysPerTile);
  tilesInAll = sizeOf(buffers, Dim::B) * groups * numTiles;
  numHeads = sizeOf(buffers, Dim::H);
  marksOfHead = countMarks(sizeOf(buffers, Dim::I));
}

void WarpgroupsEmitter::mapTiles(ValueRange buffers) {
  keyTiles = packing.keys.mapTiles(k, buffers[packing.keys.position], keysPerTile);
  valueTiles = packing.values.mapTiles(k, buffers[packing.values.position], keysPerTile);
  if (copiesQueries())
    queryTiles = queries.mapTiles(k, buffers[queries.position], Warpgroups::kRows);
}

/// A launch with a block for each tile of keys and values.
void WarpgroupsEmitter::pack(ValueRange buffers) {
  OpBuilder::InsertionGuard guard(k.b);
  numKeys = sizeOf(buffers, Dim::J);
  Buffer flag = k.launch(tilesInAll, kPackThreads, {1})[0];
  k.b.getInsertionBlock()->getParentOp()->setAttr(AttnDialect::kOnlyExactAttr,
                                                  k.b.getI64IntegerAttr(Warpgroups::kArch));
  Index outer = k.block / numTiles, begin = k.block % numTiles * keysPerTile;
  Index batch = outer / groups, head = packing.headOf(outer % groups);
  Index offset = k.block * packing.elementsPerTile();
  Mask isFirst = k.thread < 1;
  if (canHide()) {
    k.when(isFirst, [&] { flag.set(k.f32(0), 0); });
    k.barrier();
  }
  auto view = [&](const PackedOperand &operand) {
    return viewHead(k, buffers[operand.position], spec.maps[operand.position], batch, head);
  };
  packRows(packing.keys, view(packing.keys), begin, offset, false);
  offset = offset + packing.keys.bytes(keysPerTile) / 4;
  Mask isFine = packRows(packing.values, view(packing.values), begin, offset, canHide());
  if (!canHide())
    return;
  k.when(!isFine, [&] { flag.set(k.f32(1), 0); });
  k.barrier();
  k.when(isFirst, [&] {
    Index at = tilesInAll * packing.elementsPerTile() + k.block;
    scratch.set(flag(0), at);
  });
}

/// The rows from `begin` on of a tile to `offset` of the scratch; whether what the
/// thread has read is finite in 16 bits, if asked.
Mask WarpgroupsEmitter::packRows(const PackedOperand &operand, const OperandView &view, const Index &begin,
                                 const Index &offset, bool findsInfinite) {
  // Below it a finite number stays finite.
  const float limit = precision == Precision::f16 ? 65504.0f : 3.38e38f;
  Mask isFine;
  int64_t pieces = operand.padded / 8;
  for (int64_t n = 0; n < keysPerTile * pieces; n += kPackThreads) {
    Index number = k.thread + n, row = number / pieces, piece = number % pieces, source = begin + row;
    Mask isRow = source < numKeys;
    Nums words = operand.readPiece(k, view, source, isRow, piece * 8, precision), numbers;
    for (const Num &word : findsInfinite ? words : Nums())
      llvm::append_range(numbers, k.unpacked(word, precision));
    for (Num &word : words)
      word = k.asFloat(word);
    Index panel = piece / 8 * (keysPerTile * Warpgroups::kRowBytes / 16);
    Index at = panel + w.pieceAt(row, piece % 8);
    k.store4(words, scratch, offset + at * 4);
    for (const Num &x : numbers) {
      Mask isFinite = abs(x) <= limit;
      isFine = isFine.value() ? isFine & isFinite : isFinite;
    }
  }
  return isFine;
}

static Num greater(const Num &x, const Num &y) { return maximum(x, y); }

/// Whether a tile of the head's values has a number that is not finite in 16 bits.
Mask WarpgroupsEmitter::hasInfinite(ThreadCode &k, const Index &batch, const Index &head) {
  Index firstTile = (batch * groups + packing.groupOf(head)) * numTiles;
  Index flags = tilesInAll * packing.elementsPerTile() + firstTile;
  Num found = k.loop(k.thread % 32, numTiles, 32, k.f32(0),
                     [&](Index tile, Num found) { return maximum(found, scratch(flags + tile)); });
  return isNonZero(k.acrossThreads(found, 32, greater));
}

/// Says in the scratch whether a result of the warp is NaN, as one is that 0 times a hidden value reached.
void WarpgroupsEmitter::markNan(const Nums &state) {
  Num sum = tree(ArrayRef(state).drop_front(2 * rows), [](Num x, Num y) { return x + y; });
  Num mark = k.acrossThreads(select(isNaN(sum), k.f32(1), k.f32(0)), 32, greater);
  Index ofHead = (batch * numHeads + head) * marksOfHead;
  Index at = ofHead + (first / (Warpgroups::kRows / 4) + warp());
  k.when(lane() < 1, [&] { scratch.set(mark, at); });
}

/// Whether a warp said so.
Mask WarpgroupsEmitter::hasNan(ThreadCode &k, const Index &batch, const Index &head) {
  Index ofHead = (batch * numHeads + head) * marksOfHead;
  Num found = k.loop(k.thread % 32 * 4, marksOfHead, 128, k.f32(0), [&](Index at, Num found) {
    Nums four = k.load4(scratch, ofHead + at);
    return maximum(found, tree(ArrayRef(four), greater));
  });
  return isNonZero(k.acrossThreads(found, 32, greater));
}

//===----------------------------------------------------------------------===//
// The kernel
//===----------------------------------------------------------------------===//

/// A block a processor, which has registers for one. All have as many blocks of queries, if possible.
SmallVector<Buffer> WarpgroupsEmitter::launch(const Index &blocks) {
  auto limits = DeviceLimitsOp::create(k.b, k.loc, k.b.getIndexType(), k.b.getIndexType());
  Index processors = maximum(k.asIndex(limits.getProcessors()), 1);
  Index rounds = maximum(ceilDiv(blocks, processors), 1);
  blocksInAll = blocks, grid = ceilDiv(blocks, rounds);
  memory = w.launch(grid, kThreadsInAll, sharedBytes());
  return {};
}

func::FuncOp WarpgroupsEmitter::emit(StringRef symbol, Sm90a use) {
  KernelFunction f(k.b, k.loc, symbol);
  for (MemRefType type : spec.types)
    f.buffer(type);
  if (needsScratch(spec, packing))
    scratch = f.buffer({ShapedType::kDynamic}, k.b.getF32Type());
  ValueRange buffers = f.function.getArguments().take_front(spec.types.size());
  auto warpgroups = [&] {
    measure(buffers);
    if (packing.isPacked)
      pack(buffers);
    else
      mapTiles(buffers);
    emitLaunches(buffers);
    // Where 0 times a hidden value is not 0 the heads are made once more.
    auto isWanted = [&](ThreadCode &k, const Index &batch, const Index &head) {
      return packing.isPacked ? hasInfinite(k, batch, head) : hasNan(k, batch, head);
    };
    if (canHide())
      makeAttention(k.b, k.loc, spec, precision)->emitLaunches(buffers, isWanted);
  };
  Mask isMany;
  if (!isWorthwhile(spec, packing, precision))
    isMany = isWorthwhile(spec, packing, precision, [&](int64_t dim) { return sizeOf(buffers, dim); });
  auto others = [&] { makeAttention(k.b, k.loc, spec, precision)->emitLaunches(buffers); };
  k.whenSm90a(use, warpgroups, others, isMany);
  return f.function;
}

bool canUseWarpgroups(const AttentionSpec &spec, Precision precision) {
  std::optional<int64_t> d = spec.getStaticSize(Dim::D), e = spec.getStaticSize(Dim::E);
  return (precision == Precision::bf16 || precision == Precision::f16) && d && e && *d <= kMaxWidth &&
         *e <= kMaxWidth && spec.formula().isProduct && spec.blockLists.empty() &&
         spec.normalizer == Normalizer::softmax && !spec.hasWeightSweep() && !storesTiles(spec) &&
         isWorthwhile(spec, Packing(spec), precision).value_or(true);
}

Value countWarpgroupsScratch(const AttentionSpec &spec, llvm::function_ref<Index(int64_t)> sizeOf) {
  Packing packing(spec);
  if (!needsScratch(spec, packing))
    return {};
  if (!packing.isPacked)
    return sizeOf(Dim::B) * sizeOf(Dim::H) * countMarks(sizeOf(Dim::I));
  Index groups = sizeOf(Dim::B) * packing.groups(sizeOf(Dim::H));
  Index tiles = groups * ceilDiv(sizeOf(Dim::J), packing.keysPerTile);
  return tiles * (packing.elementsPerTile() + 1);
}

func::FuncOp buildWarpgroupsAttention(OpBuilder &builder, Location loc, StringRef symbol, const AttentionSpec &spec,
                                      Precision precision, Sm90a use) {
  return WarpgroupsEmitter(builder, loc, spec, precision).emit(symbol, use);
}

} // namespace attn
