#ifndef PASSES_KERNELS_GPU_ATTENTIONEMITTER_H
#define PASSES_KERNELS_GPU_ATTENTIONEMITTER_H

#include "passes/kernels/gpu/Attention.h"
#include "passes/kernels/gpu/AttentionLists.h"
#include "passes/kernels/gpu/BlockBuilder.h"
#include "passes/kernels/shared/AttentionMask.h"
#include "passes/kernels/shared/AttentionOperands.h"

namespace attn {

/// What the forms of flash attention share: a block of threads has some queries
/// and goes over tiles of keys; each of `groupWidth` threads side by side has some
/// keys of `rows` queries. Scores, masks and the online softmax are here, products
/// and the places of queries and keys are the form's.
class AttentionEmitter {
public:
  using Dim = AttentionOp::Dim;
  using Values = LaneBuilder::Values;
  static constexpr int64_t kThreads = 128;
  static constexpr int64_t kSharedElements = 48 * 1024 / 4; ///< that a launch may have without asking

  AttentionEmitter(mlir::OpBuilder &b, mlir::Location loc, const AttentionSpec &spec)
      : valueWidth(*spec.getStaticSize(Dim::E)), k(b, loc), spec(spec), splits(countGpuAttentionSplits(spec)),
        powerScale(powerScaleOf(spec)) {}
  virtual ~AttentionEmitter() = default;

  mlir::func::FuncOp emit(llvm::StringRef symbol);
  /// The launches alone, where the builder stands; blocks of a (batch, head) that
  /// isn't wanted do nothing.
  using IsWanted = llvm::function_ref<mlir::Value(BlockBuilder &, mlir::Value batch, mlir::Value head)>;
  void emitLaunches(mlir::ValueRange buffers, IsWanted isWanted = nullptr);

protected:
  /// Opens the launch; what it returns comes back in start and sweep.
  virtual Values launch(mlir::Value blocks);
  /// What a block of threads does: one block of queries, or several.
  virtual void emitBlocks(mlir::ValueRange buffers, mlir::ArrayRef<mlir::Value> shared);
  /// The keys [begin, end) of a block of queries, and its result.
  virtual void sweep(mlir::ArrayRef<mlir::Value> shared, mlir::Value begin, mlir::Value end,
                     const KeyMask::Bounds &bounds);
  using Sweep = llvm::function_ref<void(mlir::Value begin, mlir::Value end, const KeyMask::Bounds &bounds)>;
  void emitBlock(mlir::ValueRange buffers, mlir::ArrayRef<mlir::Value> shared, Sweep sweep);
  /// The block of queries at hand is number `number` of them all.
  void setBlock(mlir::Value number);
  /// The loop over tiles; the state behind the last.
  Values sweepTiles(mlir::Value begin, mlir::Value end, const KeyMask::Bounds &bounds);
  Values startState();
  /// The tile from `key` on is the one at hand, `next` the one after it.
  void setTile(mlir::Value key, mlir::Value next, const KeyMask::Bounds &bounds);
  /// sweepTile for it.
  Values sweepOne(mlir::Value key, mlir::Value next, const KeyMask::Bounds &bounds, mlir::ValueRange state);
  /// Arrays of f32 in shared memory.
  virtual llvm::SmallVector<int64_t> sharedElements() { return {}; }
  /// Before the tiles.
  virtual void start(mlir::ArrayRef<mlir::Value>) {}
  /// Starts to copy the keys of the tile from `key` on, of which sweepTile finds one group under way; no keys are
  /// read from the last one on.
  virtual void copyKeys(mlir::Value) {}
  /// The state after the tile from `key` on; copies the keys of the one that `following` says.
  virtual Values sweepTile(mlir::Value key, mlir::ValueRange state) = 0;
  /// Place of the thread's query number `r` in the block, of its key `c` in the
  /// tile, of its column `e` in the result.
  virtual mlir::Value row(int64_t r) = 0;
  virtual mlir::Value keyPlace(int64_t c) = 0;
  virtual mlir::Value columnPlace(int64_t e) = 0;
  bool storesEight();
  Values roundedRow(mlir::ArrayRef<mlir::Value> columns, mlir::Value factor);

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

  mlir::Value query(int64_t r) { return k.min(k.add(first, row(r)), k.sub(numQueries, k.index(1))); }
  mlir::Value keyOf(mlir::Value key, int64_t c) { return k.add(key, keyPlace(c)); }
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
  mlir::Value readAt(size_t operand, mlir::Value i, mlir::Value j);
  /// Buffers of f16 and bf16 are widened as they are read, and results rounded as they are stored.
  mlir::Value loadF32(const HeadView &view, mlir::Value offset) { return k.toF32(k.load(view.flat, offset)); }
  void storeF32(mlir::Value x, const HeadView &view, mlir::Value offset);
  /// Of row `j` of an operand in bytes, whose numbers lie along `dim`: what its codes are multiplied by.
  mlir::Value scaleOfRow(const HeadView &view, int64_t dim, mlir::Value j);

