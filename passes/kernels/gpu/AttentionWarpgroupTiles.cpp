#include "passes/kernels/gpu/AttentionWarpgroups.h"

// What a block does: who copies, and who multiplies.

using namespace mlir;

namespace attn {

using Dim = AttentionOp::Dim;

//===----------------------------------------------------------------------===//
// A block
//===----------------------------------------------------------------------===//

void WarpgroupsEmitter::emitBlocks(ValueRange buffers) {
  shared = memory;
  initializeBarriers();
  auto consumeAll = [&] {
    w.setRegisters(Warpgroups::kManyRegisters, true);
    k.numberFrom(Warpgroups::kThreads);
    warpgroup = w.sameInWarp(k.thread / Warpgroups::kThreads);
    if (packing.isAhead)
      k.when(0 < warpgroup, [&] { giveTurn(); });
    forBlocks(buffers, [&](Index begin, Index end, const KeyMask::Bounds &bounds) { consume(begin, end, bounds); });
    if (packing.isAhead) // what the other one has given last
      k.when(warpgroup < 1, [&] { takeTurn(); });
  };
  auto copyAll = [&] {
    w.setRegisters(Warpgroups::kFewRegisters, false);
    auto tiles = [&](Index begin, Index end, const KeyMask::Bounds &) { produce(begin, end); };
    k.when(k.thread < 32, [&] { forBlocks(buffers, tiles); });
  };
  k.when(k.thread < Warpgroups::kThreads, copyAll, consumeAll);
}

void WarpgroupsEmitter::initializeBarriers() {
  constexpr int64_t kWarps = Warpgroups::kThreads / 32;
  auto arrivals = [&](Phase phase) -> int64_t {
    bool isFull = phase == keysFull || phase == valuesFull || phase == queriesFull;
    return isFull ? 1 : phase == queriesEmpty ? kWarps : kConsumers * kWarps;
  };
  k.when(k.thread < 1, [&] {
    for (int phase = 0; phase < numPhases; ++phase)
      for (int64_t n = 0; n < placesOf(Phase(phase)); ++n)
        w.initialize(barrier(Phase(phase), k.index(n)), arrivals(Phase(phase)));
    w.publishBarriers();
  });
  k.barrier();
}

void WarpgroupsEmitter::forBlocks(ValueRange buffers, Sweep body) {
  Index zero = k.index(0);
  std::tuple init(zero, k.block, zero, zero);
  auto isLeft = [&](Index, Index block, Index, Index) { return block < blocksInAll; };
  k.repeat(init, isLeft, [&](Index round, Index block, Index steps, Index querySteps) {
    Index nextRound = round + 1, tiles;
    shared = w.fromHere(memory);
    firstStep = steps, queryStep = querySteps;
    setBlock(block);
    emitBlock(buffers, [&](Index begin, Index end, const KeyMask::Bounds &bounds) {
      firstKey = begin;
      tiles = ceilDiv(maximum(end, begin) - begin, keysPerTile);
      body(begin, end, bounds);
    });
    Index nextBlock = blockOfRound(nextRound), nextSteps = steps + tiles;
    return std::tuple(nextRound, nextBlock, nextSteps, querySteps + minimum(tiles, 1));
  });
}

/// Every other round goes the other way: who had a long block of queries in one has a short one in the next.
Index WarpgroupsEmitter::blockOfRound(const Index &round) {
  Index back = grid - 1 - k.block;
  Mask isBack = 0 < round % 2;
  return round * grid + select(isBack, back, k.block);
}

void WarpgroupsEmitter::consume(const Index &begin, const Index &end, const KeyMask::Bounds &bounds) {
  if (!copiesQueries())
    stageQueries();
  else // a block without keys has no queries
    k.when(begin < end, [&] { wait(queriesFull, querySlot(warpgroup)); });
  Nums state = packing.isAhead ? sweepAhead(begin, end, bounds) : sweepTiles(begin, end, bounds);
  if (copiesQueries() && !packing.isAhead)
    k.when(begin < end, [&] { release(queriesEmpty, querySlot(warpgroup)); });
  if (canHide() && !packing.isPacked)
    markNan(state);
  store(state);
}

/// One warp, of which one thread copies. Queries come behind the first keys.
void WarpgroupsEmitter::produce(const Index &begin, const Index &end) {
  k.loop(begin, end, keysPerTile, [&](Index key) {
    fill(packing.keys, key);
    if (copiesQueries())
      k.when(begin < key, [] {}, [&] { fillQueries(); });
    fill(packing.values, key);
  });
}

/// Each warpgroup's when it has read those that are there.
void WarpgroupsEmitter::fillQueries() {
  for (int64_t n = 0; n < kConsumers; ++n) {
    Slot slot = querySlot(k.index(n));
    w.wait(barrier(queriesEmpty, slot.number), 1 - slot.parity);
    k.when(k.thread < 1, [&] {
      Index full = barrier(queriesFull, slot.number), begin = first + n * Warpgroups::kRows;
      w.arriveExpecting(full, queries.bytes(Warpgroups::kRows));
      queries.copyTiles(k, queryTiles, batch, head, begin, Warpgroups::kRows, queriesAt(slot.number), full);
    });
  }
}

/// Copies a tile of keys or values to its place when that is free.
void WarpgroupsEmitter::fill(const PackedOperand &operand, const Index &key) {
  bool isKeys = &operand == &packing.keys;
  Slot slot = isKeys ? keySlot(key) : valueSlot(key);
  Index full = barrier(isKeys ? keysFull : valuesFull, slot.number);
  Index to = isKeys ? keysAt(slot.number) : valuesAt(slot.number);
  w.wait(barrier(isKeys ? keysEmpty : valuesEmpty, slot.number), 1 - slot.parity);
  k.when(k.thread < 1, [&] {
    int64_t bytes = operand.bytes(keysPerTile);
    w.arriveExpecting(full, bytes);
    if (!packing.isPacked)
      return operand.copyTiles(k, isKeys ? keyTiles : valueTiles, batch, head, key, keysPerTile, to, full);
    Index outer = (batch * groups + packing.groupOf(head)) * numTiles;
    Index offset = (outer + key / keysPerTile) * packing.elementsPerTile();
    w.copy(to, scratch, isKeys ? offset : offset + packing.keys.bytes(keysPerTile) / 4, bytes, full);
  });
}

/// The warpgroup's queries, rounded, to shared memory.
void WarpgroupsEmitter::stageQueries() {
  int64_t pieces = queries.padded / 8;
  Index thread = k.thread % Warpgroups::kThreads, begin = first + warpgroup * Warpgroups::kRows;
  w.barrier(warpgroup + kOwn, Warpgroups::kThreads); // all have read those of the block before
  for (int64_t n = 0; n < Warpgroups::kRows * pieces; n += Warpgroups::kThreads) {
    Index number = thread + n, row = number / pieces, piece = number % pieces, source = begin + row;
    Mask isRow = source < numQueries;
    Nums words = queries.readPiece(k, views[spec.query], source, isRow, piece * 8, precision);
    Index panel = piece / 8 * (Warpgroups::kRows * Warpgroups::kRowBytes);
    Index at = panel + w.pieceAt(row, piece % 8) * 16;
    w.storePiece(words, queriesOfGroup() + at);
  }
  w.publishStores();
  w.barrier(warpgroup + kOwn, Warpgroups::kThreads);
}

/// The warp has read what the slot holds.
void WarpgroupsEmitter::release(Phase phase, const Slot &slot) {
  k.when(lane() < 1, [&] { w.arrive(barrier(phase, slot.number)); });
}

Nums WarpgroupsEmitter::startScores(const Slot &keys) {
  wait(keysFull, keys);
  return w.startShared({}, {queriesOfGroup(), Warpgroups::kRows}, {keysAt(keys.number), keysPerTile}, keysPerTile,
                       queries.padded, precision);
}

Nums WarpgroupsEmitter::startResult(const Nums &state, ArrayRef<Num> packed, const Slot &values) {
  wait(valuesFull, values);
  Nums sums;
  for (int64_t n = 0; n < rows * width; ++n)
    sums.push_back(state[placeOf(n)]);
  return w.startProducts(sums, packed, valuesAt(values.number), keysPerTile, precision);
}

Nums WarpgroupsEmitter::scoresOf(const Nums &made) {
  Nums raw(rows * columns);
  for (auto [n, sum] : llvm::enumerate(made))
    raw[n % 4 / 2 * columns + n / 4 * 2 + n % 2] = sum;
  return raw;
}

Nums WarpgroupsEmitter::packWeights(ArrayRef<Num> weights) {
  Nums packed;
  for (int64_t c = 0; c < columns; c += 4) {
    Nums top = k.packed(weights.slice(c, 4), precision), bottom = k.packed(weights.slice(columns + c, 4), precision);
    for (const Num &word : {top[0], bottom[0], top[1], bottom[1]})
      packed.push_back(k.asWord(word));
  }
  return packed;
}

/// One product after the other.
Nums WarpgroupsEmitter::sweepInOrder(const Index &key, const Nums &state) {
  Slot keys = keySlot(key), values = valueSlot(key);
  Nums made = w.finish(startScores(keys));
  release(keysEmpty, keys);
  Nums next, weights = weigh(finishScores(scoresOf(made), key), key, state, next);
  setColumns(next, w.finish(startResult(next, packWeights(weights), values)));
  release(valuesEmpty, values);
  return next;
}

//===----------------------------------------------------------------------===//
// One tile ahead
//===----------------------------------------------------------------------===//

// Scores come one tile before results: while the weights of a tile are made, those of the tile before meet their
// values. Behind the state stand the packed weights of the tile before.

Nums WarpgroupsEmitter::sweepAhead(const Index &begin, const Index &end, const KeyMask::Bounds &bounds) {
  Nums none = startState();
  auto sweepAll = [&] {
    Slot keys = keySlot(begin);
    takeTurn();
    Nums made = startScores(keys);
    giveTurn();
    made = w.finish(made);
    release(keysEmpty, keys);
    setTile(begin, begin + keysPerTile, bounds);
    Nums carried, factors, state = startState();
    Nums weights = weighTile(finishScores(scoresOf(made), begin), begin, state, carried, factors);
    carried.append(packWeights(weights));
    carried = k.loop(begin + keysPerTile, end, keysPerTile, carried,
                     [&](Index key, Nums carried) { return sweepOne(key, key + keysPerTile, bounds, carried); });
    Nums next(ArrayRef(carried).take_front(state.size()));
    if (copiesQueries())
      release(queriesEmpty, querySlot(warpgroup));
    Slot last = valueSlot(end - 1);
    takeTurn();
    made = startResult(next, ArrayRef(carried).drop_front(state.size()), last);
    giveTurn();
    setColumns(next, w.finish(made));
    release(valuesEmpty, last);
    return next;
  };
  return k.choose(begin < end, sweepAll, [&] { return none; });
}

/// The product of the tile before is under way until the weights are made.
Nums WarpgroupsEmitter::sweepOverlapped(const Index &key, const Nums &carried) {
  int64_t count = 2 * rows + rows * width;
  Nums state(ArrayRef(carried).take_front(count));
  Slot keys = keySlot(key), before = valueSlot(key - keysPerTile);
  takeTurn();
  Nums scores = startScores(keys), sums = startResult(state, ArrayRef(carried).drop_front(count), before);
  giveTurn();
  scores = w.finish(scores, 1);
  release(keysEmpty, keys);
  Nums next, factors, weights = weighTile(finishScores(scoresOf(scores), key), key, state, next, factors);
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
void WarpgroupsEmitter::takeTurn() { w.barrier(warpgroup + kTurns, kConsumers * Warpgroups::kThreads); }
void WarpgroupsEmitter::giveTurn() { w.barrier((kTurns + 1) - warpgroup, kConsumers * Warpgroups::kThreads, false); }

} // namespace attn
