#ifndef PASSES_KERNELS_SHARED_SEARCH_H
#define PASSES_KERNELS_SHARED_SEARCH_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"

// The kernels of attn.search. None of them depends on the machine: what costs
// time is one sweep over a row. `batch` items of `width` rows; rows = batch * width.

namespace attn {

struct SearchKernelSpec {
  bool isBeam = false;
  int64_t width = 1;
  llvm::ArrayRef<int64_t> eos;
  bool shrink = false, earlyStop = false, coverage = false;
  bool hasVectors = true;

  /// What stands behind the end of a result; it may be no token that the step takes.
  std::optional<int64_t> padding;

  /// What a row that has ended gives to the steps that follow.
  int64_t idle() const { return eos.empty() ? 0 : eos.front(); }
  /// Best candidates of one row that may be needed.
  int64_t candidates() const { return isBeam ? width * std::max<int64_t>(2, 1 + static_cast<int64_t>(eos.size())) : 1; }
};

/// (scores [rows, vocabulary], no end yet: i1) -> (values f32 [rows, candidates],
/// tokens i64 likewise, log of the sum of exponentials f32 [rows]): the best of each row, best first.
mlir::func::FuncOp buildSearchRows(mlir::OpBuilder &b, llvm::StringRef symbol, const SearchKernelSpec &spec);

/// (scores, no end yet: i1, step: i64, seed: i64, temperature: f32, top k: i64, top p: f64) -> (value f32 [rows, 1],
/// token i64 [rows, 1], log of the sum [rows], weights f32 [rows, vocabulary] as scratch): one drawn from each row.
mlir::func::FuncOp buildSearchSample(mlir::OpBuilder &b, llvm::StringRef symbol, const SearchKernelSpec &spec);

/// (scores f32 [rows, vocabulary], prompt i64 [batch, prompt], tokens i64 [steps, rows], parents likewise, how many
/// tokens at the front of a prompt are hidden i64 [batch] or [0], tokens that are forbidden unless they are forced,
/// suppressed tokens, those that are where tokens begin, steps until now, whether tokens begin: i1, repetition penalty
/// f32, n of the n-grams that do not repeat i64 (0: all may), a forced token i64 (-1: none), sequence
/// i64 [prompt + steps, rows]) -> (sequence, scores anew, the log sums of what they were). As the processors of
/// transformers: a beam's penalty is one of logarithms of probabilities, and counts no token that is hidden. Without a
/// beam parents are not read.
mlir::func::FuncOp buildSearchAdjust(mlir::OpBuilder &b, llvm::StringRef symbol, const SearchKernelSpec &spec);

/// (values, tokens, log sums, scores f32 [batch, width], complete scores f32 [batch, width],
/// complete i64 [batch, width, 3], open i64 [batch], penalty f32, step i64, last: i1, kin i64 [rows, width + 1],
/// with coverage what it adds to the score of a row that ends: f32 [rows]) ->
/// (the four in the middle anew, parents i64 [rows], next tokens i64 [rows], flags i64 [2], kin anew).
/// Of a complete hypothesis: its length, the row it was in and its last token.
/// Flags: whether a row goes on; of the first item n with scores that are no numbers -1 - 2n, or that has no token to
/// choose and no complete hypothesis -2 - 2n, or 0.
/// Kin: of a row and each row of its item the number of steps at the front in which they are one hypothesis; in the
/// last column the item's rows, the best first. A row whose parent is another row is no row's parent.
mlir::func::FuncOp buildSearchBeam(mlir::OpBuilder &b, llvm::StringRef symbol, const SearchKernelSpec &spec);

/// The same signature, without kin, for a width of 1 that keeps what is best: may write the four in place.
mlir::func::FuncOp buildSearchGreedy(mlir::OpBuilder &b, llvm::StringRef symbol, const SearchKernelSpec &spec);

/// A state with room behind its rows' positions.
struct SearchMoveSpec {
  int64_t width;
  mlir::RankedTensorType state;
  int64_t rowsDim, growDim;
  int64_t threads = 1; ///< that share a copy: a block of a GPU, or one with vectors
};

/// (parents and kin as in buildSearchBeam, of one and the same step, three counts of positions: `first`, which all rows
/// of an item share, `added`, by a step, `columns`, which are there; state) -> state, in which each row is its
/// parent's: moves in place what the two do not share.
mlir::func::FuncOp buildSearchMove(mlir::OpBuilder &b, llvm::StringRef symbol, const SearchMoveSpec &spec);

/// (complete [batch, width, 3]) -> (i64 [1]): the longest of the first `best` of each item.
mlir::func::FuncOp buildSearchLength(mlir::OpBuilder &b, llvm::StringRef symbol, int64_t width, int64_t best);

/// (tokens i64 [steps, rows], parents likewise, complete [batch, width, 3]) -> (tokens i64 [batch, best, length],
/// rows likewise, lengths i64 [batch, best]): follows parents back from the end.
mlir::func::FuncOp buildSearchTrace(mlir::OpBuilder &b, llvm::StringRef symbol, const SearchKernelSpec &spec,
                                    int64_t best);

struct CtcKernelSpec {
  int64_t width = 0; // 0: greedy
  int64_t best = 1, blank = 0;
  bool timeMajor = false;
  bool hasVectors = true;
};

/// (scores f32 [batch, time, labels], frames i64 [batch]) -> (labels i64 [batch, best, time], lengths i64 [batch,
/// best], scores f32 likewise, flags i64 [batch, 2]: whether a frame was no numbers, whether there are not so many
/// frames) and with a width as scratch (tree i64 [batch, time * width + 1, 4], i64 [batch, 2, width, 2], f64 [batch, 2,
/// width, 3]); no two of them of one type, since nobody reads them and they would become one buffer.
mlir::func::FuncOp buildCtc(mlir::OpBuilder &b, llvm::StringRef symbol, const CtcKernelSpec &spec);

/// (lengths, flags) -> (i64 [3]): the longest, then for each flag 1 + the first item that has it, or 0.
mlir::func::FuncOp buildCtcLength(mlir::OpBuilder &b, llvm::StringRef symbol, int64_t best);

} // namespace attn

#endif // PASSES_KERNELS_SHARED_SEARCH_H
