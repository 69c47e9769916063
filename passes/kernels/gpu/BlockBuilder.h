#ifndef PASSES_KERNELS_GPU_BLOCKBUILDER_H
#define PASSES_KERNELS_GPU_BLOCKBUILDER_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "passes/kernels/gpu/Precision.h"
#include "passes/kernels/shared/LaneBuilder.h"

namespace attn {

/// Shorthand for the IR of kernels that a block of threads works on together:
/// a LaneBuilder whose values are those of one thread.
class BlockBuilder : public LaneBuilder {
public:
  BlockBuilder(mlir::OpBuilder &builder, mlir::Location loc) : LaneBuilder(builder, loc, 1, false) {}

  mlir::Value block, thread; ///< numbers, within a launch

  /// Opens `func.func @symbol {attn.kernel}` on `types`; the builder stands in it.
  mlir::func::FuncOp function(llvm::StringRef symbol, mlir::TypeRange types);
  /// Opens a launch of `blocks` blocks, each with arrays of so many f32 in shared
  /// memory, which are returned, behind them one of `sharedBytes` i8, if any, and
  /// `dynamicBytes` (i32) more, if any; the builder stands in it.
  Values launch(mlir::Value blocks, int64_t threads, mlir::ArrayRef<int64_t> sharedElements,
                mlir::Value dynamicBytes = {}, int64_t sharedBytes = 0);

  /// Of the launch that the builder has opened: kResidentBlocksAttr.
  void setResidentBlocks(int64_t blocks);

  /// Of the loop that the builder has just opened: ptxas does not unroll it. Where threads may have all registers it
  /// otherwise does, beyond what it has registers for.
  void keepRolled();

  using LaneBuilder::branch;
  void branch(mlir::Value condition, llvm::function_ref<void()> then, llvm::function_ref<void()> otherwise);
  /// On the host, outside of launches: the first for images of sm_90a, the second for others, as far as `use` has them.
  /// Where `isWanted` is given and does not hold it is always the second.
  void branchOnSm90a(Sm90a use, llvm::function_ref<void()> exact, llvm::function_ref<void()> others,
                     mlir::Value isWanted = {});

  mlir::Value fma(mlir::Value x, mlir::Value y, mlir::Value z);
  void barrier();
  /// In a cooperative launch: waits until this point has been reached `arrivals` times
  /// in all, once a block each time. `counters[place]`, an i64 that was 0 before, counts.
  void gridBarrier(mlir::Value counters, mlir::Value place, mlir::Value arrivals);
  /// The `count` (2 or 4) elements from `offset` on, a multiple of it.
  Values loadFew(mlir::Value flat, mlir::Value offset, int64_t count);
  Values load4(mlir::Value flat, mlir::Value offset) { return loadFew(flat, offset, 4); }
  /// The `count` pairs of elements of 16 bits from `offset` on, a multiple of them all, as i32.
  Values loadWords(mlir::Value flat, mlir::Value offset, int64_t count);
  /// The `count` elements of f32 or 16 bits from `offset` on, a multiple of it, as f32.
  Values loadWide(mlir::Value flat, mlir::Value offset, int64_t count);
  /// Side by side; f32 is rounded to the buffer's type. Memory from `offset` on is aligned to them all.
  void storeFew(mlir::ArrayRef<mlir::Value> values, mlir::Value flat, mlir::Value offset);
  /// The other way around than loadWords.
  void storeWords(mlir::ArrayRef<mlir::Value> words, mlir::Value flat, mlir::Value offset);
  void store4(mlir::ArrayRef<mlir::Value> values, mlir::Value flat, mlir::Value offset) {
    storeFew(values, flat, offset);
  }

  /// Copies `words` (1 or 4, aligned) of 32 bits of global memory to shared memory, which
  /// is f32, without waiting; zeros instead, and nothing is read, unless `isInside`.
  void copyAsync(mlir::Value to, mlir::Value toOffset, mlir::Value from, mlir::Value fromOffset, int64_t words,
                 mlir::Value isInside);
  void commitCopies();
  /// All but the last `pending` groups are there, for this thread.
  void waitForCopies(int64_t pending);

  //===--- matrix units ---------------------------------------------------===//
  // A warp multiplies A (16 rows, 16 deep) by B (16 deep, 8 columns). Of each row
  // (column) g = lane / 4 and g + 8 a lane holds the places 2t, 2t + 1, 2t + 8 and
  // 2t + 9 of the sum, where t = lane % 4; of the result (g, 2t), (g, 2t + 1),
  // (g + 8, 2t) and (g + 8, 2t + 1).

  /// Four f32 of a row or column, as the operands of mma.sync want them.
  Values packed(mlir::ArrayRef<mlir::Value> four, Precision precision);
  /// `sums` plus A times B; `top` and `bottom` are the packed rows g and g + 8 of A.
  Values multiplyMatrices(mlir::ArrayRef<mlir::Value> top, mlir::ArrayRef<mlir::Value> bottom,
                          mlir::ArrayRef<mlir::Value> column, mlir::ArrayRef<mlir::Value> sums, Precision precision);

  /// Four 8 x 8 matrices of 16-bit elements, two in an f32 of shared memory: lane
  /// 8m + n names row n of matrix m by `offset`, a multiple of 4. A lane gets places
  /// 2t and 2t + 1 of row g of each, or of column g where `transposed`.
  Values loadMatrices(mlir::Value flat, mlir::Value offset, bool transposed, Precision precision);
  mlir::Value bitcast(mlir::Value x, mlir::Type type);
  /// The two 16-bit elements of an f32.
  Values unpacked(mlir::Value word, Precision precision);
  /// Memory that lanes of the warp have written is there for all of them.
  void warpBarrier();

  /// `combine` over `width` lanes (a power of two) in each of them: side by side, or `apart` (likewise; the product
  /// is at most 32).
  mlir::Value acrossThreads(mlir::Value x, int64_t width,
                            llvm::function_ref<mlir::Value(mlir::Value, mlir::Value)> combine, int64_t apart = 1);
  /// The same of all `threads` of the block (full warps), of an f32 or i32, by way of an f32 of shared memory a
  /// warp. What threads have written to shared memory before is there for all of them then.
  mlir::Value acrossBlock(mlir::Value x, int64_t threads, mlir::Value shared,
                          llvm::function_ref<mlir::Value(mlir::Value, mlir::Value)> combine);
  /// Four times four words of 32 bits in four lanes side by side: of what lane n has, word m becomes word n of lane m.
  Values transposeFour(mlir::ArrayRef<mlir::Value> four);
  /// 2^x with relative error 2^-22.
  mlir::Value exp2Fast(mlir::Value x);
  mlir::Value greater(mlir::Value x, mlir::Value y); ///< maximum; NaN if one is

  /// `block`'s operations for one element; what it yields, or `root` of it.
  /// `special` gives the result of an op that isn't cloned.
  mlir::Value cloneScalar(mlir::Block &block, mlir::ValueRange arguments,
                          llvm::function_ref<mlir::Value(mlir::Operation &)> special = nullptr, mlir::Value root = {});
};

} // namespace attn

#endif // PASSES_KERNELS_GPU_BLOCKBUILDER_H
