#ifndef PASSES_KERNELS_CPU_ATTENTIONTRANSFER_H
#define PASSES_KERNELS_CPU_ATTENTIONTRANSFER_H

#include "passes/kernels/cpu/AttentionBlock.h"

namespace attn {

/// Emits what goes into a block of queries and out of it. How many registers the block has may be known only in the
/// run: a kernel has this code once for all of its blocks, of which transposes are much.
class BlockTransfer {
public:
  /// `most`: the registers of the largest block of the kernel.
  BlockTransfer(AttentionCode &k, const AttentionScratch &scratch, const BlockPlace &place, int64_t most);
  /// Fills scratch.queries, and scratch.rawQueries for tanh, with queries times `factor`; null: with queries.
  void loadQueries(const Num &factor);
  /// Stores scratch.results, times scratch.factors if there are any; scratch.weights are used up.
  void storeResult();
  /// The row in lane 0. A last block reaches back over rows of the one before, which it does not own.
  Index firstRow() const { return queries.first; }

private:
  void loadQueryTile(const Index &column, int64_t width);
  void storeQuery(Vec raw, const Index &d, const Index &vector);
  void storeRow(const Index &row);
  void forVectors(llvm::function_ref<void(Index vector)> body);
  /// The place of row `row` of a vector of queries in what has them innermost.
  Index at(const Index &row, const Index &vector) { return row * (place.vectors * lanes) + vector * lanes; }

  AttentionCode &k;
  const AttentionSpec &spec;
  const int64_t lanes, keyWidth, valueWidth, paddedValueWidth;
  const bool isNarrow;
  const AttentionScratch &scratch;
  const BlockPlace place;
  OperandView query, result;
  QueryBlock queries;
  Num factor;
};

} // namespace attn

#endif // PASSES_KERNELS_CPU_ATTENTIONTRANSFER_H
