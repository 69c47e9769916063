#ifndef PASSES_KERNELS_CPU_ATTENTIONCAPTURES_H
#define PASSES_KERNELS_CPU_ATTENTIONCAPTURES_H

#include "passes/kernels/shared/AttentionOperands.h"

namespace attn {

/// One element of each row of query vector `vector`; `offset` is that of row 0.
Vec gatherRows(const OperandView &view, const QueryBlock &queries, const Index &offset, int64_t vector);

/// Reads one captured tensor for tiles of keys x query vectors.
class CaptureReader {
public:
  /// Emits what does not change from key to key.
  CaptureReader(const OperandView &view, const QueryBlock &queries);

  /// By key, then by query vector: a Num where the lanes agree, else a Vec.
  using Tile = llvm::SmallVector<llvm::SmallVector<Term>>;
  /// The capture for keys [key, key + count). With `isEdge`, keys from numKeys on are some value of a key before it.
  Tile read(const Index &key, int64_t count, bool isEdge, const Index &numKeys) const;

  /// Whether keys stand side by side in memory, and a tile of them is read at once.
  bool transposes() const { return view.has(AttentionOp::Dim::I) && view.isContiguous(AttentionOp::Dim::J); }

private:
  llvm::SmallVector<Vec> transposedTile(const Index &key, int64_t count, int64_t vector, bool isEdge,
                                        const Index &numKeys) const;

  OperandView view;
  QueryBlock queries;
  llvm::SmallVector<Term> hoisted; ///< by vector, where the keys agree
};

} // namespace attn

#endif // PASSES_KERNELS_CPU_ATTENTIONCAPTURES_H