  /// The raw scores of kind `given`.
  Values givenScores(mlir::Value key);
  /// The score region and the masks on raw scores [row][key].
  Values finishScores(const Values &raw, mlir::Value key);
  /// Weights of scores of the tile from `key` on; `state` has maximum, sum and columns of each row, `next`
  /// gets them, columns scaled to the new maximum.
  Values weigh(const Values &scores, mlir::Value key, mlir::ValueRange state, Values &next);
  /// The same, but for the columns of `next`, which scaleColumns scales by `factors` then.
  Values weighTile(const Values &scores, mlir::Value key, mlir::ValueRange state, Values &next, Values &factors);
  void scaleColumns(Values &state, mlir::ArrayRef<mlir::Value> factors);

  BlockBuilder k;
  const AttentionSpec &spec;
  mlir::Value batch, head, first, numQueries, numKeys, blocksOfHead;
  mlir::Value isEdge;    ///< the tile is not seen in full by all queries, or has keys behind the last
  mlir::Value following; ///< the tile after the one at hand
  llvm::SmallVector<HeadView> views;
  const int64_t splits;

  void store(mlir::ValueRange state);
  /// The same where other blocks have the other keys.
  void storePart(mlir::ValueRange state);
  /// Sum of the parts that the threads of a group have.
  virtual mlir::Value sumOfRow(mlir::Value part);
  /// The exponential of a difference of scores, that of a maximum's units.
  mlir::Value exponential(mlir::Value x);
  /// What scores are relative to.
  mlir::Value shiftOf(mlir::Value maximum);

private:
  static std::optional<float> powerScaleOf(const AttentionSpec &spec);
  /// Sets batch and head; the rest of `number`, of `perHead` to each.
  mlir::Value setHead(mlir::Value number, mlir::Value perHead);
  /// Later queries see more keys where a limit moves: the longest work comes first.
  void setQueries(mlir::Value last);
  /// Weights of scores relative to `shift`, which is in the units of a maximum.
  mlir::Value weightOf(mlir::Value score, mlir::Value shift);
  mlir::Value roundToSoftmaxType(mlir::Value x);
  mlir::Value regionAt(mlir::Block &block, mlir::Value root, mlir::Value score, mlir::Value i, mlir::Value j);
  Values masked(const Values &values, mlir::Value key);
  KeyMask::Bounds seenKeys(KeyMask &mask);
  /// Whether no key counts in the row.
  mlir::Value isEmptyRow(mlir::Value sum);
  /// What a row's columns are multiplied by in the end.
  mlir::Value normalizer(mlir::Value sum);
  mlir::Value orWithoutKeys(mlir::Value x);
  mlir::Value numKeysAsFloat();
  mlir::Value meanOfValues(const HeadView &value, mlir::Value column);
  void storeLogSum(mlir::ArrayRef<HeadView> views, mlir::Value i, mlir::Value shift, mlir::Value sum);
  void mergeParts(mlir::ValueRange buffers);

  Values sweepTwice(mlir::Value exchange, mlir::Value begin, mlir::Value end, const KeyMask::Bounds &bounds);
  Values sweepListedTiles(mlir::Value begin, mlir::Value end, const KeyMask::Bounds &bounds);
  Values sweepWeights(mlir::Value exchange, mlir::Value begin, mlir::Value end, const KeyMask::Bounds &bounds,
                      mlir::ValueRange state);
  /// Scores or weights of the tile from `key` on to the extra results that ask for `stage`.
  void keep(ExtraSource stage, const Values &tile, mlir::Value key);
  Values finalWeights(const Values &scores, mlir::Value key);
  mlir::Value anyInBlock(mlir::ArrayRef<mlir::Value> conditions, mlir::Value exchange);
  mlir::Value hiddenScore();
  mlir::Value boolean(bool value) { return mlir::arith::ConstantIntOp::create(k.b, k.loc, value, 1); }
  mlir::Value exchanged(mlir::ArrayRef<mlir::Value> shared) { return shared[sharedElements().size()]; }
  TileSizes tileSizes() const { return {kThreads, queriesPerBlock, keysPerTile}; }

  KeyMask *keyMask = nullptr;
  BlockLists *lists = nullptr;
  mlir::Value sweepsAll; ///< no tile is left out, if known in the run only
  Values takesPart;      ///< rows in which hidden keys do
  Values seen;           ///< keys of the tile by row, if they are kept
  /// Of each row, for the final weights: weights are exponentials relative to a shift, times a factor, plus a share.
  Values shifts, factors, shares;
  /// Scores are products times a factor and nothing else, and this is it times log2(e): they stay as they are, and
  /// maxima are kept in units of powers of 2. What may overflow by it is left to the score region.
  const std::optional<float> powerScale;
  mlir::Value heads, split, parts;
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
mlir::Value countWarpgroupsScratch(LaneBuilder &k, const AttentionSpec &spec,
                                   llvm::function_ref<mlir::Value(int64_t dim)> sizeOf);
mlir::func::FuncOp buildWarpgroupsAttention(mlir::OpBuilder &builder, mlir::Location loc, llvm::StringRef symbol,
                                            const AttentionSpec &spec, Precision precision, Sm90a use);

} // namespace attn

#endif // PASSES_KERNELS_GPU_ATTENTIONEMITTER_H
