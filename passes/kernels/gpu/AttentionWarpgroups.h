#ifndef PASSES_KERNELS_GPU_ATTENTIONWARPGROUPS_H
#define PASSES_KERNELS_GPU_ATTENTIONWARPGROUPS_H

#include "passes/kernels/gpu/AttentionPacking.h"

#include <algorithm>

namespace attn {

// Products by warpgroups, on sm_90a. A launch of its own rounds keys and values, once for all queries of a group of
// heads, to tiles that are in memory what they are in shared memory; those of 16 bits are taken from where they lie, by
// tensor maps. Of a block one warp then copies tiles into two rings, and two warpgroups of 64 queries multiply, in
// turns: while one makes weights the other has the matrix units, and its own results of the tile before come from them,
// too. A processor has one such block, which goes from one block of queries to the next: what it needs of that is
// copied beside the products and stores of the one before.

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
  Mask packRows(const PackedOperand &operand, const OperandView &view, const Index &begin, const Index &offset,
                bool findsInfinite);
  Mask hasInfinite(ThreadCode &k, const Index &batch, const Index &head);
  void markNan(const Nums &state);
  Mask hasNan(ThreadCode &k, const Index &batch, const Index &head);

  llvm::SmallVector<Buffer> launch(const Index &blocks) override;
  void emitBlocks(mlir::ValueRange buffers) override;
  /// `body` for each block of queries that this one has.
  void forBlocks(mlir::ValueRange buffers, Sweep body);
  Index blockOfRound(const Index &round);
  bool canSweepAgain() const override { return false; }
  void initializeBarriers();
  void consume(const Index &begin, const Index &end, const KeyMask::Bounds &bounds);
  void produce(const Index &begin, const Index &end);
  void stageQueries();
  Nums sweepTile(const Index &key, const Nums &state) override {
    return packing.isAhead ? sweepOverlapped(key, state) : sweepInOrder(key, state);
  }
  Nums sweepInOrder(const Index &key, const Nums &state);
  Nums sweepAhead(const Index &begin, const Index &end, const KeyMask::Bounds &bounds);
  Nums sweepOverlapped(const Index &key, const Nums &carried);

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

  /// Of a ring, and the parity of the phase in which a tile is there.
  struct Slot {
    Index number, parity;
  };
  Index barrier(Phase phase, const Index &slot) {
    return shared + (barriersBegin() + 8 * barriersBefore(phase)) + slot * 8;
  }
  Index keysAt(const Index &slot) { return shared + keysBegin() + slot * packing.keys.bytes(keysPerTile); }
  Index valuesAt(const Index &slot) { return shared + valuesBegin() + slot * packing.values.bytes(keysPerTile); }
  Slot slotOfStep(const Index &step, int64_t count) { return {step % count, step / count % 2}; }
  Index stepOf(const Index &key) { return firstStep + (key - firstKey) / keysPerTile; }
  Slot keySlot(const Index &key) { return slotOfStep(stepOf(key), places.keys); }
  Slot valueSlot(const Index &key) { return slotOfStep(stepOf(key), places.values); }
  /// Of the block of queries at hand, those of a warpgroup.
  Slot querySlot(const Index &warpgroup) {
    Slot slot = slotOfStep(queryStep, places.queries);
    return {slot.number * kConsumers + warpgroup, slot.parity};
  }
  Index queriesAt(const Index &slot) { return shared + slot * queries.bytes(Warpgroups::kRows); }
  void wait(Phase phase, const Slot &slot) { w.wait(barrier(phase, slot.number), slot.parity); }
  void release(Phase phase, const Slot &slot);
  void fill(const PackedOperand &operand, const Index &key);
  void fillQueries();

  // Products of the tile in a slot, under way; what they are then, and what they are of, in the order of the emitter.
  Nums startScores(const Slot &keys);
  Nums startResult(const Nums &state, llvm::ArrayRef<Num> packed, const Slot &values);
  Nums scoresOf(const Nums &made);
  Nums packWeights(llvm::ArrayRef<Num> weights);
  int64_t placeOf(int64_t n) { return 2 * rows + n % 4 / 2 * width + n / 4 * 2 + n % 2; }
  void setColumns(Nums &state, llvm::ArrayRef<Num> made) {
    for (auto [n, column] : llvm::enumerate(made))
      state[placeOf(n)] = column;
  }
  void takeTurn();
  void giveTurn();

  // The thread's number is that among the consumers.
  Index warp() { return k.thread / 32; }
  Index lane() { return k.thread % 32; }
  Index member() { return k.thread % 4; }
  Index queriesOfGroup() { return queriesAt(copiesQueries() ? querySlot(warpgroup).number : warpgroup); }
  Index row(int64_t r) override { return warp() * 16 + lane() / 4 + 8 * r; }
  Index keyPlace(int64_t c) override { return member() * 2 + (c / 2 * 8 + c % 2); }
  Index columnPlace(int64_t e) override { return keyPlace(e); }

  const Precision precision;
  const Packing packing;
  const PackedOperand queries;
  Places places;
  Warpgroups w;
  Buffer scratch;
  Index numTiles, groups, tilesInAll, numHeads, marksOfHead; ///< from outside of launches
  mlir::Value keyTiles, valueTiles, queryTiles; ///< maps of what is copied from where it is, from outside of launches
  Index memory, shared; ///< the first place in shared memory, and the same from where it is used
  Index warpgroup;
  /// Of the block of queries at hand; tiles before it, and blocks that have any.
  Index firstKey, firstStep, queryStep;
  Index blocksInAll, grid; ///< from outside of launches
};

} // namespace attn

#endif // PASSES_KERNELS_GPU_ATTENTIONWARPGROUPS_H
