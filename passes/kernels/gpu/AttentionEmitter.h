#ifndef PASSES_KERNELS_GPU_ATTENTIONEMITTER_H
#define PASSES_KERNELS_GPU_ATTENTIONEMITTER_H

#include "passes/kernels/gpu/Attention.h"
#include "passes/kernels/gpu/AttentionLists.h"
#include "passes/kernels/shared/AttentionMask.h"

namespace attn {

using Masks = llvm::SmallVector<Mask>;

/// What the forms of flash attention share: a block of threads has some queries
/// and goes over tiles of keys; each of `groupWidth` threads side by side has some
/// keys of `rows` queries. Scores, masks and the online softmax are here, products
/// and the places of queries and keys are the form's.
class AttentionEmitter {
public:
  using Dim = AttentionOp::Dim;
  static constexpr int64_t kThreads = 128;
  static constexpr int64_t kSharedElements = 48 * 1024 / 4; ///< that a launch may have without asking

  AttentionEmitter(mlir::OpBuilder &b, mlir::Location loc, const AttentionSpec &spec)
      : valueWidth(*spec.getStaticSize(Dim::E)), k(b, loc), spec(spec), splits(countGpuAttentionSplits(spec)),
        powerScale(powerScaleOf(spec)) {}
  virtual ~AttentionEmitter() = default;

  mlir::func::FuncOp emit(llvm::StringRef symbol);
  /// The launches alone, where the builder stands; blocks of a (batch, head) that
  /// isn't wanted do nothing.
  using IsWanted = llvm::function_ref<Mask(ThreadCode &, const Index &batch, const Index &head)>;
  void emitLaunches(mlir::ValueRange buffers, IsWanted isWanted = nullptr);

protected:
  /// Opens the launch; its arrays in shared memory, those of sharedElements first.
  virtual llvm::SmallVector<Buffer> launch(const Index &blocks);
  /// What a block of threads does: one block of queries, or several.
  virtual void emitBlocks(mlir::ValueRange buffers);
  /// The keys [begin, end) of a block of queries, and its result.
  virtual void sweep(Index begin, Index end, const KeyMask::Bounds &bounds);
  using Sweep = llvm::function_ref<void(const Index &begin, const Index &end, const KeyMask::Bounds &bounds)>;
  void emitBlock(mlir::ValueRange buffers, Sweep sweep);
  /// The block of queries at hand is number `number` of them all.
  void setBlock(const Index &number);
  /// The loop over tiles; the state behind the last.
  Nums sweepTiles(const Index &begin, const Index &end, const KeyMask::Bounds &bounds);
  Nums startState();
  /// The tile from `key` on is the one at hand, `next` the one after it.
  void setTile(const Index &key, const Index &next, const KeyMask::Bounds &bounds);
  /// sweepTile for it.
  Nums sweepOne(const Index &key, const Index &next, const KeyMask::Bounds &bounds, const Nums &state);
  /// Arrays of f32 in shared memory.
  virtual llvm::SmallVector<int64_t> sharedElements() { return {}; }
  /// Before the tiles.
  virtual void start() {}
  /// Starts to copy the keys of the tile from `key` on, of which sweepTile finds one group under way; no keys are
  /// read from the last one on.
  virtual void copyKeys(const Index &) {}
  /// The state after the tile from `key` on; copies the keys of the one that `following` says.
  virtual Nums sweepTile(const Index &key, const Nums &state) = 0;
  /// Place of the thread's query number `r` in the block, of its key `c` in the
  /// tile, of its column `e` in the result.
  virtual Index row(int64_t r) = 0;
  virtual Index keyPlace(int64_t c) = 0;
  virtual Index columnPlace(int64_t e) = 0;

  /// What a sweep makes of scores.
  enum class Pass {
    online,  ///< weights relative to the maximum so far, times values
    reduce,  ///< maximum and sum only
    weights, ///< the final weights, through the weight region, times values
  };
  Pass pass = Pass::online;

  // Sizes, set by the form: of a thread and of a block; columns of the result a thread.
  int64_t rows = 0, columns = 0, width = 0, groupWidth = 0, queriesPerBlock = 0, keysPerTile = 0;
  int64_t neighbours = 0; ///< columns of the result that a thread has side by side
  int64_t valueWidth;     ///< of them all

