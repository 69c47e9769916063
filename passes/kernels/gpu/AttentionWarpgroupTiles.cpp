#include "passes/kernels/gpu/AttentionWarpgroups.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

// What a block does: who copies, and who multiplies.

using namespace mlir;

namespace attn {

using Dim = AttentionOp::Dim;
using Values = LaneBuilder::Values;

//===----------------------------------------------------------------------===//
// A block
//===----------------------------------------------------------------------===//

void WarpgroupsEmitter::emitBlocks(ValueRange buffers, ArrayRef<Value> memory) {
  shared = memory[0];
  initializeBarriers();
  auto consumeAll = [&] {
    w.setRegisters(Warpgroups::kManyRegisters, true);
    k.thread = k.sub(k.thread, k.index(Warpgroups::kThreads));
    warpgroup = w.sameInWarp(k.div(k.thread, k.index(Warpgroups::kThreads)));
    if (packing.isAhead)
      k.branch(k.less(k.index(0), warpgroup), [&] { giveTurn(); });
    forBlocks(buffers, memory,
              [&](Value begin, Value end, const KeyMask::Bounds &bounds) { consume(begin, end, bounds); });
    if (packing.isAhead) // what the other one has given last
      k.branch(k.less(warpgroup, k.index(1)), [&] { takeTurn(); });
  };
  auto copyAll = [&] {
    w.setRegisters(Warpgroups::kFewRegisters, false);
    auto tiles = [&](Value begin, Value end, const KeyMask::Bounds &) { produce(begin, end); };
    k.branch(k.less(k.thread, k.index(32)), [&] { forBlocks(buffers, memory, tiles); });
  };
  k.branch(k.less(k.thread, k.index(Warpgroups::kThreads)), copyAll, consumeAll);
}

void WarpgroupsEmitter::initializeBarriers() {
  constexpr int64_t kWarps = Warpgroups::kThreads / 32;
  auto arrivals = [&](Phase phase) -> int64_t {
    bool isFull = phase == keysFull || phase == valuesFull || phase == queriesFull;
    return isFull ? 1 : phase == queriesEmpty ? kWarps : kConsumers * kWarps;
  };
  k.branch(k.less(k.thread, k.index(1)), [&] {
    for (int phase = 0; phase < numPhases; ++phase)
      for (int64_t n = 0; n < placesOf(Phase(phase)); ++n)
        w.initialize(barrier(Phase(phase), k.index(n)), arrivals(Phase(phase)));
    w.publishBarriers();
  });
  k.barrier();
}

void WarpgroupsEmitter::forBlocks(ValueRange buffers, ArrayRef<Value> memory, Body body) {
  auto isLeft = [&](ValueRange at) { return k.less(at[1], blocksInAll); };
  Value zero = k.index(0);
  k.repeat({zero, k.block, zero, zero}, isLeft, [&](ValueRange at) -> Values {
    Value round = k.add(at[0], 1), tiles;
    shared = w.fromHere(memory[0]);
    firstStep = at[2], queryStep = at[3];
    setBlock(at[1]);
    emitBlock(buffers, memory, [&](Value begin, Value end, const KeyMask::Bounds &bounds) {
      firstKey = begin;
      tiles = k.ceilDiv(k.sub(k.max(end, begin), begin), keysPerTile);
      body(begin, end, bounds);
    });
    return {round, blockOfRound(round), k.add(at[2], tiles), k.add(at[3], k.min(tiles, k.index(1)))};
  });
}

/// Every other round goes the other way: who had a long block of queries in one has a short one in the next.
Value WarpgroupsEmitter::blockOfRound(Value round) {
  Value back = k.sub(k.sub(grid, k.index(1)), k.block), isBack = k.less(k.index(0), k.rem(round, k.index(2)));
  return k.add(k.mul(round, grid), k.select(isBack, back, k.block));
}

void WarpgroupsEmitter::consume(Value begin, Value end, const KeyMask::Bounds &bounds) {
  if (!copiesQueries())
    stageQueries();
  else // a block without keys has no queries
    k.branch(k.less(begin, end), [&] { wait(queriesFull, querySlot(warpgroup)); });
  Values state = packing.isAhead ? sweepAhead(begin, end, bounds) : sweepTiles(begin, end, bounds);
  if (copiesQueries() && !packing.isAhead)
    k.branch(k.less(begin, end), [&] { release(queriesEmpty, querySlot(warpgroup)); });
  if (canHide() && !packing.isPacked)
    markNan(state);
  store(state);
}

/// One warp, of which one thread copies. Queries come behind the first keys.
void WarpgroupsEmitter::produce(Value begin, Value end) {
  k.loop(begin, end, keysPerTile, [&](Value key) {
    fill(packing.keys, key);
    if (copiesQueries())
      k.branch(k.less(begin, key), [] {}, [&] { fillQueries(); });
    fill(packing.values, key);
  });
}

/// Each warpgroup's when it has read those that are there.
void WarpgroupsEmitter::fillQueries() {
  for (int64_t n = 0; n < kConsumers; ++n) {
    Slot slot = querySlot(k.index(n));
    w.wait(barrier(queriesEmpty, slot.number), k.sub(k.index(1), slot.parity));
    k.branch(k.less(k.thread, k.index(1)), [&] {
      Value full = barrier(queriesFull, slot.number), begin = k.add(first, n * Warpgroups::kRows);
      w.arriveExpecting(full, queries.bytes(Warpgroups::kRows));
      queries.copyTiles(k, queryTiles, batch, head, begin, Warpgroups::kRows, queriesAt(slot.number), full);
    });
  }
}

/// Copies a tile of keys or values to its place when that is free.
void WarpgroupsEmitter::fill(const PackedOperand &operand, Value key) {
  bool isKeys = &operand == &packing.keys;
  Slot slot = isKeys ? keySlot(key) : valueSlot(key);
  Value full = barrier(isKeys ? keysFull : valuesFull, slot.number);
  Value to = isKeys ? keysAt(slot.number) : valuesAt(slot.number);
  w.wait(barrier(isKeys ? keysEmpty : valuesEmpty, slot.number), k.sub(k.index(1), slot.parity));
  k.branch(k.less(k.thread, k.index(1)), [&] {
    int64_t bytes = operand.bytes(keysPerTile);
    w.arriveExpecting(full, bytes);
    if (!packing.isPacked)
      return operand.copyTiles(k, isKeys ? keyTiles : valueTiles, batch, head, key, keysPerTile, to, full);
    Value outer = k.mul(k.add(k.mul(batch, groups), packing.groupOf(k, head)), numTiles);
    Value offset = k.mul(k.add(outer, k.div(key, k.index(keysPerTile))), packing.elementsPerTile());
    w.copy(to, scratch, isKeys ? offset : k.add(offset, packing.keys.bytes(keysPerTile) / 4), bytes, full);
  });
}

/// The warpgroup's queries, rounded, to shared memory.
void WarpgroupsEmitter::stageQueries() {
  int64_t pieces = queries.padded / 8;
  Value thread = k.rem(k.thread, k.index(Warpgroups::kThreads));
  Value begin = k.add(first, k.mul(warpgroup, Warpgroups::kRows));
  w.barrier(k.add(warpgroup, kOwn), Warpgroups::kThreads); // all have read those of the block before
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

Values WarpgroupsEmitter::startScores(const Slot &keys) {
  wait(keysFull, keys);
  return w.startShared({}, {queriesOfGroup(), Warpgroups::kRows}, {keysAt(keys.number), keysPerTile}, keysPerTile,
                       queries.padded, precision);
}

Values WarpgroupsEmitter::startResult(ValueRange state, ValueRange packed, const Slot &values) {
  wait(valuesFull, values);
  Values sums;
  for (int64_t n = 0; n < rows * width; ++n)
    sums.push_back(state[placeOf(n)]);
  return w.startProducts(sums, packed, valuesAt(values.number), keysPerTile, precision);
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
  Slot keys = keySlot(key), values = valueSlot(key);
  Values made = w.finish(startScores(keys));
  release(keysEmpty, keys);
  Values next, weights = weigh(finishScores(scoresOf(made), key), key, state, next);
  setColumns(next, w.finish(startResult(next, packWeights(weights), values)));
  release(valuesEmpty, values);
  return next;
}

//===----------------------------------------------------------------------===//
// One tile ahead
//===----------------------------------------------------------------------===//

// Scores come one tile before results: while the weights of a tile are made, those of the tile before meet their
// values. Behind the state stand the packed weights of the tile before.

Values WarpgroupsEmitter::sweepAhead(Value begin, Value end, const KeyMask::Bounds &bounds) {
  auto sweepAll = [&]() -> Values {
    Slot keys = keySlot(begin);
    takeTurn();
    Values made = startScores(keys);
    giveTurn();
    made = w.finish(made);
    release(keysEmpty, keys);
    setTile(begin, k.add(begin, keysPerTile), bounds);
    Values carried, factors, state = startState();
    Values weights = weighTile(finishScores(scoresOf(made), begin), begin, state, carried, factors);
    carried.append(packWeights(weights));
    carried = k.loop(k.add(begin, keysPerTile), end, keysPerTile, carried, [&](Value key, ValueRange carried) {
      return sweepOne(key, k.add(key, keysPerTile), bounds, carried);
    });
    Values next(ArrayRef(carried).take_front(state.size()));
    if (copiesQueries())
      release(queriesEmpty, querySlot(warpgroup));
    Slot last = valueSlot(k.sub(end, k.index(1)));
    takeTurn();
    made = startResult(next, ArrayRef(carried).drop_front(state.size()), last);
    giveTurn();
    setColumns(next, w.finish(made));
    release(valuesEmpty, last);
    return next;
  };
  Values none = startState();
  return k.branch(k.less(begin, end), ValueRange(none).getTypes(), sweepAll, [&] { return none; });
}

/// The product of the tile before is under way until the weights are made.
Values WarpgroupsEmitter::sweepOverlapped(Value key, ValueRange carried) {
  int64_t count = 2 * rows + rows * width;
  ValueRange state = carried.take_front(count), packed = carried.drop_front(count);
  Slot keys = keySlot(key), before = valueSlot(k.sub(key, k.index(keysPerTile)));
  takeTurn();
  Values scores = startScores(keys), sums = startResult(state, packed, before);
  giveTurn();
  scores = w.finish(scores, 1);
  release(keysEmpty, keys);
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

} // namespace attn
