#include "passes/kernels/gpu/AttentionPacking.h"
#include "passes/kernels/gpu/Warpgroups.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/Support/MathExtras.h"

// Products by warpgroups, on sm_90a. A launch of its own rounds keys and values,
// unless they are of 16 bits, once for all queries of a group of heads, to tiles that are in memory what they
// are in shared memory. Of a block then one warp copies tiles into a ring, or a warpgroup rows of 16 bits from where
// they are, and two warpgroups of 64 queries multiply, in turns: while one makes weights the other has the matrix
// units, and its own results of the tile before come from them, too.

using namespace mlir;

namespace attn {

using Dim = AttentionOp::Dim;
using Values = LaneBuilder::Values;

namespace {

// Named barriers: 0 is the block's, one of each warpgroup, one for each turn.
constexpr int64_t kOwn = 1, kTurns = kOwn + 2;
constexpr int64_t kMaxWidth = 256, kStages = 2, kConsumers = 2, kPackThreads = 256;
/// Registers where rows are copied, which takes more than to copy tiles: with 40 ptxas spilled 40 bytes.
constexpr int64_t kFewForRows = 56, kManyBesideRows = 224;
/// Fewer are faster without the launch that packs; a guess, no card has told.
constexpr int64_t kFewQueries = 256;

bool needsScratch(const AttentionSpec &spec, const Packing &packing) { return packing.isPacked || spec.canMask(); }

/// Of a head, one for each warp of each block.
Value countMarks(LaneBuilder &k, Value numQueries) {
  constexpr int64_t kWarps = kConsumers * Warpgroups::kThreads / 32;
  return k.mul(k.ceilDiv(numQueries, kConsumers * Warpgroups::kRows), kWarps);
}

class WarpgroupsEmitter : public AttentionEmitter {
public:
  WarpgroupsEmitter(OpBuilder &b, Location loc, const AttentionSpec &spec, Precision precision)
      : AttentionEmitter(b, loc, spec), precision(precision), packing(spec), queries(spec, spec.query, Dim::I, Dim::D),
        w(k) {
    keysPerTile = packing.keysPerTile;
    queriesPerBlock = kConsumers * Warpgroups::kRows, groupWidth = 4, neighbours = 2;
    rows = 2, columns = keysPerTile / 4, width = packing.values.padded / 4;
  }

  func::FuncOp emit(StringRef symbol, Sm90a use);

private:
  enum Phase { keysFull, keysEmpty, valuesFull, valuesEmpty, numPhases };

  void measure(ValueRange buffers);
  void pack(ValueRange buffers);
  Value packRows(const PackedOperand &operand, const HeadView &view, Value begin, Value offset, bool findsInfinite);
  Value hasInfinite(BlockBuilder &k, Value batch, Value head);
  void markNan(ValueRange state);
  Value hasNan(BlockBuilder &k, Value batch, Value head);

  Values launch(Value blocks) override { return {w.launch(blocks, kThreadsInAll, sharedBytes())}; }
  bool canSweepAgain() const override { return false; }
  void sweep(ArrayRef<Value> shared, Value begin, Value end, const KeyMask::Bounds &bounds) override;
  void produce(Value begin, Value end);
  void produceRows(Value begin, Value end);
  void stageQueries();
  Values sweepTile(Value key, ValueRange state) override {
    return packing.isAhead ? sweepOverlapped(key, state) : sweepInOrder(key, state);
  }
  Values sweepInOrder(Value key, ValueRange state);
  Values sweepAhead(Value begin, Value end, const KeyMask::Bounds &bounds);
  Values sweepOverlapped(Value key, ValueRange carried);

  static constexpr int64_t kThreadsInAll = (1 + kConsumers) * Warpgroups::kThreads;
  int64_t stageBytes() const { return packing.elementsPerTile() * 4; }
  int64_t barriersBegin() const { return queries.bytes(queriesPerBlock) + kStages * stageBytes(); }
  int64_t sharedBytes() const { return barriersBegin() + 8 * numPhases * kStages; }

  Value place(int64_t bytes) { return k.add(shared, bytes); }
  /// Of the ring, and the parity of the phase in which a tile is there.
  struct Slot {
    Value number, parity;
  };
  Value barrier(Phase phase, Value slot) { return k.add(place(barriersBegin() + 8 * phase * kStages), k.mul(slot, 8)); }
  Value keysAt(Value slot) { return k.add(place(queries.bytes(queriesPerBlock)), k.mul(slot, stageBytes())); }
  Value valuesAt(Value slot) { return k.add(keysAt(slot), packing.keys.bytes(keysPerTile)); }
  Slot slotOf(Value key) {
    Value step = k.div(k.sub(key, firstKey), k.index(keysPerTile));
    return {k.rem(step, k.index(kStages)), k.rem(k.div(step, k.index(kStages)), k.index(2))};
  }
  void wait(Phase phase, const Slot &slot) { w.wait(barrier(phase, slot.number), slot.parity); }
  void release(Phase phase, const Slot &slot);