  Index query(int64_t r) { return minimum(first + row(r), numQueries - 1); }
  Index keyOf(const Index &key, int64_t c) { return key + keyPlace(c); }
  /// `key`, or the last one for those behind it.
  Index orLast(const Index &key) { return minimum(key, numKeys - 1); }
  bool testsAllTiles() const {
    return !spec.denseMasks.empty() || !spec.blockLists.empty() || testsHidden() || keepsSeen();
  }
  /// The weight region is for weights of keys that are seen.
  bool keepsSeen() const { return pass == Pass::weights && spec.weight && spec.hasMask(); }
  /// Hidden keys that may take part do so at once, in all rows.
  bool testsHidden() const { return spec.letsHiddenTakePart() && !sweepsAgain(); }
  /// They do so in a second sweep, in rows that need it.
  bool sweepsAgain() const { return spec.letsHiddenTakePart() && splits == 1 && canSweepAgain(); }
  virtual bool canSweepAgain() const { return true; }
  bool canHide() const { return testsAllTiles() || spec.canMask(); }
  Num readAt(size_t operand, const Index &i, const Index &j);
  /// Buffers of f16 and bf16 are widened as they are read, and results rounded as they are stored.
  Num loadF32(const OperandView &view, const Index &at) { return convert(view.flat(at), k.b.getF32Type()); }
  void storeF32(const Num &x, const OperandView &view, const Index &at) {
    view.flat.set(convert(x, view.elementType()), at);
  }
  /// Of row `j` of an operand in bytes, whose numbers lie along `dim`: what its codes are multiplied by.
  Num scaleOfRow(const OperandView &view, int64_t dim, const Index &j);
  Index sizeOf(mlir::ValueRange buffers, int64_t dim) { return getDimSize(k, spec, buffers, dim); }
  /// Whether a number is above or below 0.
  Mask isNonZero(const Num &x) { return (x < 0.0) | (x > 0.0); }

  /// The raw scores of kind `given`.
  Nums givenScores(const Index &key);
  /// The score region and the masks on raw scores [row][key].
  Nums finishScores(const Nums &raw, const Index &key);
  /// Weights of scores of the tile from `key` on; `state` has maximum, sum and columns of each row, `next`
  /// gets them, columns scaled to the new maximum.
  Nums weigh(const Nums &scores, const Index &key, const Nums &state, Nums &next);
  /// The same, but for the columns of `next`, which scaleColumns scales by `factors` then.
  Nums weighTile(const Nums &scores, const Index &key, const Nums &state, Nums &next, Nums &factors);
  void scaleColumns(Nums &state, llvm::ArrayRef<Num> factors);

  ThreadCode k;
  const AttentionSpec &spec;
  Index batch, head, first, numQueries, numKeys, blocksOfHead;
  Mask isEdge;     ///< the tile is not seen in full by all queries, or has keys behind the last
  Index following; ///< the tile after the one at hand
  llvm::SmallVector<OperandView> views;
  llvm::SmallVector<Buffer> arrays; ///< in shared memory
  const int64_t splits;

  void store(const Nums &state);
  /// The same where other blocks have the other keys.
  void storePart(const Nums &state);
  /// Sum of the parts that the threads of a group have.
  virtual Num sumOfRow(const Num &part);
  /// The exponential of a difference of scores, that of a maximum's units.
  Num exponential(const Num &x);
  /// What scores are relative to.
  Num shiftOf(const Num &maximum);

private:
  static std::optional<float> powerScaleOf(const AttentionSpec &spec);
  /// Sets batch and head; the rest of `number`, of `perHead` to each.
  Index setHead(const Index &number, const Index &perHead);
  /// Later queries see more keys where a limit moves: the longest work comes first.
  void setQueries(const Index &last);
  /// Weights of scores relative to `shift`, which is in the units of a maximum.
  Num weightOf(const Num &score, const Num &shift);
  Num roundToSoftmaxType(const Num &x);
  Num regionAt(mlir::Block &block, const Num &score, const Index &i, const Index &j);
  Nums masked(const Nums &values, const Index &key);
  /// Whether query `i` sees the key at `place`, or `j`, the last one, if that is behind it; none: it sees all.
  std::optional<Mask> isVisible(const Index &i, const Index &place, const Index &j);
  KeyMask::Bounds seenKeys(KeyMask &mask);
  /// Whether no key counts in the row.
  Mask isEmptyRow(const Num &sum) { return sum == 0.0; }
  /// What a row's columns are multiplied by in the end.
  Num normalizer(const Num &sum);
  Num orWithoutKeys(const Num &x);
  Num numKeysAsFloat();
  Num meanOfValues(const OperandView &value, const Index &column);
  void storeLogSum(llvm::ArrayRef<OperandView> views, const Index &i, const Num &shift, const Num &sum);
  bool storesEight();
  Nums roundedRow(llvm::ArrayRef<Num> columns, const Num &factor);
  /// To the row at `offset` of the result: columns of the thread times `factor`, or what roundedRow gives.
  void storeColumns(llvm::ArrayRef<Num> columns, const Num &factor, const Index &offset);
  void storeRounded(llvm::ArrayRef<Num> words, const Index &member, const Index &offset);
  void whenColumn(const Index &column, llvm::function_ref<void()> body);
  void mergeParts(mlir::ValueRange buffers);

