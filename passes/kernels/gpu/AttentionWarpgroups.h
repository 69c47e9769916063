#ifndef PASSES_KERNELS_GPU_ATTENTIONWARPGROUPS_H
#define PASSES_KERNELS_GPU_ATTENTIONWARPGROUPS_H

#include "passes/kernels/gpu/AttentionPacking.h"

#include <algorithm>

namespace attn {

// Products by warpgroups, on sm_90a. A launch of its own rounds keys and values, once for all queries of a group of
// heads, to tiles that are in memory what they are in shared memory; those of 16 bits are taken from where they lie, by
// tensor maps. Of a block one warp then copies tiles into two rings, and two warpgroups of 64 queries multiply, in
// turns: while one makes weights the other has the matrix units, and its own results of the tile before come from them,
// too. A processor has one such block, which goes from one block of queries to the next: what it needs of that is copied
// beside the products and stores of the one before.

class WarpgroupsEmitter : public AttentionEmitter {
public:
  WarpgroupsEmitter(mlir::OpBuilder &b, mlir::Location loc, const AttentionSpec &spec, Precision precision);

  mlir::func::FuncOp emit(llvm::StringRef symbol, Sm90a use);

private:
  // Named barriers: 0 is the block's, one of each warpgroup, one for each turn.
  static constexpr int64_t kOwn = 1, kTurns = kOwn + 2;
  static constexpr int64_t kConsumers = 2;
  enum Phase { keysFull, keysEmpty, valuesFull, valuesEmpty, queriesFull, queriesEmpty, numPhases };

  void measure(mlir::ValueRange buffers);
  void pack(mlir::ValueRange buffers);
  void mapTiles(mlir::ValueRange buffers);
  mlir::Value packRows(const PackedOperand &operand, const HeadView &view, mlir::Value begin, mlir::Value offset,
                       bool findsInfinite);
  mlir::Value hasInfinite(BlockBuilder &k, mlir::Value batch, mlir::Value head);
  void markNan(mlir::ValueRange state);
  mlir::Value hasNan(BlockBuilder &k, mlir::Value batch, mlir::Value head);

  Values launch(mlir::Value blocks) override;
  void emitBlocks(mlir::ValueRange buffers, mlir::ArrayRef<mlir::Value> memory) override;
  /// `body` for each block of queries that this one has.
  using Body = llvm::function_ref<void(mlir::Value begin, mlir::Value end, const KeyMask::Bounds &bounds)>;
  void forBlocks(mlir::ValueRange buffers, mlir::ArrayRef<mlir::Value> memory, Body body);
  mlir::Value blockOfRound(mlir::Value round);
  bool canSweepAgain() const override { return false; }
  void initializeBarriers();
  void consume(mlir::Value begin, mlir::Value end, const KeyMask::Bounds &bounds);
  void produce(mlir::Value begin, mlir::Value end);
  void stageQueries();
  Values sweepTile(mlir::Value key, mlir::ValueRange state) override {
    return packing.isAhead ? sweepOverlapped(key, state) : sweepInOrder(key, state);
  }
  Values sweepInOrder(mlir::Value key, mlir::ValueRange state);
  Values sweepAhead(mlir::Value begin, mlir::Value end, const KeyMask::Bounds &bounds);
  Values sweepOverlapped(mlir::Value key, mlir::ValueRange carried);

  /// Whether those who copy keys copy queries, too. Else who multiplies reads, rounds and stores them.
  bool copiesQueries() const { return !packing.isPacked && queries.isTiled; }

  static constexpr int64_t kThreadsInAll = (1 + kConsumers) * Warpgroups::kThreads;
  /// How many places there are in shared memory, so that copies are under way early: for queries of two blocks if there
  /// is room for them, and as many tiles as there is room for. Values are needed a tile later than keys.
  struct Places {
    int64_t queries, keys, values;
  };
  Places countPlaces() const;
  int64_t placesOf(Phase phase) const {
    return phase < valuesFull    ? places.keys
           : phase < queriesFull ? places.values
           : copiesQueries()     ? kConsumers * places.queries
                                 : 0;
  }
  int64_t barriersBefore(Phase phase) const {
    int64_t count = 0;
    for (int n = 0; n < phase; ++n)
      count += placesOf(Phase(n));
    return count;
  }
  int64_t keysBegin() const { return places.queries * queries.bytes(queriesPerBlock); }
  int64_t valuesBegin() const { return keysBegin() + places.keys * packing.keys.bytes(keysPerTile); }
  int64_t barriersBegin() const { return valuesBegin() + places.values * packing.values.bytes(keysPerTile); }
  int64_t sharedBytes() const { return barriersBegin() + 8 * barriersBefore(numPhases); }

