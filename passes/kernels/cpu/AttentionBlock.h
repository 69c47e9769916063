#ifndef PASSES_KERNELS_CPU_ATTENTIONBLOCK_H
#define PASSES_KERNELS_CPU_ATTENTIONBLOCK_H

#include "passes/kernels/shared/LaneBuilder.h"
#include "passes/kernels/spec/Attention.h"

namespace attn {

/// Memory of one block of queries, R rows in all, with queries innermost.
struct AttentionScratch {
  // With narrow products, words of queries, weights and values are pairs: two columns, or two keys.
  mlir::Value queries; ///< [key width][R]; exp(2q) for tanh
  mlir::Value results; ///< [value width, up to a multiple of lanes][R]
  mlir::Value weights; ///< [keyBlock, or the same if larger][R]
  // Null where not needed:
  mlir::Value keys;                ///< [keyTile][key width, up to a multiple of lanes]; exp(2k) for tanh
  mlir::Value rawQueries, rawKeys; ///< the same before exp, for tanh
  mlir::Value values;              ///< [keyBlock][value width, up to a multiple of lanes], widened or paired
  mlir::Value tile;                ///< [keyTile][R] or its transpose, for extra results
  mlir::Value marks;               ///< of KeyLists, for a block of keys
  mlir::Value scores;              ///< [storedKeys][R]
  mlir::Value emptyRows;           ///< [R] not 0 where a query sees no key, and hidden ones take part then
  mlir::Value tileKeys;            ///< [keyBlock / keyTile] the first key of each tile of weights, with key lists

  /// Allocates for blocks of `vectors` registers of queries.
  static AttentionScratch allocate(LaneBuilder &k, const AttentionSpec &spec, int64_t vectors);
};

/// Emits the attention of `vectors` registers of queries, the rows from `begin`
/// on, of one batch and head. `buffers` are the operands of the kernel, the
/// result last. Internal to the attention family. Returns what BlockEmitter::emit does.
mlir::Value emitAttentionBlock(LaneBuilder &k, const AttentionSpec &spec, mlir::ValueRange buffers,
                               const AttentionScratch &scratch, mlir::Value batch, mlir::Value head, mlir::Value begin,
                               int64_t vectors);

/// Computes the rows from `begin` to `end` once more, with hidden keys in those that `scratch.emptyRows` names, from
/// row `first` on. A register of queries at a time: this is rare, and its code is not to be as large as the rest.
void emitEmptyRows(LaneBuilder &k, const AttentionSpec &spec, mlir::ValueRange buffers, const AttentionScratch &scratch,
                   mlir::Value batch, mlir::Value head, mlir::Value begin, mlir::Value first, mlir::Value end);

} // namespace attn

#endif // PASSES_KERNELS_CPU_ATTENTIONBLOCK_H
