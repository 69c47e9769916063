#ifndef PASSES_KERNELS_CPU_ATTENTIONBLOCKEMITTER_H
#define PASSES_KERNELS_CPU_ATTENTIONBLOCKEMITTER_H

#include "passes/kernels/cpu/AttentionBlock.h"
#include "passes/kernels/cpu/AttentionLists.h"
#include "passes/kernels/shared/AttentionMask.h"
#include "passes/kernels/shared/AttentionOperands.h"
#include <deque>
#include <limits>

namespace attn {

/// Emits one block of queries. AttentionBlock.cpp holds the order of things,
/// AttentionScores.cpp the scores of a tile, AttentionBlockWeights.cpp what they
/// become, AttentionTiles.cpp what goes in and out and the product with the values.
class BlockEmitter {
public:
  using Values = LaneBuilder::Values;
  static constexpr float kLog2E = AttentionCode::kLog2E;
  static constexpr float kInfinity = AttentionCode::kInfinity;
  /// `takesPart`: by query vector, the rows in which hidden keys count; empty: none.
  BlockEmitter(AttentionCode &code, const AttentionScratch &scratch, mlir::Value batch, mlir::Value head,
               mlir::Value begin, int64_t vectors, Values takesPart = {});
  /// Whether there is a row in which hidden keys are to take part after all (emitEmptyRows): one that sees no other.
  /// Null where there can't be one.
  mlir::Value emit();

private:
  /// What a sweep over the keys does with a tile of scores.
  enum class Sweep {
    Online,  ///< weights relative to a running maximum, times values
    Reduce,  ///< maximum and sum only
    Weights, ///< final weights through the weight region, times values
  };

  /// What travels from key tile to key tile, one a query vector. `maximum` is
  /// the running maximum or, with a pure scale, its negative in units of log 2.
  /// `sum` and `partial` (this key block's share) add up to the row sum.
  struct State {
    Values maximum, sum, partial;
    Values flat() const {
      Values all(maximum);
      all.append(sum);
      all.append(partial);
      return all;
    }
  };
  State stateOf(mlir::ValueRange values) const {
    State state;
    state.maximum.assign(values.begin(), values.begin() + vectors);
    state.sum.assign(values.begin() + vectors, values.begin() + 2 * vectors);
    state.partial.assign(values.begin() + 2 * vectors, values.end());
    return state;
  }

  //===--- order of things and softmax ------------------------------------===//
  State attend();
  State sweepKeys(Sweep sweep, const State &start);
  State sweepBlock(Sweep sweep, mlir::Value first, const State &start, mlir::ValueRange carried);
  Values sweepTile(Sweep sweep, mlir::Value first, mlir::Value row, bool isEdge, const State &start,
                   mlir::ValueRange values);
  State softmaxTile(Sweep sweep, mlir::Value row, Values scores, State state);
  State rescale(Sweep sweep, mlir::Value row, llvm::MutableArrayRef<mlir::Value> scores,
                llvm::ArrayRef<mlir::Value> tops, const State &state);
  void storeWeights(mlir::Value row, mlir::Value key, bool isEdge, Values scores, const State &final);
  void keepWeight(mlir::Value row, int64_t vector, llvm::ArrayRef<mlir::Value> weights);
  void fillUniformRows(State &state);
  mlir::Value countKeys();
  Values normalisers(const State &state);
  mlir::Value isEmptyRow(mlir::Value sum);
  mlir::Value roundToSoftmaxType(mlir::Value x);

  //===--- scores ---------------------------------------------------------===//
  Values scoreTile(mlir::Value key, mlir::Value row, bool isEdge, const State &state);
  Values storedTile(Sweep sweep, mlir::Value key, mlir::Value row, bool isEdge, const State &state);
  Values dotTile(mlir::Value key, bool isEdge, const State &state);
  Values sumTile(mlir::Value key, bool isEdge);
  Values tanhTile(int64_t shared);
  Values givenTile(mlir::Value key, bool isEdge);
  Values keyRows(mlir::Value key, bool isEdge);
  /// Copies keyTile key rows to keyRow as f32; as exp(2x) and its greatest |x| with `isTanh`.
  mlir::Value stageKeys(llvm::ArrayRef<mlir::Value> rows, bool isTanh);
  Values maskTile(mlir::Value key, bool isEdge, Values scores);
  mlir::Value isLiveTile(mlir::Value key, bool isEdge);
  mlir::Value isListedTile();
  Values marksOfTile();
  void applyRegion(mlir::Block &block, mlir::Value result, llvm::MutableArrayRef<mlir::Value> tile, mlir::Value key,
                   bool isEdge);
  void keepScores(ExtraSource stage, mlir::Value first, bool isEdge, const Values &scores);

