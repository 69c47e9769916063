#ifndef PASSES_KERNELS_GPU_GEMM_H
#define PASSES_KERNELS_GPU_GEMM_H

#include "dialects/attn/AttnOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include "passes/kernels/gpu/Precision.h"
#include "passes/kernels/spec/Regions.h"
#include <optional>
#include <string>

namespace attn {

llvm::StringRef nameOf(Precision precision);

/// C = epilogue(A · B) on a GPU, with sums in f32: with one rounding a multiply-add, or by matrix units on operands
/// that are rounded first, which those in the 16 bits of `precision` need not be. All operands are read and written
/// where they lie, in any order of dimensions.
struct GpuGemmSpec : SumBlock {
  mlir::MemRefType left, right; ///< of f32, f16 or bf16, or the right one of f8E4M3FN; identity layout
  mlir::MemRefType result;      ///< what the epilogue gives; without one as the factors
  /// Projected permutations from the contraction's loops.
  mlir::AffineMap leftMap, rightMap, resultMap;
  /// Loops by the operands that have them: all, left and result, right and
  /// result, left and right. A loop of the result alone has no kernel.
  llvm::SmallVector<unsigned> batch, rows, columns, sums;
  llvm::SmallVector<int64_t> sizes; ///< of the loops, kDynamic where not known

  /// Of the epilogue, read through maps from the result's dimensions.
  llvm::SmallVector<mlir::MemRefType> operands;
  llvm::SmallVector<mlir::AffineMap> operandMaps;

  Precision precision = Precision::f32; ///< chooseForm sets it
  Sm90a sm90a = Sm90a::none;            ///< it, too: whether warpgroups stand beside the other form or in place of it

  /// A block of threads makes a tile of the result, each thread a part of it; with
  /// matrix units each warp, of which a thread has two sums in 8 x 8.
  struct Tile {
    int64_t rows, columns, threadRows, threadColumns;
    int64_t depth = 16;
    bool isMatrix = false;
    int64_t threads() const { return rows / threadRows * (columns / threadColumns) / (isMatrix ? 2 : 1); }
  };
  Tile tile = {32, 32, 4, 4};
  static constexpr int64_t kWarpgroupRows = 128; ///< of a tile where two warpgroups of sm_90a multiply
  /// Columns of such a tile; 0: where they are not worth it.
  int64_t warpgroupColumns = 0;

  /// Where the left or the right operand has few rows (columns), and the other one is a
  /// matrix that is read once: how its elements are split over threads.
  struct Lines {
    Lines(const GpuGemmSpec &spec, bool isFewLeft, int64_t rows);
    bool isFewLeft;                          ///< which operand has few
    int64_t rows;                            ///< of them as many at most, of the sizes that are known
    bool isDeep;                             ///< the matrix is contiguous along the sum
    bool isVector;                           ///< a lane loads 16 bytes of it at once
    int64_t laneSums, laneColumns, sumLanes; ///< the part of a lane; of a warp, lanes along the sum
    int64_t sumWarps = 8, columnWarps = 1, splits = 1, unroll = 1;
    int64_t threads() const { return 32 * sumWarps * columnWarps; }
    int64_t tileColumns() const { return columnWarps * (32 / sumLanes) * laneColumns; }
    int64_t stepSums() const { return sumWarps * sumLanes * laneSums; }
  };
  static constexpr int64_t kFewRows = 8;
  std::optional<Lines> lines;
  /// The same for a single row, where the run tells how many there are.
  std::optional<Lines> singleLines;
  /// Whether the other form is there, too, for more rows than `lines` has, as the run tells.
  bool hasTiles = true;

  /// Whether one factor is in 16 bits and the other one has room in scratch to be rounded to these, for a library.
  bool hasRoundedFactor = false;

  bool hasFloat8() const { return right && mlir::isa<mlir::Float8E4M3FNType>(right.getElementType()); }
  /// The product of sizes, up to 2^20, where one that isn't known counts as `unknown`.
  int64_t guessProduct(llvm::ArrayRef<unsigned> dims, int64_t unknown) const;
  /// Whether tiles of the left or right operand can be of the 16 bits that it is rounded to.
  bool canBeNarrow(bool isLeft) const;
  /// Whether warpgroups take tiles of the left or right operand as they lie: it is a matrix in the 16 bits of
  /// `precision`.
  bool isTiled(bool isLeft) const;
  /// Whether a launch in front of warpgroups packs a side.
  bool hasPackedSide() const { return warpgroupColumns && !(isTiled(true) && (isTiled(false) || hasFloat8())); }
  /// Lines where few rows are possible. The largest tile that leaves no multiprocessor
  /// without work. Operands are rounded as `products` says, two of the same 16 bits not at all.
  void chooseForm(Precision products, Sm90a images);

  /// The kernel's name and cache key: equal names, identical code.
  std::string symbol() const;

private:
  void chooseLines();
  void chooseTile();
};

/// A launch that rounds `buffer` of f32 to 16 bits as it lies: into `scratch`, two in an f32 of it.
void emitRounding(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value buffer, mlir::Value scratch,
                  Precision precision);

/// Marks the host's choice between lines and what a library's product may replace.
constexpr llvm::StringLiteral kFewRowsAttr = "attn.few_rows";

/// Emits the kernel `spec.symbol()` with the arguments (left, right, operands of the
/// epilogue..., result): tiles of both sides in shared memory, twice, so that
/// cp.async fills one while the other is multiplied. For warpgroups and rounded factors a
/// last argument is scratch, and with Sm90a::also the host chooses between them and this form.
/// So it does between these and lines, which want scratch where blocks share a sum; they
/// multiply in f32 whatever the precision.
mlir::func::FuncOp buildGpuGemm(mlir::OpBuilder &builder, mlir::Location loc, const GpuGemmSpec &spec);

/// The ops of an epilogue between `made`, a value in it, and its result, in order.
llvm::SmallVector<mlir::Operation *> opsBehind(mlir::Block &epilogue, mlir::Value made);

/// Emits what `spec`'s epilogue has behind `made`, which the result holds when it begins, with the arguments (operands
/// of the epilogue..., result): an elementwise op in place, for a product whose other part is made elsewhere.
mlir::func::FuncOp buildGpuGemmRest(mlir::OpBuilder &builder, mlir::Location loc, const GpuGemmSpec &spec,
                                    mlir::Value made);
std::string nameOfGpuGemmRest(const GpuGemmSpec &spec);

/// How many f32 of scratch the kernel wants, given the loops' sizes; null: none.
mlir::Value countGpuGemmScratch(mlir::OpBuilder &builder, mlir::Location loc, const GpuGemmSpec &spec,
                                llvm::function_ref<mlir::Value(unsigned dim)> sizeOf);

} // namespace attn

#endif // PASSES_KERNELS_GPU_GEMM_H