  Nums sweepTwice(const Index &begin, const Index &end, const KeyMask::Bounds &bounds);
  Nums sweepListedTiles(const Index &begin, const Index &end, const KeyMask::Bounds &bounds);
  Nums sweepWeights(Index begin, Index end, const KeyMask::Bounds &bounds, const Nums &state);
  /// Scores or weights of the tile from `key` on to the extra results that ask for `stage`.
  void keep(ExtraSource stage, const Nums &tile, const Index &key);
  Nums finalWeights(const Nums &scores, const Index &key);
  Mask anyInBlock(llvm::ArrayRef<Mask> conditions);
  Num hiddenScore();
  Buffer exchanged() { return arrays[sharedElements().size()]; }
  TileSizes tileSizes() const { return {kThreads, queriesPerBlock, keysPerTile}; }

  KeyMask *keyMask = nullptr;
  BlockLists *lists = nullptr;
  std::optional<Mask> sweepsAll; ///< no tile is left out, if known in the run only
  Masks takesPart;               ///< rows in which hidden keys do
  Masks seen;                    ///< keys of the tile by row, if they are kept
  /// Of each row, for the final weights: weights are exponentials relative to a shift, times a factor, plus a share.
  Nums shifts, factors;
  llvm::SmallVector<std::optional<Num>> shares;
  /// Scores are products times a factor and nothing else, and this is it times log2(e): they stay as they are, and
  /// maxima are kept in units of powers of 2. What may overflow by it is left to the score region.
  const std::optional<float> powerScale;
  Index heads, split;
  Buffer parts;
};

/// Whether an extra result has an element for each query and key.
bool storesTiles(const AttentionSpec &spec);
/// Whether `count` elements along `dim`, from a multiple of it on, are a piece of memory that is aligned to its size.
bool hasPieces(const AttentionSpec &spec, size_t operand, unsigned dim, int64_t count);
inline bool isF32(const AttentionSpec &spec) { return spec.types[spec.query].getElementType().isF32(); }
/// Elements of f32 that all forms have in shared memory beside their own.
int64_t countCommonElements(const AttentionSpec &spec, const TileSizes &sizes);

/// Few queries, in f32: a key's lanes lie side by side in its row, and threads share the keys (AttentionLines.cpp).
bool canUseLines(const AttentionSpec &spec);
std::unique_ptr<AttentionEmitter> makeLinesAttention(mlir::OpBuilder &builder, mlir::Location loc,
                                                     const AttentionSpec &spec);
/// In f32, products one by one (AttentionThreads.cpp).
bool canUseThreads(const AttentionSpec &spec);
std::unique_ptr<AttentionEmitter> makeThreadsAttention(mlir::OpBuilder &builder, mlir::Location loc,
                                                       const AttentionSpec &spec);
/// tf32, bf16 or f16 products by matrix units of a warp (AttentionMatrices.cpp).
bool canUseMatrices(const AttentionSpec &spec, Precision precision);
std::unique_ptr<AttentionEmitter> makeMatricesAttention(mlir::OpBuilder &builder, mlir::Location loc,
                                                        const AttentionSpec &spec, Precision precision);
/// The first of these that can be used: lines, matrices, threads.
std::unique_ptr<AttentionEmitter> makeAttention(mlir::OpBuilder &builder, mlir::Location loc, const AttentionSpec &spec,
                                                Precision precision);
/// The same by those of warpgroups, on sm_90a (AttentionWarpgroups.cpp). With
/// Sm90a::also the host chooses between this form and the others.
bool canUseWarpgroups(const AttentionSpec &spec, Precision precision);
mlir::Value countWarpgroupsScratch(const AttentionSpec &spec, llvm::function_ref<Index(int64_t dim)> sizeOf);
mlir::func::FuncOp buildWarpgroupsAttention(mlir::OpBuilder &builder, mlir::Location loc, llvm::StringRef symbol,
                                            const AttentionSpec &spec, Precision precision, Sm90a use);

} // namespace attn

#endif // PASSES_KERNELS_GPU_ATTENTIONEMITTER_H