  //===--- in and out -----------------------------------------------------===//
  void loadQueries();
  void loadQueryTile(mlir::Value column, int64_t width);
  void forVectors(mlir::ValueRange values, llvm::function_ref<void(mlir::Value vector, mlir::Value value)> body);
  void storeQuery(mlir::Value raw, mlir::Value d, mlir::Value vector);
  mlir::Value maximumOfQueries();
  void addValues(mlir::Value key, mlir::Value begin, mlir::Value end);
  void addValueTile(const HeadView &from, mlir::Value corner, mlir::Value begin, mlir::Value end, mlir::Value column,
                    int64_t width);
  void stageValues(mlir::Value key, mlir::Value begin, mlir::Value end);
  void stageValuePairs(mlir::Value key, mlir::Value begin, mlir::Value end);
  mlir::Value keyOfRow(mlir::Value key, mlir::Value row);
  void prefetchNext(mlir::Value key);
  void prefetchNextBlock(mlir::Value key);
  void prefetchRow(const HeadView &view, unsigned dim, unsigned width, int64_t elements, mlir::Value row, bool isWrite);
  void storeResult(llvm::ArrayRef<mlir::Value> factors);
  void storeExtra(const HeadView &to, mlir::Value first, bool isEdge, const Values &tile);
  void fillExtras(const State &state);
  void storeLogSums(const State &state);
  mlir::Value anyNotFinite();

  mlir::Value at(mlir::Value row, mlir::Value vector) {
    return k.add(k.mul(row, vectors * k.lanes), k.mul(vector, k.lanes));
  }
  mlir::Value at(mlir::Value row, int64_t vector) { return k.add(k.mul(row, vectors * k.lanes), vector * k.lanes); }
  /// Place of the weights of key `row` + `number` of a block, both even if the products are narrow.
  mlir::Value weightAt(mlir::Value row, int64_t number, int64_t vector) {
    int64_t rows = vectors * k.lanes, rowsOfPlace = isNarrow ? 2 : 1;
    return k.add(k.mul(row, rows / rowsOfPlace), number / rowsOfPlace * rows + vector * k.lanes);
  }
  HeadView view(size_t operand) { return viewHead(k, buffers[operand], spec.maps[operand], batch, head); }

  AttentionCode &code;
  LaneBuilder &k;
  const AttentionSpec &spec;
  mlir::ValueRange buffers;
  const AttentionScratch &scratch;
  const int64_t vectors;
  const int64_t keyWidth, valueWidth, paddedValueWidth;
  const std::optional<double> pureScale;
  const bool canMask, isNarrow;
  mlir::Value batch, head, begin, numKeys;
  HeadView query, key, value, alignment, result;
  QueryBlock queries;
  KeyMask mask;
  KeyLists lists;
  const Values takesPart;
  KeyMask::Bounds bounds;
  std::deque<HeadView> captures, dense; ///< readers point into them
  llvm::SmallVector<CaptureReader> readers, denseReaders;
  std::optional<CaptureReader> givenReader;
  mlir::Value queryMaximum;     ///< of |q|, where scores are tanh
  mlir::Value alignmentSum;     ///< in every lane, where scores are tanh
  mlir::Value alignmentMaximum; ///< of the magnitudes, NaN where there is one, where scores are tanh
  mlir::Value isCareful;        ///< products of zero weights are left out
  mlir::Value seesAll;          ///< no key is skipped in the sweep of the weights
  /// Whether a row of weights belongs to the key that `tileKeys` says: tiles that no query lists take no rows.
  bool isPacked = false;
  /// Whether the last tile of keys, which may be short, is one of the others. Where loads take a mask register, code of
  /// its own for it would be half of a kernel and no faster; but masked loads of many long rows are slow (a float mask
  /// of 2,001 keys took 1.2 times as long on Zen 5, 1.05 times with a branch around them).
  bool joinsEdge = false;
  mlir::Value tileMarks; ///< where the marks of the tile at hand begin
};

} // namespace attn

#endif // PASSES_KERNELS_CPU_ATTENTIONBLOCKEMITTER_H