  // Products of the tile in a slot, under way; what they are then, and what they are of, in the order of the emitter.
  Values startScores(const Slot &slot);
  Values startResult(ValueRange state, ValueRange packed, const Slot &slot);
  Values scoresOf(ValueRange made);
  Values packWeights(ArrayRef<Value> weights);
  int64_t placeOf(int64_t n) { return 2 * rows + n % 4 / 2 * width + n / 4 * 2 + n % 2; }
  void setColumns(Values &state, ArrayRef<Value> made) {
    for (auto [n, column] : llvm::enumerate(made))
      state[placeOf(n)] = column;
  }
  void takeTurn();
  void giveTurn();

  // The thread's number is that among the consumers.
  Value warp() { return k.div(k.thread, k.index(32)); }
  Value lane() { return k.rem(k.thread, k.index(32)); }
  Value member() { return k.rem(k.thread, k.index(4)); }
  Value queriesOfGroup() { return k.add(shared, k.mul(warpgroup, queries.bytes(Warpgroups::kRows))); }
  Value row(int64_t r) override { return k.add(k.add(k.mul(warp(), 16), k.div(lane(), k.index(4))), 8 * r); }
  Value keyPlace(int64_t c) override { return k.add(k.mul(member(), 2), c / 2 * 8 + c % 2); }
  Value columnPlace(int64_t e) override { return keyPlace(e); }

