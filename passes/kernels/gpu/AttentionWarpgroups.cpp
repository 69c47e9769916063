#include "passes/kernels/gpu/AttentionWarpgroups.h"
#include "dialects/attn/DeviceOps.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/Support/MathExtras.h"

// The launches around the products of AttentionWarpgroupTiles.cpp.

using namespace mlir;

namespace attn {

using Dim = AttentionOp::Dim;
using Values = LaneBuilder::Values;

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
static Value isWorthwhile(BlockBuilder &k, const AttentionSpec &spec, const Packing &packing, Precision precision,
                          ValueRange buffers) {
  auto size = [&](unsigned dim) { return getDimSize(k, spec, buffers, dim); };
  Value queries = size(Dim::I), areMany = k.less(k.index(kManyQueries - 1), queries);
  if (packing.isPacked)
    return areMany;
  Value areMore = k.less(k.index(Warpgroups::kRows), queries);
  if (!canUseMatrices(spec, precision))
    return areMore;
  Value blocks = k.mul(k.mul(size(Dim::B), size(Dim::H)), k.ceilDiv(queries, 2 * Warpgroups::kRows));
  return k.either(areMany, k.both(areMore, k.less(k.index(kManyBlocks - 1), blocks)));
}

static bool needsScratch(const AttentionSpec &spec, const Packing &packing) {
  return packing.isPacked || spec.canMask();
}

/// Of a head, one for each warp of each block.
static Value countMarks(LaneBuilder &k, Value numQueries) {
  constexpr int64_t kConsumers = 2, kWarps = kConsumers * Warpgroups::kThreads / 32;
  return k.mul(k.ceilDiv(numQueries, kConsumers * Warpgroups::kRows), kWarps);
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
  groups = packing.groups(k, getDimSize(k, spec, buffers, Dim::H));
  numTiles = k.ceilDiv(getDimSize(k, spec, buffers, Dim::J), keysPerTile);
  tilesInAll = k.mul(k.mul(getDimSize(k, spec, buffers, Dim::B), groups), numTiles);
  numHeads = getDimSize(k, spec, buffers, Dim::H);
  marksOfHead = countMarks(k, getDimSize(k, spec, buffers, Dim::I));
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
  Value numKeys = getDimSize(k, spec, buffers, Dim::J);
  Value flag = k.launch(tilesInAll, kPackThreads, {1})[0];
  k.b.getInsertionBlock()->getParentOp()->setAttr(AttnDialect::kOnlyExactAttr,
                                                  k.b.getI64IntegerAttr(Warpgroups::kArch));
  Value outer = k.div(k.block, numTiles), begin = k.mul(k.rem(k.block, numTiles), keysPerTile);
  Value batch = k.div(outer, groups), head = packing.headOf(k, k.rem(outer, groups));
  Value offset = k.mul(k.block, packing.elementsPerTile());
  Value isFirst = k.less(k.thread, k.index(1));
  if (canHide()) {
    k.branch(isFirst, [&] { memref::StoreOp::create(k.b, k.loc, k.scalar(0), flag, k.index(0)); });
    k.barrier();
  }
  this->numKeys = numKeys;
  auto view = [&](const PackedOperand &operand) {
    return viewHead(k, buffers[operand.position], spec.maps[operand.position], batch, head);
  };
  packRows(packing.keys, view(packing.keys), begin, offset, false);
  offset = k.add(offset, packing.keys.bytes(keysPerTile) / 4);
  Value isFine = packRows(packing.values, view(packing.values), begin, offset, canHide());
  if (!canHide())
    return;
  Value isFound = arith::XOrIOp::create(k.b, k.loc, isFine, arith::ConstantIntOp::create(k.b, k.loc, 1, 1));
  k.branch(isFound, [&] { memref::StoreOp::create(k.b, k.loc, k.scalar(1), flag, k.index(0)); });
  k.barrier();
  k.branch(isFirst, [&] {
    Value at = k.add(k.mul(tilesInAll, packing.elementsPerTile()), k.block);
    memref::StoreOp::create(k.b, k.loc, k.load(flag, k.index(0)), scratch, at);
  });
}

/// The rows from `begin` on of a tile to `offset` of the scratch; whether what the
/// thread has read is finite in 16 bits, if asked.
Value WarpgroupsEmitter::packRows(const PackedOperand &operand, const HeadView &view, Value begin, Value offset,
                                  bool findsInfinite) {
  // Below it a finite number stays finite.
  Value limit = k.scalar(precision == Precision::f16 ? 65504.0f : 3.38e38f), isFine;
  int64_t pieces = operand.padded / 8;
  for (int64_t n = 0; n < keysPerTile * pieces; n += kPackThreads) {
    Value number = k.add(k.thread, n), row = k.div(number, k.index(pieces)), piece = k.rem(number, k.index(pieces));
    Value source = k.add(begin, row);
    Values words = operand.readPiece(k, view, source, k.less(source, numKeys), k.mul(piece, 8), precision), numbers;
    for (Value word : findsInfinite ? words : Values())
      llvm::append_range(numbers, k.unpacked(word, precision));
    for (Value &word : words)
      word = k.bitcast(word, k.b.getF32Type());
    Value panel = k.mul(k.div(piece, k.index(8)), keysPerTile * Warpgroups::kRowBytes / 16);
    Value at = k.add(panel, w.pieceAt(row, k.rem(piece, k.index(8))));
    k.store4(words, scratch, k.add(offset, k.mul(at, 4)));
    for (Value x : numbers) {
      Value isFinite = k.compare(arith::CmpFPredicate::OLE, math::AbsFOp::create(k.b, k.loc, x), limit);
      isFine = isFine ? k.both(isFine, isFinite) : isFinite;
    }
  }
  return isFine;
}

/// Whether a tile of the head's values has a number that is not finite in 16 bits.
Value WarpgroupsEmitter::hasInfinite(BlockBuilder &k, Value batch, Value head) {
  Value first = k.mul(k.add(k.mul(batch, groups), packing.groupOf(k, head)), numTiles);
  Value flags = k.add(k.mul(tilesInAll, packing.elementsPerTile()), first);
  auto max = [&](Value x, Value y) { return k.greater(x, y); };
  Value found =
      k.loop(k.rem(k.thread, k.index(32)), numTiles, 32, {k.scalar(0)}, [&](Value tile, ValueRange carried) -> Values {
        return {max(carried[0], k.load(scratch, k.add(flags, tile)))};
      })[0];
  return k.compare(arith::CmpFPredicate::ONE, k.acrossThreads(found, 32, max), k.scalar(0));
}

/// Says in the scratch whether a result of the warp is NaN, as one is that 0 times a hidden value reached.
void WarpgroupsEmitter::markNan(ValueRange state) {
  Value sum = k.tree(Values(state.drop_front(2 * rows)), [&](Value x, Value y) { return k.addf(x, y); });
  Value isNan = k.compare(arith::CmpFPredicate::UNO, sum, sum);
  Value mark =
      k.acrossThreads(k.select(isNan, k.scalar(1), k.scalar(0)), 32, [&](Value x, Value y) { return k.greater(x, y); });
  Value ofHead = k.mul(k.add(k.mul(batch, numHeads), head), marksOfHead);
  Value at = k.add(ofHead, k.add(k.div(first, k.index(Warpgroups::kRows / 4)), warp()));
  k.branch(k.less(lane(), k.index(1)), [&] { memref::StoreOp::create(k.b, k.loc, mark, scratch, at); });
}

/// Whether a warp said so.
Value WarpgroupsEmitter::hasNan(BlockBuilder &k, Value batch, Value head) {
  Value ofHead = k.mul(k.add(k.mul(batch, numHeads), head), marksOfHead);
  auto max = [&](Value x, Value y) { return k.greater(x, y); };
  Value begin = k.mul(k.rem(k.thread, k.index(32)), 4);
  Value found = k.loop(begin, marksOfHead, 128, {k.scalar(0)}, [&](Value at, ValueRange carried) -> Values {
    return {max(carried[0], k.tree(k.load4(scratch, k.add(ofHead, at)), max))};
  })[0];
  return k.compare(arith::CmpFPredicate::ONE, k.acrossThreads(found, 32, max), k.scalar(0));
}

//===----------------------------------------------------------------------===//
// The kernel
//===----------------------------------------------------------------------===//

/// A block a processor, which has registers for one. All have as many blocks of queries, if possible.
Values WarpgroupsEmitter::launch(Value blocks) {
  auto limits = DeviceLimitsOp::create(k.b, k.loc, k.b.getIndexType(), k.b.getIndexType());
  Value one = k.index(1), processors = k.max(limits.getProcessors(), one);
  auto ceilDiv = [&](Value x, Value y) { return k.div(k.add(x, k.sub(y, one)), y); };
  Value rounds = k.max(ceilDiv(blocks, processors), one);
  blocksInAll = blocks, grid = ceilDiv(blocks, rounds);
  return {w.launch(grid, kThreadsInAll, sharedBytes())};
}

func::FuncOp WarpgroupsEmitter::emit(StringRef symbol, Sm90a use) {
  SmallVector<Type> types(spec.types.begin(), spec.types.end());
  if (needsScratch(spec, packing))
    types.push_back(MemRefType::get({ShapedType::kDynamic}, k.b.getF32Type()));
  func::FuncOp function = k.function(symbol, types);
  ValueRange buffers = function.getArguments().take_front(spec.types.size());
  scratch = function.getArguments().back();
  auto warpgroups = [&] {
    measure(buffers);
    if (packing.isPacked)
      pack(buffers);
    else
      mapTiles(buffers);
    emitLaunches(buffers);
    // Where 0 times a hidden value is not 0 the heads are made once more.
    if (canHide())
      makeAttention(k.b, k.loc, spec, precision)->emitLaunches(buffers, [&](BlockBuilder &k, Value batch, Value head) {
        return packing.isPacked ? hasInfinite(k, batch, head) : hasNan(k, batch, head);
      });
  };
  Value isMany;
  if (!isWorthwhile(spec, packing, precision))
    isMany = isWorthwhile(k, spec, packing, precision, buffers);
  auto others = [&] { makeAttention(k.b, k.loc, spec, precision)->emitLaunches(buffers); };
  k.branchOnSm90a(use, warpgroups, others, isMany);
  return function;
}

bool canUseWarpgroups(const AttentionSpec &spec, Precision precision) {
  std::optional<int64_t> d = spec.getStaticSize(Dim::D), e = spec.getStaticSize(Dim::E);
  return (precision == Precision::bf16 || precision == Precision::f16) && d && e && *d <= kMaxWidth &&
         *e <= kMaxWidth && spec.formula().isProduct && spec.blockLists.empty() &&
         spec.normalizer == Normalizer::softmax && !spec.hasWeightSweep() && !storesTiles(spec) &&
         isWorthwhile(spec, Packing(spec), precision).value_or(true);
}

Value countWarpgroupsScratch(LaneBuilder &k, const AttentionSpec &spec, llvm::function_ref<Value(int64_t)> sizeOf) {
  Packing packing(spec);
  if (!needsScratch(spec, packing))
    return {};
  if (!packing.isPacked)
    return k.mul(k.mul(sizeOf(Dim::B), sizeOf(Dim::H)), countMarks(k, sizeOf(Dim::I)));
  Value groups = k.mul(sizeOf(Dim::B), packing.groups(k, sizeOf(Dim::H)));
  Value tiles = k.mul(groups, k.ceilDiv(sizeOf(Dim::J), packing.keysPerTile));
  return k.mul(tiles, packing.elementsPerTile() + 1);
}

func::FuncOp buildWarpgroupsAttention(OpBuilder &builder, Location loc, StringRef symbol, const AttentionSpec &spec,
                                      Precision precision, Sm90a use) {
  return WarpgroupsEmitter(builder, loc, spec, precision).emit(symbol, use);
}

} // namespace attn
