#ifndef PASSES_KERNELS_CPU_ATTENTIONROWEMITTER_H
#define PASSES_KERNELS_CPU_ATTENTIONROWEMITTER_H

#include "passes/kernels/cpu/AttentionLists.h"
#include "passes/kernels/cpu/AttentionRow.h"
#include "passes/kernels/shared/AttentionMask.h"
#include "passes/kernels/shared/AttentionOperands.h"
#include "llvm/Support/MathExtras.h"
#include <limits>

namespace attn {

/// One query of one head. What it knows of the keys so far is a record in memory:
/// the sums of values, the maximum (the same in all lanes) and a sum of weights a lane.
class RowEmitter {
public:
  using Values = LaneBuilder::Values;
  RowEmitter(LaneBuilder &k, const AttentionSpec &spec, mlir::ValueRange buffers, const AttentionRowScratch &scratch,
             const AttentionRowPlace &place, bool takesPart = false);
  /// Starts the record and puts the query where addKeys reads it.
  void begin();
  /// Adds keys [first, upper), at most a block of them, all within the bounds.
  void addKeys(mlir::Value first, mlir::Value upper);
  /// Adds those of the keys [first, upper) within the bounds that a list names.
  void addListedKeys(mlir::Value first, mlir::Value upper);
  /// Adds the record at `other`.
  void merge(mlir::Value other);
  /// Stores the result.
  void finish();

  KeyMask::Bounds bounds;

private:
  static constexpr float kLog2E = 1.44269504f;
  static constexpr float kInfinity = std::numeric_limits<float>::infinity();
  /// Keys and values are prefetched by this many rows.
  static constexpr int64_t kAhead = 32;
  /// Wider keys are taken a register at a time in a loop, with the query in memory.
  static constexpr int64_t kInRegisters = 8;

  // AttentionRowScores.cpp
  Values loadRow(const HeadView &view, mlir::Value base);
  mlir::Value term(mlir::Value elements, mlir::Value query, mlir::Value weight, int64_t rest, mlir::Value sum);
  mlir::Value products(mlir::Value first, bool isEdge);
  mlir::Value scoreTile(mlir::Value first, bool isEdge);
  mlir::Value sumLanes(Values rows);
  mlir::Value readCapture(const HeadView &capture, mlir::Value first, bool isEdge);
  mlir::Value maximumOf(mlir::Value first, mlir::Value count);

  void addPickedKeys(mlir::Value first, mlir::Value upper, mlir::Value count);
  /// The key at `position`: itself, unless keys are picked.
  mlir::Value keyAt(mlir::Value position) { return isPicked ? k.load(scratch.keys, position) : position; }
  /// The last position that may be read at the end of the keys.
  mlir::Value lastPosition() { return k.sub(isPicked ? end : numKeys, k.index(1)); }
  void addValues(mlir::Value first, mlir::Value count, mlir::Value factor);
  mlir::Value normaliser(mlir::Value sum);
  void storeResult(mlir::Value factor);
  void keepScores(mlir::Value scores, mlir::Value first, mlir::Value count);
  void storeWeights(mlir::Value sum, mlir::Value factor);

  int64_t chunks(int64_t width) const { return llvm::divideCeil(width, k.lanes); }
  /// Lanes n*lanes... of a dense row of `width` elements at `offset`.
  mlir::Value loadChunk(const HeadView &view, mlir::Value offset, int64_t n, int64_t width) {
    int64_t rest = width - n * k.lanes;
    offset = k.add(offset, n * k.lanes);
    return k.toF32(rest < k.lanes ? k.loadFirst(view.flat, offset, k.index(rest), k.lanes)
                                  : k.loadVector(view.flat, offset));
  }
  mlir::Value sumsAt(int64_t chunk) { return k.add(place.record, chunk * k.lanes); }
  mlir::Value maximumAt(mlir::Value record) { return k.add(record, chunks(valueWidth) * k.lanes); }
  mlir::Value totalAt(mlir::Value record) { return k.add(record, (chunks(valueWidth) + 1) * k.lanes); }
  mlir::Value loadRecord(mlir::Value offset) { return k.loadVector(place.records, offset); }
  mlir::Value rescaling(mlir::Value before, mlir::Value after);
  mlir::Value orZero(mlir::Value maximum);
  void prefetch(const HeadView &view, mlir::Value offset);
  mlir::Value exp(mlir::Value difference);
  mlir::Value isEmptyRow(mlir::Value sum);

  LaneBuilder &k;
  const AttentionSpec &spec;
  const mlir::ValueRange buffers;
  const AttentionRowScratch &scratch;
  const AttentionRowPlace place;
  const bool takesPart; ///< hidden keys count: the row sees no other
  const int64_t keyWidth, valueWidth;
  const std::optional<double> pureScale;
  mlir::Value batch, head, row, numKeys;
  KeyMask mask;
  KeyLists lists;
  mlir::Value weights;
  mlir::Value end;       ///< of the keys that addKeys adds
  bool isPicked = false; ///< positions are those of scratch.keys
  HeadView query, key, value, alignment, result;
  llvm::SmallVector<HeadView> captures, dense;
  llvm::SmallVector<HeadView> weightResults;
  Values queryChunks, alignmentChunks;
};

} // namespace attn

#endif // PASSES_KERNELS_CPU_ATTENTIONROWEMITTER_H
