#ifndef PASSES_KERNELS_CPU_ATTENTIONROWEMITTER_H
#define PASSES_KERNELS_CPU_ATTENTIONROWEMITTER_H

#include "passes/kernels/cpu/AttentionBlock.h"
#include "passes/kernels/cpu/AttentionLists.h"
#include "passes/kernels/cpu/AttentionRow.h"
#include "llvm/Support/MathExtras.h"

namespace attn {

/// One query of one head. What it knows of the keys so far is a record in memory:
/// the sums of values, the maximum (the same in all lanes) and a sum of weights a lane.
class RowEmitter {
public:
  RowEmitter(AttentionCode &k, const AttentionRowScratch &scratch, const AttentionRowPlace &place);
  /// Starts the record and puts the query where addKeys reads it.
  void begin();
  /// Adds keys [first, upper), at most a block of them, all within the bounds.
  void addKeys(const Index &first, const Index &upper);
  /// Adds those of the keys [first, upper) within the bounds that a list names.
  void addListedKeys(const Index &first, const Index &upper);
  /// Adds the record at `other`.
  void merge(const Index &other);
  /// Stores the result. A row that sees no key, where hidden ones take part then, joins `queue`.
  void finish(const QueuedRows &queue);

  Index lower, upper; ///< keys outside are not seen

private:
  static constexpr float kLog2E = AttentionCode::kLog2E;
  /// Keys and values are prefetched by this many rows.
  static constexpr int64_t kAhead = 32;
  /// Wider keys are taken a register at a time in a loop, with the query in memory.
  static constexpr int64_t kInRegisters = 8;

  // AttentionRowScores.cpp
  Vecs loadRow(const OperandView &view, const Index &base);
  Vec term(const Vec &elements, const Vec &query, const Vec &weight, int64_t rest, const Vec &sum);
  Vec products(const Index &first, bool isEdge);
  Vec narrowProducts(const Indices &offsets);
  Vec wideProducts(const Indices &offsets, bool isEdge);
  Vec scoreTile(const Index &first, bool isEdge);
  Vec applyRegion(mlir::Block &block, const Vec &scores, const Index &first, bool isEdge);
  Mask visibleKeys(const Index &first, bool isEdge);
  Vec sumLanes(Vecs rows);
  Term readCapture(const OperandView &capture, const Index &first, bool isEdge);
  Vec maximumOf(const Index &first, const Index &count);

  void addPickedKeys(const Index &first, const Index &upper, const Index &count);
  /// The key at `position`: itself, unless keys are picked.
  Index keyAt(const Index &position) { return isPicked ? toIndex(scratch.keys(position)) : position; }
  /// The position of key `first` + `n` of a register; at the edge, the last one that may be read.
  Index position(const Index &first, int64_t n, bool isEdge) {
    Index at = first + n;
    return isEdge ? minimum(at, (isPicked ? end : numKeys) - 1) : at;
  }
  void addValues(const Index &first, const Index &count, const Vec &factor);
  void addValue(const Index &first, const Index &position, int64_t chunk, llvm::MutableArrayRef<Vec> sums);
  Vec normaliser(Vec sum);
  void storeResult(const Vec &factor);
  void keepScores(const Vec &scores, const Index &first, const Index &count);
  void storeWeights(const Vec &sum, const Vec &factor);

  int64_t chunks(int64_t width) const { return llvm::divideCeil(width, lanes); }
  /// The first `count` of a register of elements from `offset` on, as f32.
  Vec loadSome(const OperandView &view, const Index &offset, int64_t count) {
    return k.toF32(view.flat.first(count, lanes, offset));
  }
  /// Lanes n*lanes... of a dense row of `width` elements at `offset`.
  Vec loadChunk(const OperandView &view, const Index &offset, int64_t n, int64_t width) {
    return loadSome(view, offset + n * lanes, width - n * lanes);
  }
  Index sumsAt(int64_t chunk) { return place.record + chunk * lanes; }
  Index maximumAt(const Index &record) { return record + chunks(valueWidth) * lanes; }
  Index totalAt(const Index &record) { return record + (chunks(valueWidth) + 1) * lanes; }
  Vec loadRecord(const Index &offset) { return place.records.vector(lanes, offset); }
  Vec rescaling(const Vec &before, const Vec &after);
  Vec orZero(const Vec &maximum);
  void prefetch(const OperandView &view, const Index &offset);
  Vec exp(const Vec &difference);
  Mask isEmptyRow(const Vec &sum) { return sum < 0.5; }

  AttentionCode &k;
  const AttentionSpec &spec;
  const int64_t lanes;
  const AttentionRowScratch &scratch;
  const AttentionRowPlace place;
  const int64_t keyWidth, valueWidth;
  const std::optional<double> pureScale;
  Index batch, head, row, numKeys;
  KeyMask mask;
  KeyLists lists;
  Buffer weights;
  Index end;             ///< of the keys that addKeys adds
  bool isPicked = false; ///< positions are those of scratch.keys
  OperandView query, key, value, alignment, result;
  llvm::SmallVector<OperandView> captures, dense, weightResults;
  Vecs queryChunks, alignmentChunks;
};

} // namespace attn

#endif // PASSES_KERNELS_CPU_ATTENTIONROWEMITTER_H
