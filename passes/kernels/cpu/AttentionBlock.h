#ifndef PASSES_KERNELS_CPU_ATTENTIONBLOCK_H
#define PASSES_KERNELS_CPU_ATTENTIONBLOCK_H

#include "passes/kernels/cpu/AttentionCode.h"

namespace attn {

/// Memory of one block of queries, R rows in all, with queries innermost.
struct AttentionScratch {
  // With narrow products, words of queries, weights and values are pairs: two columns, or two keys.
  Buffer queries; ///< [key width][R]; exp(2q) for tanh
  Buffer results; ///< [value width, up to a multiple of lanes][R]
  Buffer weights; ///< [keyBlock, or the same if larger][R]
  // Null where not needed:
  Buffer keys;                ///< [keyTile][key width, up to a multiple of lanes]; exp(2k) for tanh
  Buffer rawQueries, rawKeys; ///< the same before exp, for tanh
  Buffer values;              ///< [keyBlock][value width, up to a multiple of lanes], widened or paired
  Buffer tile;                ///< [keyTile][R] or its transpose, for extra results
  Buffer marks;               ///< of KeyLists, for a block of keys
  Buffer scores;              ///< [storedKeys][R]
  Buffer emptyRows;           ///< [R] not 0 where a query sees no key, and hidden ones take part then
  Buffer tileKeys;            ///< [keyBlock / keyTile] the first key of each tile of weights, with key lists

  /// Allocates for blocks of `vectors` registers of queries.
  static AttentionScratch allocate(AttentionCode &k, int64_t vectors);
};

/// Emits the attention of `vectors` registers of queries, the rows from `begin`
/// on, of one batch and head. Internal to the attention family. Returns what BlockEmitter::emit does.
Mask emitAttentionBlock(AttentionCode &k, const AttentionScratch &scratch, const Index &batch, const Index &head,
                        const Index &begin, int64_t vectors);

/// Rows of a task that see no key, where hidden keys take part then (letsHiddenTakePart). Blocks and rows note them,
/// and they are computed once more when the task is done: this is rare, and its code is a quarter of a kernel.
class EmptyRows {
public:
  /// Notes up to `most` registers of rows.
  static EmptyRows allocate(AttentionCode &k, int64_t most);
  /// Notes those rows of [begin, end) of which `isEmpty` holds; its first lane is row min(begin, all rows - lanes), or
  /// 0.
  void add(AttentionCode &k, const Mask &isEmpty, const Index &batch, const Index &head, const Index &begin,
           const Index &end) const;
  /// Computes all of them, a register of queries at a time.
  void emit(AttentionCode &k, const AttentionScratch &scratch) const;

private:
  static constexpr int64_t kFields = 4;
  Buffer count, fields; ///< batch, head, begin and end of each
  Buffer marks;         ///< [most][lanes] not 0 where a row is empty
};

} // namespace attn

#endif // PASSES_KERNELS_CPU_ATTENTIONBLOCK_H
