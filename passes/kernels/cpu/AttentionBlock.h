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

/// Registers of queries that a task computes last, one by one: a block that fills no more than one, and rows that see
/// no key, where hidden keys take part then (letsHiddenTakePart). Their code, a quarter of a kernel, is there once.
class QueuedRows {
public:
  /// Of a task that adds up to `most` registers; with `hasBlocks`, not all of them by addEmpty.
  static QueuedRows allocate(AttentionCode &k, int64_t most, bool hasBlocks);
  /// Adds rows [begin, end) that are not computed yet.
  void add(AttentionCode &k, const Index &batch, const Index &head, const Index &begin, const Index &end) const;
  /// Adds rows [begin, end) that are computed, for those of which `isEmpty` holds; its first lane is row
  /// min(begin, all rows - lanes), or 0.
  void addEmpty(AttentionCode &k, const Mask &isEmpty, const Index &batch, const Index &head, const Index &begin,
                const Index &end) const;
  /// Computes all of them.
  void emit(AttentionCode &k, const AttentionScratch &scratch) const;

private:
  void add(AttentionCode &k, const Mask &isEmpty, const Mask &isAgain, llvm::ArrayRef<Index> place) const;

  static constexpr int64_t kFields = 5;
  Buffer count, fields; ///< batch, head, begin and end of each, and whether it is computed again
  Buffer marks;         ///< [most][lanes] not 0 where a row is empty
  bool hasBlocks = false;
};

} // namespace attn

#endif // PASSES_KERNELS_CPU_ATTENTIONBLOCK_H