  mlir::Value place(int64_t bytes) { return k.add(shared, bytes); }
  /// Of a ring, and the parity of the phase in which a tile is there.
  struct Slot {
    mlir::Value number, parity;
  };
  mlir::Value barrier(Phase phase, mlir::Value slot) {
    return k.add(place(barriersBegin() + 8 * barriersBefore(phase)), k.mul(slot, 8));
  }
  mlir::Value keysAt(mlir::Value slot) {
    return k.add(place(keysBegin()), k.mul(slot, packing.keys.bytes(keysPerTile)));
  }
  mlir::Value valuesAt(mlir::Value slot) {
    return k.add(place(valuesBegin()), k.mul(slot, packing.values.bytes(keysPerTile)));
  }
  Slot slotOfStep(mlir::Value step, int64_t count) {
    return {k.rem(step, k.index(count)), k.rem(k.div(step, k.index(count)), k.index(2))};
  }
  mlir::Value stepOf(mlir::Value key) { return k.add(firstStep, k.div(k.sub(key, firstKey), k.index(keysPerTile))); }
  Slot keySlot(mlir::Value key) { return slotOfStep(stepOf(key), places.keys); }
  Slot valueSlot(mlir::Value key) { return slotOfStep(stepOf(key), places.values); }
  /// Of the block of queries at hand, those of a warpgroup.
  Slot querySlot(mlir::Value warpgroup) {
    Slot slot = slotOfStep(queryStep, places.queries);
    return {k.add(k.mul(slot.number, kConsumers), warpgroup), slot.parity};
  }
  mlir::Value queriesAt(mlir::Value slot) { return k.add(shared, k.mul(slot, queries.bytes(Warpgroups::kRows))); }
  void wait(Phase phase, const Slot &slot) { w.wait(barrier(phase, slot.number), slot.parity); }
  void release(Phase phase, const Slot &slot);
  void fill(const PackedOperand &operand, mlir::Value key);
  void fillQueries();

  // Products of the tile in a slot, under way; what they are then, and what they are of, in the order of the emitter.
  Values startScores(const Slot &keys);
  Values startResult(mlir::ValueRange state, mlir::ValueRange packed, const Slot &values);
  Values scoresOf(mlir::ValueRange made);
  Values packWeights(mlir::ArrayRef<mlir::Value> weights);
  int64_t placeOf(int64_t n) { return 2 * rows + n % 4 / 2 * width + n / 4 * 2 + n % 2; }
  void setColumns(Values &state, mlir::ArrayRef<mlir::Value> made) {
    for (auto [n, column] : llvm::enumerate(made))
      state[placeOf(n)] = column;
  }
  void takeTurn();
  void giveTurn();

  // The thread's number is that among the consumers.
  mlir::Value warp() { return k.div(k.thread, k.index(32)); }
  mlir::Value lane() { return k.rem(k.thread, k.index(32)); }
  mlir::Value member() { return k.rem(k.thread, k.index(4)); }
  mlir::Value queriesOfGroup() { return queriesAt(copiesQueries() ? querySlot(warpgroup).number : warpgroup); }
  mlir::Value row(int64_t r) override { return k.add(k.add(k.mul(warp(), 16), k.div(lane(), k.index(4))), 8 * r); }
  mlir::Value keyPlace(int64_t c) override { return k.add(k.mul(member(), 2), c / 2 * 8 + c % 2); }
  mlir::Value columnPlace(int64_t e) override { return keyPlace(e); }

  const Precision precision;
  const Packing packing;
  const PackedOperand queries;
  Places places;
  Warpgroups w;
  mlir::Value scratch, numTiles, groups, tilesInAll; ///< the latter three from outside of launches, as the next
  mlir::Value numHeads, marksOfHead;
  mlir::Value keyTiles, valueTiles, queryTiles; ///< maps of what is copied from where it is, from outside of launches
  mlir::Value shared, warpgroup;
  /// Of the block of queries at hand; tiles before it, and blocks that have any.
  mlir::Value firstKey, firstStep, queryStep;
  mlir::Value blocksInAll, grid; ///< from outside of launches
};

} // namespace attn

#endif // PASSES_KERNELS_GPU_ATTENTIONWARPGROUPS_H
