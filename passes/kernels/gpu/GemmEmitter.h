#ifndef PASSES_KERNELS_GPU_GEMMEMITTER_H
#define PASSES_KERNELS_GPU_GEMMEMITTER_H

#include "passes/kernels/gpu/Gemm.h"
#include "passes/kernels/gpu/ThreadCode.h"

namespace attn {

/// One kernel of a GpuGemmSpec: copies of tiles to shared memory and the loop
/// over the sum (GemmEmitter.cpp), products one by one (GemmThreads.cpp) or by
/// matrix units (GemmMatrices.cpp).
class GpuGemmEmitter {
public:
  GpuGemmEmitter(mlir::OpBuilder &b, mlir::Location loc, const GpuGemmSpec &spec, const GpuGemmSpec::Tile &tile)
      : k(b, loc), spec(spec), tile(tile) {}

  /// The launch, where the builder stands, on left, right, operands of the epilogue and result.
  void emitLaunch(llvm::ArrayRef<Buffer> buffers);
  /// How many rows (columns) side 0 (1) has; emits nothing else.
  Index countOuter(llvm::ArrayRef<Buffer> buffers, unsigned side) {
    prepare(buffers);
    return sides[side].extent;
  }

protected:
  /// One operand of the product. A tile of it stands in shared memory as
  /// [outer][pitch >= depth], or [depth][pitch >= outer] where the outer dimension
  /// is the contiguous one; the padding spreads what is read at once over the banks.
  struct Side {
    Buffer flat;
    Index first, lane, extent;
    mlir::AffineMap map;
    mlir::ArrayRef<unsigned> outer;
    Indices strides;                ///< by loop; null where the operand does not have it
    int64_t tile;                   ///< rows or columns of the block's tile
    int64_t perThread;              ///< of them those of a thread; of 8 of them with matrix units
    int64_t pitch, begin, elements; ///< in shared memory; of one of two stages
    bool isDeep;                    ///< contiguous along the sum
    bool isVector;                  ///< in aligned groups of 16 bytes
    bool isNarrow;                  ///< in the tile, too, of 16 bits, in such groups; `pitch`, `elements` are of pairs
    bool isFloat8;                  ///< in the tile, too, of e4m3, in such groups or halves; likewise, of fours
    bool isWidened;                 ///< of 16 or 8 bits, of f32 in the tile
    int64_t groupWidth;             ///< elements that are copied at once, where there are such groups
    int64_t width() const { return groupWidth; }
    int64_t perWord() const { return isFloat8 ? 4 : isNarrow ? 2 : 1; }
    /// With matrix units: a lane's rows (columns) lie four by four side by side.
    bool isInFours() const { return !isDeep && !isNarrow && perThread % 4 == 0; }
    Indices offsets; ///< of the groups (elements) that a thread copies, without the sum
    llvm::SmallVector<Mask> isInside;
  };
  using Fragments = llvm::SmallVector<Nums>;

  /// Sizes and sides, which launches take.
  void prepare(llvm::ArrayRef<Buffer> buffers);
  Index sizeOf(unsigned dim);
  Indices sizesOf(mlir::ArrayRef<unsigned> dims) {
    return llvm::map_to_vector<6>(dims, [&](unsigned dim) { return sizes[dim]; });
  }
  Index product(mlir::ArrayRef<unsigned> dims);
  Side makeSide(const Buffer &buffer, mlir::AffineMap map, mlir::ArrayRef<unsigned> outer, int64_t extent,
                int64_t perThread);
  Index offsetOf(const Side &side, mlir::ArrayRef<unsigned> dims, mlir::ArrayRef<Index> indices);
  Index stageOf(const Side &side, Index stage) { return stage * side.elements + side.begin; }
  int64_t copiesOf(const Side &side) const { return side.tile * tile.depth / side.width() / tile.threads(); }
  std::pair<Index, Index> groupAt(const Side &side, int64_t n);
  void prepareCopies(Side &side);
  void copyTile(const Side &side, Index depthBegin, Index stage);
  /// The loop over the sum, of `count` zeros; `step` adds what a stage holds.
  Nums sumUp(int64_t count, llvm::function_ref<Nums(Index stage, Nums sums)> step);

  void startLoops();
  void placeLoops(mlir::ArrayRef<unsigned> dims, mlir::ArrayRef<Index> indices);
  Num applyEpilogue(Num sum, mlir::ArrayRef<Index> at);
  void storeResult(const Num &x, mlir::ArrayRef<Index> at);
  /// The result's indices at the loops' values.
  Indices resultIndices();

  // Products one by one.
  Index placeOf(const Side &side, int64_t n);
  Fragments readFragment(const Side &side, Index stage, Index depth);
  Nums multiply();
  void finish(const Nums &sums);

  // Matrix units.
  // Sums pass through shared memory, the rows of one row of warps at a time.
  int64_t stagedRows() const { return 8 * tile.threadRows; }
  int64_t stagedPitch() const { return tile.columns + 8; }
  int64_t stagedElements() const { return tile.isMatrix ? stagedRows() * stagedPitch() : 0; }
  Index matrixPlace(const Side &side, int64_t n, Index within);
  Fragments readMatrices(const Side &side, Index stage, int64_t depth);
  Fragments readNarrowMatrices(const Side &side, Index base, int64_t depth);
  Fragments readFloat8Matrices(const Side &side, Index base, int64_t depth);
  Nums multiplyMatrices();
  void stageSums(const Nums &sums);
  void finishStaged(int64_t firstRow);
  void finishMatrices(const Nums &sums);

  ThreadCode k;
  const GpuGemmSpec &spec;
  const GpuGemmSpec::Tile tile;
  llvm::SmallVector<Buffer> arguments;
  Indices sizes, batchIndices, loops;
  Index numRows, numColumns, numSums;
  Buffer shared;
  Index group, member; ///< of the lane in its warp: / 4, % 4
  Side sides[2];
};

/// The same by warpgroups of sm_90a (GemmWarpgroups.cpp). A side that isn't copied as it lies is rounded to `scratch`
/// first.
void emitWarpgroupsGemm(mlir::OpBuilder &builder, mlir::Location loc, const GpuGemmSpec &spec,
                        llvm::ArrayRef<Buffer> buffers, const Buffer &scratch);

/// The same for few rows (Gemv.cpp), by spec.lines; `scratch` where it has splits.
void emitGemv(mlir::OpBuilder &builder, mlir::Location loc, const GpuGemmSpec &spec, llvm::ArrayRef<Buffer> buffers,
              const Buffer &scratch);

} // namespace attn

#endif // PASSES_KERNELS_GPU_GEMMEMITTER_H