  const Precision precision;
  const Packing packing;
  const PackedOperand queries;
  Warpgroups w;
  Value scratch, numTiles, groups, tilesInAll; ///< the latter three from outside of launches, as the next
  Value numHeads, marksOfHead;
  Value shared, firstKey, warpgroup;
};

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
// A block
//===----------------------------------------------------------------------===//

void WarpgroupsEmitter::sweep(ArrayRef<Value> memory, Value begin, Value end, const KeyMask::Bounds &bounds) {
  shared = memory[0], firstKey = begin;
  k.branch(k.less(k.thread, k.index(1)), [&] {
    for (int64_t n = 0; n < kStages; ++n)
      for (Phase phase : {keysFull, keysEmpty, valuesFull, valuesEmpty})
        w.initialize(barrier(phase, k.index(n)), phase == keysEmpty || phase == valuesEmpty
                                                     ? kConsumers * Warpgroups::kThreads / 32
                                                 : packing.isPacked ? 1
                                                                    : Warpgroups::kThreads);
    w.publishBarriers();
  });
  k.barrier();
  auto consume = [&]() -> Values {
    w.setRegisters(packing.isPacked ? Warpgroups::kManyRegisters : kManyBesideRows, true);
    k.thread = k.sub(k.thread, k.index(Warpgroups::kThreads));
    warpgroup = w.sameInWarp(k.div(k.thread, k.index(Warpgroups::kThreads)));
    stageQueries();
    Values state = packing.isAhead ? sweepAhead(begin, end, bounds) : sweepTiles(begin, end, bounds);
    if (canHide() && !packing.isPacked)
      markNan(state);
    store(state);
    return {};
  };
  auto copyTiles = [&]() -> Values {
    w.setRegisters(packing.isPacked ? Warpgroups::kFewRegisters : kFewForRows, false);
    if (packing.isPacked)
      k.branch(k.less(k.thread, k.index(32)), [&] { produce(begin, end); });
    else
      produceRows(begin, end);
    return {};
  };
  k.branch(k.less(k.thread, k.index(Warpgroups::kThreads)), TypeRange(), copyTiles, consume);
}

/// One warp, of which one thread copies.
void WarpgroupsEmitter::produce(Value begin, Value end) {
  Value outer = k.mul(k.add(k.mul(batch, groups), packing.groupOf(k, head)), numTiles);
  k.loop(begin, end, keysPerTile, [&](Value key) {
    Slot slot = slotOf(key);
    Value tile = k.add(outer, k.div(key, k.index(keysPerTile)));
    Value offset = k.mul(tile, packing.elementsPerTile()), before = k.sub(k.index(1), slot.parity);
    auto fill = [&](Phase empty, Phase full, Value to, int64_t bytes) {
      w.wait(barrier(empty, slot.number), before);
      k.branch(k.less(k.thread, k.index(1)), [&] {
        w.arriveExpecting(barrier(full, slot.number), bytes);
        w.copy(to, scratch, offset, bytes, barrier(full, slot.number));
      });
      offset = k.add(offset, bytes / 4);
    };
    fill(keysEmpty, keysFull, keysAt(slot.number), packing.keys.bytes(keysPerTile));
    fill(valuesEmpty, valuesFull, valuesAt(slot.number), packing.values.bytes(keysPerTile));
  });
}

/// All threads copy. A tile is said to be there when the copies of the next one have begun.
void WarpgroupsEmitter::produceRows(Value begin, Value end) {
  auto start = [&](const PackedOperand &operand, Phase empty, const Slot &slot, Value key, Value place) {
    w.wait(barrier(empty, slot.number), k.sub(k.index(1), slot.parity));
    operand.startCopies(k, views[operand.position], key, numKeys, keysPerTile, place);
    k.commitCopies();
  };
  auto publish = [&](Phase full, const Slot &slot, int64_t underWay) {
    k.waitForCopies(underWay);
    w.publishStores();
    w.arrive(barrier(full, slot.number));
  };
  k.loop(begin, end, keysPerTile, [&](Value key) {
    Slot slot = slotOf(key);
    start(packing.keys, keysEmpty, slot, key, keysAt(slot.number));
    k.branch(k.less(begin, key), [&] { publish(valuesFull, slotOf(k.sub(key, k.index(keysPerTile))), 1); });
    start(packing.values, valuesEmpty, slot, key, valuesAt(slot.number));
    publish(keysFull, slot, 1);
  });
  k.branch(k.less(begin, end), [&] { publish(valuesFull, slotOf(k.sub(end, k.index(1))), 0); });
}

/// The warpgroup's queries, rounded, to shared memory.
void WarpgroupsEmitter::stageQueries() {
  int64_t pieces = queries.padded / 8;
  Value thread = k.rem(k.thread, k.index(Warpgroups::kThreads));
  Value begin = k.add(first, k.mul(warpgroup, Warpgroups::kRows));
  for (int64_t n = 0; n < Warpgroups::kRows * pieces; n += Warpgroups::kThreads) {
    Value number = k.add(thread, n), row = k.div(number, k.index(pieces)), piece = k.rem(number, k.index(pieces));
    Value source = k.add(begin, row), isRow = k.less(source, numQueries);
    Values words = queries.readPiece(k, views[spec.query], source, isRow, k.mul(piece, 8), precision);
    Value panel = k.mul(k.div(piece, k.index(8)), Warpgroups::kRows * Warpgroups::kRowBytes);
    Value at = k.add(panel, k.mul(w.pieceAt(row, k.rem(piece, k.index(8))), 16));
    w.storePiece(words, k.add(queriesOfGroup(), at));
  }
  w.publishStores();
  w.barrier(k.add(warpgroup, kOwn), Warpgroups::kThreads);
}

/// The warp has read what the slot holds.
void WarpgroupsEmitter::release(Phase phase, const Slot &slot) {
  k.branch(k.less(lane(), k.index(1)), [&] { w.arrive(barrier(phase, slot.number)); });
}

Values WarpgroupsEmitter::startScores(const Slot &slot) {
  wait(keysFull, slot);
  return w.startShared({}, queriesOfGroup(), Warpgroups::kRows, keysAt(slot.number), keysPerTile, queries.padded,
                       precision);
}

Values WarpgroupsEmitter::startResult(ValueRange state, ValueRange packed, const Slot &slot) {
  wait(valuesFull, slot);
  Values sums;
  for (int64_t n = 0; n < rows * width; ++n)
    sums.push_back(state[placeOf(n)]);
  return w.startProducts(sums, packed, valuesAt(slot.number), keysPerTile, precision);
}

Values WarpgroupsEmitter::scoresOf(ValueRange made) {
  Values raw(rows * columns);
  for (auto [n, sum] : llvm::enumerate(made))
    raw[n % 4 / 2 * columns + n / 4 * 2 + n % 2] = sum;
  return raw;
}

Values WarpgroupsEmitter::packWeights(ArrayRef<Value> weights) {
  Values packed;
  for (int64_t c = 0; c < columns; c += 4) {
    Values top = k.packed(weights.slice(c, 4), precision), bottom = k.packed(weights.slice(columns + c, 4), precision);
    for (Value word : {top[0], bottom[0], top[1], bottom[1]})
      packed.push_back(k.bitcast(word, k.b.getI32Type()));
  }
  return packed;
}

/// One product after the other.
Values WarpgroupsEmitter::sweepInOrder(Value key, ValueRange state) {
  Slot slot = slotOf(key);
  Values made = w.finish(startScores(slot));
  release(keysEmpty, slot);
  Values next, weights = weigh(finishScores(scoresOf(made), key), key, state, next);
  setColumns(next, w.finish(startResult(next, packWeights(weights), slot)));
  release(valuesEmpty, slot);
  return next;
}

//===----------------------------------------------------------------------===//
// One tile ahead
//===----------------------------------------------------------------------===//

// Scores come one tile before results: while the weights of a tile are made, those of the tile before meet their
// values. Behind the state stand the packed weights of the tile before.

Values WarpgroupsEmitter::sweepAhead(Value begin, Value end, const KeyMask::Bounds &bounds) {
  auto sweepAll = [&]() -> Values {
    Slot slot = slotOf(begin);
    k.branch(k.less(k.index(0), warpgroup), [&] { giveTurn(); });
    takeTurn();
    Values made = startScores(slot);
    giveTurn();
    made = w.finish(made);
    release(keysEmpty, slot);
    setTile(begin, k.add(begin, keysPerTile), bounds);
    Values carried, factors, state = startState();
    Values weights = weighTile(finishScores(scoresOf(made), begin), begin, state, carried, factors);
    carried.append(packWeights(weights));
    carried = k.loop(k.add(begin, keysPerTile), end, keysPerTile, carried, [&](Value key, ValueRange carried) {
      return sweepOne(key, k.add(key, keysPerTile), bounds, carried);
    });
    Values next(ArrayRef(carried).take_front(state.size()));
    Slot last = slotOf(k.sub(end, k.index(1)));
    takeTurn();
    made = startResult(next, ArrayRef(carried).drop_front(state.size()), last);
    k.branch(k.less(warpgroup, k.index(1)), [&] { giveTurn(); });
    setColumns(next, w.finish(made));
    return next;
  };
  Values none = startState();
  return k.branch(k.less(begin, end), ValueRange(none).getTypes(), sweepAll, [&] { return none; });
}

/// The product of the tile before is under way until the weights are made.
Values WarpgroupsEmitter::sweepOverlapped(Value key, ValueRange carried) {
  int64_t count = 2 * rows + rows * width;
  ValueRange state = carried.take_front(count), packed = carried.drop_front(count);
  Slot slot = slotOf(key), before = slotOf(k.sub(key, k.index(keysPerTile)));
  takeTurn();
  Values scores = startScores(slot), sums = startResult(state, packed, before);
  giveTurn();
  scores = w.finish(scores, 1);
  release(keysEmpty, slot);
  Values next, factors, weights = weighTile(finishScores(scoresOf(scores), key), key, state, next, factors);
  // A branch behind which ptxas moves no exponential.
  wait(valuesFull, before);
  sums.append(weights);
  sums = w.finish(sums);
  release(valuesEmpty, before);
  setColumns(next, ArrayRef(sums).take_front(rows * width));
  scaleColumns(next, factors);
  next.append(packWeights(ArrayRef(sums).drop_front(rows * width)));
  return next;
}

/// The warpgroups start their products in turns, so that one makes weights beside those of the other.
void WarpgroupsEmitter::takeTurn() { w.barrier(k.add(warpgroup, kTurns), kConsumers * Warpgroups::kThreads); }
void WarpgroupsEmitter::giveTurn() {
  Value other = k.sub(k.index(kTurns + 1), warpgroup);
  w.barrier(other, kConsumers * Warpgroups::kThreads, false);
}

//===----------------------------------------------------------------------===//
// The kernel
//===----------------------------------------------------------------------===//

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
    emitLaunches(buffers);
    // Where 0 times a hidden value is not 0 the heads are made once more.
    if (canHide())
      makeAttention(k.b, k.loc, spec, precision)->emitLaunches(buffers, [&](BlockBuilder &k, Value batch, Value head) {
        return packing.isPacked ? hasInfinite(k, batch, head) : hasNan(k, batch, head);
      });
  };
  Value isMany;
  if (!spec.getStaticSize(Dim::I))
    isMany = k.less(k.index(kFewQueries - 1), getDimSize(k, spec, buffers, Dim::I));
  auto others = [&] { makeAttention(k.b, k.loc, spec, precision)->emitLaunches(buffers); };
  k.branchOnSm90a(use, warpgroups, others, isMany);
  return function;
}

} // namespace

bool canUseWarpgroups(const AttentionSpec &spec, Precision precision) {
  std::optional<int64_t> d = spec.getStaticSize(Dim::D), e = spec.getStaticSize(Dim::E);
  std::optional<int64_t> i = spec.getStaticSize(Dim::I);
  return (precision == Precision::bf16 || precision == Precision::f16) && d && e && *d <= kMaxWidth &&
         *e <= kMaxWidth && spec.kind == ScoreKind::dot && (!i || *i >= kFewQueries) && spec.blockLists.empty() &&
         spec.normalizer == Normalizer::softmax && !spec.hasWeightSweep() && !storesTiles(spec);
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
