#ifndef PASSES_KERNELS_GPU_THREADCODE_H
#define PASSES_KERNELS_GPU_THREADCODE_H

#include "builders/Code.h"
#include "builders/Lanes.h"
#include "passes/kernels/gpu/Precision.h"
#include "passes/kernels/shared/KernelFunction.h"

namespace attn {

using Nums = llvm::SmallVector<Num>;
using Indices = llvm::SmallVector<Index>;

/// The code of one thread of a launch, or of the host around it: what a thread
/// computes is written with operators, as in Code; here is what the threads of a
/// block do together.
class ThreadCode : public Code {
public:
  using Code::Code;

  Index block, thread; ///< numbers, within a launch

  //===--- launches -------------------------------------------------------===//
  /// Opens a launch of `blocks` blocks, each with arrays of so many f32 in shared
  /// memory, which are returned, behind them one of `sharedBytes` i8, if any, and
  /// `dynamicBytes` (i32) more, if any; the builder stands in it.
  llvm::SmallVector<Buffer> launch(const Index &blocks, int64_t threads, llvm::ArrayRef<int64_t> sharedElements,
                                   mlir::Value dynamicBytes = {}, int64_t sharedBytes = 0);
  /// From here on threads are numbered from `first` on.
  void numberFrom(int64_t first) { thread = thread - first; }
  /// Of the launch that the builder has opened: kResidentBlocksAttr.
  void setResidentBlocks(int64_t blocks);
  /// Of the loop that the builder has just opened: ptxas does not unroll it. Where threads may have all registers it
  /// otherwise does, beyond what it has registers for.
  void keepRolled();
  /// On the host, outside of launches: the first for images of sm_90a, the second for others, as far as `use` has them.
  /// Where `isWanted` is not null and does not hold it is always the second.
  void whenSm90a(Sm90a use, llvm::function_ref<void()> exact, llvm::function_ref<void()> others, Mask isWanted = {});

  void barrier();
  /// Memory that lanes of the warp have written is there for all of them.
  void warpBarrier();
  /// In a cooperative launch: waits until this point has been reached `arrivals` times
  /// in all, once a block each time. `counters[place]`, an i64 that was 0 before, counts.
  void gridBarrier(const Buffer &counters, const Index &place, const Index &arrivals);

  //===--- memory ---------------------------------------------------------===//
  /// The `count` (2 or 4) elements from `at` on, a multiple of it.
  Nums loadFew(const Buffer &flat, const Index &at, int64_t count);
  Nums load4(const Buffer &flat, const Index &at) { return loadFew(flat, at, 4); }
  /// The `count` words of 32 bits, of narrower elements, from `at` on, a multiple of them all, as i32.
  Nums loadWords(const Buffer &flat, const Index &at, int64_t count);
  /// The `count` elements of f32 or fewer bits from `at` on, a multiple of it, as f32.
  Nums loadWide(const Buffer &flat, const Index &at, int64_t count);
  /// Side by side; f32 is rounded to the buffer's type. Memory from `at` on is aligned to them all.
  void storeFew(llvm::ArrayRef<Num> few, const Buffer &flat, const Index &at);
  void store4(llvm::ArrayRef<Num> four, const Buffer &flat, const Index &at) { storeFew(four, flat, at); }
  /// The other way around than loadWords.
  void storeWords(llvm::ArrayRef<Num> words, const Buffer &flat, const Index &at);

  /// Copies `words` (1 or 4, aligned) of 32 bits of global memory to shared memory, which
  /// is f32, without waiting; zeros instead, and nothing is read, unless `isInside`.
  void copyAsync(const Buffer &to, const Index &toAt, const Buffer &from, const Index &fromAt, int64_t words,
                 const Mask &isInside);
  void commitCopies();
  /// All but the last `pending` groups are there, for this thread.
  void waitForCopies(int64_t pending);

  //===--- matrix units ---------------------------------------------------===//
  // A warp multiplies A (16 rows, 16 deep) by B (16 deep, 8 columns). Of each row
  // (column) g = lane / 4 and g + 8 a lane holds the places 2t, 2t + 1, 2t + 8 and
  // 2t + 9 of the sum, where t = lane % 4; of the result (g, 2t), (g, 2t + 1),
  // (g + 8, 2t) and (g + 8, 2t + 1).

  /// Four f32 of a row or column, as the operands of mma.sync want them.
  Nums packed(llvm::ArrayRef<Num> four, Precision precision);
  /// `sums` plus A times B; `top` and `bottom` are the packed rows g and g + 8 of A.
  Nums multiplyMatrices(llvm::ArrayRef<Num> top, llvm::ArrayRef<Num> bottom, llvm::ArrayRef<Num> column,
                        llvm::ArrayRef<Num> sums, Precision precision);
  /// Four 8 x 8 matrices of 16-bit elements, two in an f32 of shared memory: lane
  /// 8m + n names row n of matrix m by `at`, a multiple of 4. A lane gets places
  /// 2t and 2t + 1 of row g of each, or of column g where `transposed`.
  Nums loadMatrices(const Buffer &flat, const Index &at, bool transposed, Precision precision);
  /// The two 16-bit elements of a word, as f32.
  Nums unpacked(const Num &word, Precision precision);
  /// The bits of a number or of packed ones as those of `type`, which may be a vector.
  mlir::Value bitsAs(mlir::Value x, mlir::Type type);
  Num asFloat(mlir::Value word) { return asNum(bitsAs(word, b.getF32Type())); }
  Num asWord(mlir::Value x) { return asNum(bitsAs(x, b.getI32Type())); }

  //===--- between threads ------------------------------------------------===//
  using Combine = llvm::function_ref<Num(Num, Num)>;
  /// `combine` over `width` lanes (a power of two) in each of them: side by side, or `apart` (likewise; the product
  /// is at most 32).
  Num acrossThreads(Num x, int64_t width, Combine combine, int64_t apart = 1);
  /// The same of all `threads` of the block (full warps), of an f32 or i32, by way of an f32 of shared memory a
  /// warp. What threads have written to shared memory before is there for all of them then.
  Num acrossBlock(Num x, int64_t threads, const Buffer &shared, Combine combine);
  /// Four times four words of 32 bits in four lanes side by side: of what lane n has, word m becomes word n of lane m.
  Nums transposeFour(llvm::ArrayRef<Num> four);

  //===--- numbers --------------------------------------------------------===//
  /// 2^x with relative error 2^-22.
  Num exp2Fast(const Num &x);
  /// `block`'s operations for one element: what it yields.
  /// `special` gives the result of an op that isn't cloned.
  Num cloneScalar(mlir::Block &block, mlir::ValueRange arguments,
                  llvm::function_ref<mlir::Value(mlir::Operation &)> special = nullptr);

  template <typename T> static llvm::SmallVector<mlir::Value> values(llvm::ArrayRef<T> terms) {
    return llvm::map_to_vector<6>(terms, [](const T &x) { return x.value(); });
  }

private:
  Num fromLane(const Num &x, int64_t distance);
  mlir::Value pointerTo(const Buffer &flat, const Index &at, unsigned space, int64_t elementBytes);
};

/// Row-major strides of `buffer`, from outside of launches or constant.
Indices rowMajorStrides(ThreadCode &k, const Buffer &buffer);
/// The indices of dimensions with `sizes` at `linear`.
Indices delinearize(Index linear, llvm::ArrayRef<Index> sizes);

} // namespace attn

#endif // PASSES_KERNELS_GPU_THREADCODE_H
