#ifndef PASSES_KERNELS_CPU_ATTENTIONBLOCKEMITTER_H
#define PASSES_KERNELS_CPU_ATTENTIONBLOCKEMITTER_H

#include "passes/kernels/cpu/AttentionBlock.h"
#include "passes/kernels/cpu/AttentionCaptures.h"
#include "passes/kernels/cpu/AttentionLists.h"
#include <vector>

namespace attn {

/// What travels from key tile to key tile, one a query vector. `maximum` is
/// the running maximum or, with a pure scale, its negative in units of log 2.
/// `sum` and `partial` (this key block's share) add up to the row sum.
struct BlockState {
  Vecs maximum, sum, partial;
};

template <> struct Carried<BlockState> {
  static void flatten(const BlockState &x, llvm::SmallVectorImpl<mlir::Value> &out) {
    for (const Vecs *each : {&x.maximum, &x.sum, &x.partial})
      Carried<Vecs>::flatten(*each, out);
  }
  static BlockState rebuild(const BlockState &like, mlir::ValueRange &values) {
    using Part = Carried<Vecs>;
    return {Part::rebuild(like.maximum, values), Part::rebuild(like.sum, values), Part::rebuild(like.partial, values)};
  }
};

/// Emits one block of queries. AttentionBlock.cpp holds the order of things,
/// AttentionScores.cpp the scores of a tile, AttentionBlockWeights.cpp what they
/// become, AttentionTiles.cpp the product with the values and the extra results. BlockTransfer
/// has loaded the queries, and stores the result.
class BlockEmitter {
public:
  /// Rows of a register that may be computed again, with hidden keys.
  struct Again {
    Mask isAgain;   ///< whether they are; null: always
    Mask takesPart; ///< the rows in which hidden keys count then
    Index end;      ///< rows from here on are not stored
  };
  BlockEmitter(AttentionCode &k, const AttentionScratch &scratch, const Index &batch, const Index &head,
               const Index &begin, int64_t vectors, std::optional<Again> again = {});
  /// Whether there is a row in which hidden keys are to take part after all (QueuedRows): one that sees no other.
  /// scratch.emptyRows says which. Null where there can't be one.
  Mask emit();

private:
  static constexpr float kLog2E = AttentionCode::kLog2E;
  /// What a sweep over the keys does with a tile of scores.
  enum class Sweep {
    Online,  ///< weights relative to a running maximum, times values
    Reduce,  ///< maximum and sum only
    Weights, ///< final weights through the weight region, times values
  };
  using State = BlockState;
  /// Of a block of keys so far: the range of filled rows of weights, and the state; none in the sweep of the weights.
  using Swept = std::tuple<Index, Index, State>;

  //===--- order of things and softmax ------------------------------------===//
  State attend();
  State sweepKeys(Sweep sweep, const State &start);
  State sweepBlock(Sweep sweep, const Index &first, const State &before);
  Swept sweepTile(Sweep sweep, const Index &first, Index row, bool isEdge, const State &final, const Swept &before);
  State softmaxTile(Sweep sweep, const Index &row, Vecs scores, State state);
  State addPlainTile(Sweep sweep, const Index &row, const Vecs &scores, State state);
  State rescale(Sweep sweep, const Index &row, Vecs &scores, const Vecs &tops, const State &state);
  void scaleRows(const Buffer &memory, const Index &rows, int64_t vector, const Vec &factor, bool isPaired);
  void storeWeights(const Index &row, const Index &key, bool isEdge, Vecs scores, const State &final);
  void keepWeight(const Index &row, int64_t vector, llvm::ArrayRef<Vec> weights);
  void keepWeights(const Index &row, int64_t vector, llvm::ArrayRef<Vec> weights);
  void fillUniformRows(State &state);
  Vec countKeys();
  Vecs normalisers(const State &state);
  Mask isEmptyRow(const Vec &sum);
  Masks emptyRows(const State &state);
  Mask anyOf(const Masks &masks) { return any(tree<Mask>(masks, std::bit_or<>())); }
  Vec roundToSoftmaxType(const Vec &x);

  //===--- scores ---------------------------------------------------------===//
  Vecs scoreTile(const Index &key, const Index &row, bool isEdge, const State &state);
  Vecs hideBeyondKeys(const Index &first, const Vecs &scores);
  Vecs storedTile(Sweep sweep, const Index &key, const Index &row, bool isEdge, const State &state);
  Vecs dotTile(const Index &key, bool isEdge, const State &state);
  Vecs sumTile(const Index &key, bool isEdge);
  Vecs tanhTile(int64_t shared);
  Vecs addTanh(const Index &d, int64_t count, bool isFactored, const Vecs &sums);
  Vecs givenTile(const Index &key, bool isEdge);
  Indices keyRows(const Index &key, bool isEdge);
  /// Copies keyTile key rows to keyRow as f32; as exp(2x) and its greatest |x| with `isTanh`.
  Num stageKeys(const Indices &rows, bool isTanh);
  Vecs maskTile(const Index &key, bool isEdge, const Vecs &scores);
  Vecs maskedTile(const Index &key, bool isEdge, const Vecs &scores);
  Mask isLiveTile(const Index &key, bool isEdge);
  Mask isListedTile();
  Vecs marksOfTile();
  void applyRegion(mlir::Block &block, Vecs &tile, const Index &key, bool isEdge);
  void applyInLoop(mlir::Block &block, Vecs &tile, const Index &key, bool isEdge);
  void applyToKey(mlir::Block &block, llvm::MutableArrayRef<Vec> scores, const Index &position,
                  llvm::function_ref<llvm::SmallVector<Term>(size_t)> capturedOf);
  void keepScores(ExtraSource stage, const Index &first, bool isEdge, const Vecs &scores);

