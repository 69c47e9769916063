#ifndef PASSES_KERNELS_GPU_THREADCODE_H
#define PASSES_KERNELS_GPU_THREADCODE_H

#include "builders/Lanes.h"
#include "passes/kernels/gpu/BlockBuilder.h"
#include "passes/kernels/shared/KernelFunction.h"

namespace attn {

using Nums = llvm::SmallVector<Num>;
using Indices = llvm::SmallVector<Index>;

/// The code of one thread of a launch, or of the host around it: what a thread
/// computes is written with operators, as in Code; here is what the threads of a
/// block do together. `BlockBuilder` says what each of these does.
class ThreadCode : public Code {
public:
  ThreadCode(mlir::OpBuilder &b, mlir::Location loc) : Code(b, loc), raw(b, loc) {}

  Index block, thread; ///< numbers, within a launch
  BlockBuilder raw;    ///< for what takes one; its thread and block are the same

  llvm::SmallVector<Buffer> launch(const Index &blocks, int64_t threads, llvm::ArrayRef<int64_t> sharedElements,
                                   mlir::Value dynamicBytes = {}, int64_t sharedBytes = 0);
  /// Within a launch that `raw` has opened.
  void enter() { block = asIndex(raw.block), thread = asIndex(raw.thread); }
  /// From here on threads are numbered from `first` on.
  void numberFrom(int64_t first);
  void setResidentBlocks(int64_t blocks) { raw.setResidentBlocks(blocks); }
  void keepRolled() { raw.keepRolled(); }

  void barrier() { raw.barrier(); }
  void gridBarrier(const Buffer &counters, const Index &place, const Index &arrivals) {
    raw.gridBarrier(counters, place, arrivals);
  }

  //===--- memory ---------------------------------------------------------===//
  Nums load4(const Buffer &flat, const Index &at) { return loadFew(flat, at, 4); }
  Nums loadFew(const Buffer &flat, const Index &at, int64_t count) { return nums(raw.loadFew(flat, at, count)); }
  Nums loadWide(const Buffer &flat, const Index &at, int64_t count) { return nums(raw.loadWide(flat, at, count)); }
  Nums loadWords(const Buffer &flat, const Index &at, int64_t count) { return nums(raw.loadWords(flat, at, count)); }
  void store4(llvm::ArrayRef<Num> four, const Buffer &flat, const Index &at) { storeFew(four, flat, at); }
  void storeFew(llvm::ArrayRef<Num> few, const Buffer &flat, const Index &at) { raw.storeFew(values(few), flat, at); }
  void storeWords(llvm::ArrayRef<Num> words, const Buffer &flat, const Index &at) {
    raw.storeWords(values(words), flat, at);
  }
  void copyAsync(const Buffer &to, const Index &toAt, const Buffer &from, const Index &fromAt, int64_t words,
                 const Mask &isInside) {
    raw.copyAsync(to, toAt, from, fromAt, words, isInside);
  }
  void commitCopies() { raw.commitCopies(); }
  void waitForCopies(int64_t pending) { raw.waitForCopies(pending); }

  //===--- matrix units ---------------------------------------------------===//
  Nums packed(llvm::ArrayRef<Num> four, Precision precision) { return nums(raw.packed(values(four), precision)); }
  Nums multiplyMatrices(llvm::ArrayRef<Num> top, llvm::ArrayRef<Num> bottom, llvm::ArrayRef<Num> column,
                        llvm::ArrayRef<Num> sums, Precision precision) {
    return nums(raw.multiplyMatrices(values(top), values(bottom), values(column), values(sums), precision));
  }
  Nums loadMatrices(const Buffer &flat, const Index &at, bool transposed, Precision precision) {
    return nums(raw.loadMatrices(flat, at, transposed, precision));
  }
  Nums unpacked(const Num &word, Precision precision) { return nums(raw.unpacked(word, precision)); }
  /// The bits of an f32, of packed ones, too.
  Num asFloat(mlir::Value word) { return asNum(raw.bitcast(word, b.getF32Type())); }
  /// The other way around: the bits of an f32 or of packed ones as an i32.
  Num asWord(mlir::Value x) { return asNum(raw.bitcast(x, b.getI32Type())); }
  void warpBarrier() { raw.warpBarrier(); }

  /// `combine` over `width` lanes in each of them.
  template <typename Combine> Num acrossThreads(const Num &x, int64_t width, Combine combine, int64_t apart = 1) {
    auto both = [&](mlir::Value x, mlir::Value y) -> mlir::Value { return combine(asNum(x), asNum(y)); };
    return asNum(raw.acrossThreads(x, width, both, apart));
  }

  /// The same of all `threads` of the block.
  template <typename Combine> Num acrossBlock(const Num &x, int64_t threads, const Buffer &shared, Combine combine) {
    auto both = [&](mlir::Value x, mlir::Value y) -> mlir::Value { return combine(asNum(x), asNum(y)); };
    return asNum(raw.acrossBlock(x, threads, shared, both));
  }
  Nums transposeFour(llvm::ArrayRef<Num> four) { return nums(raw.transposeFour(values(four))); }
  Num exp2Fast(const Num &x) { return asNum(raw.exp2Fast(x)); }

  Nums nums(mlir::ValueRange values) {
    return llvm::map_to_vector<6>(values, [&](mlir::Value x) { return asNum(x); });
  }
  template <typename T> static LaneBuilder::Values values(llvm::ArrayRef<T> terms) {
    return llvm::map_to_vector<6>(terms, [](const T &x) { return x.value(); });
  }
};

/// Row-major strides of `buffer`, from outside of launches or constant.
Indices rowMajorStrides(ThreadCode &k, const Buffer &buffer);
/// The indices of dimensions with `sizes` at `linear`.
Indices delinearize(Index linear, llvm::ArrayRef<Index> sizes);

} // namespace attn

#endif // PASSES_KERNELS_GPU_THREADCODE_H