  //===--- in and out -----------------------------------------------------===//
  void measureQueries();
  Num maximumOfQueries();
  void addValues(const Index &key, Index begin, Index end);
  void addValueTile(const OperandView &from, const Index &corner, const Index &begin, const Index &end,
                    const Index &column, int64_t width, bool skipsZeros);
  Vecs valueProducts(const OperandView &from, const Index &corner, const Index &begin, const Index &end, int64_t width,
                     bool skipsZeros);
  void stageValues(const Index &key, const Index &begin, const Index &end);
  void stageValuePairs(const Index &key, const Index &begin, const Index &end);
  void stageValuePair(const Index &key, const Index &n, bool hasOther);
  Index keyOfRow(const Index &key, const Index &row);
  void prefetchNext(const Index &key);
  void prefetchNextBlock(const Index &key);
  void prefetchRow(const OperandView &view, unsigned dim, unsigned width, int64_t elements, const Index &row,
                   bool isWrite);
  void storeExtra(const OperandView &to, const Index &first, bool isEdge, const Vecs &tile);
  void fillExtras(const State &state);
  void storeLogSums(const State &state);
  Mask anyNotFinite();

  /// The place of row `row` of a vector of queries in what has them innermost.
  Index at(const Index &row, int64_t vector) { return row * (vectors * lanes) + vector * lanes; }
  /// Row `row` of what has queries innermost, by vector.
  Vecs rowOf(const Buffer &memory, const Index &row) {
    return llvm::map_to_vector(llvm::seq(vectors), [&](int64_t v) { return memory.vector(lanes, at(row, v)); });
  }
  /// Place of the weights of key `row` + `number` of a block, both even if the products are narrow.
  Index weightAt(const Index &row, int64_t number, int64_t vector) {
    int64_t rows = vectors * lanes, rowsOfPlace = isNarrow ? 2 : 1;
    return row * (rows / rowsOfPlace) + (number / rowsOfPlace * rows + vector * lanes);
  }
  bool isAlwaysAgain() const { return again && !again->isAgain.value(); }
  /// Whether all keys are swept, whatever the mask says.
  bool needsAllKeys() const { return spec.needsAllKeys() || isAlwaysAgain(); }
  OperandView view(size_t operand) { return k.view(operand, batch, head); }
  /// Element `n` of each row of a tile, where queries are lanes.
  Vecs columnOf(const Vecs &tile, int64_t vector) {
    return llvm::map_to_vector(llvm::seq(spec.keyTile), [&](int64_t r) { return tile[r * vectors + vector]; });
  }
  Vecs zeroTile() { return Vecs(spec.keyTile * vectors, k.splat(0)); }
  /// Behind the last row that this block owns, from `begin` on; it may begin with rows of the one before.
  Index endOfRows() { return minimum(end, queries.numRows); }

  AttentionCode &k;
  const AttentionSpec &spec;
  const int64_t lanes;
  const AttentionScratch &scratch;
  const int64_t vectors;
  const int64_t keyWidth, valueWidth, paddedValueWidth;
  const std::optional<double> pureScale;
  const bool canMask, isNarrow;
  Index batch, head, begin, numKeys;
  OperandView query, key, value, alignment, result;
  QueryBlock queries;
  KeyMask mask;
  KeyLists lists;
  const std::optional<Again> again;
  const Index end;
  KeyMask::Bounds bounds;
  llvm::SmallVector<OperandView> captures, dense;
  std::vector<CaptureReader> readers, denseReaders;
  std::optional<CaptureReader> givenReader;
  Num queryMaximum;     ///< of |q|, where scores are tanh
  Vec alignmentSum;     ///< in every lane, where scores are tanh
  Num alignmentMaximum; ///< of the magnitudes, NaN where there is one, where scores are tanh
  Mask isCareful;       ///< products of zero weights are left out; null: never
  Mask seesAll;         ///< no key is skipped in the sweep of the weights; null: some are
  /// Whether a row of weights belongs to the key that `tileKeys` says: tiles that no query lists take no rows.
  bool isPacked = false;
  /// Whether the last tile of keys, which may be short, is one of the others. Where loads take a mask register, code of
  /// its own for it would be half of a kernel and no faster; but masked loads of many long rows are slow (a float mask
  /// of 2,001 keys took 1.2 times as long on Zen 5, 1.05 times with a branch around them), unless dear scores hide it.
  bool joinsEdge = false;
  Index tileMarks; ///< where the marks of the tile at hand begin
};

} // namespace attn

#endif // PASSES_KERNELS_CPU_ATTENTIONBLOCKEMITTER_H
