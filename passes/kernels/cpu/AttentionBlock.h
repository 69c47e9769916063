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
  Buffer factors;             ///< [R] what the results are multiplied by in the end
  Buffer keys;                ///< [keyTile][key width, up to a multiple of lanes]; exp(2k) for tanh
  Buffer rawQueries, rawKeys; ///< the same before exp, for tanh
  Buffer values;              ///< [keyBlock][value width, up to a multiple of lanes], widened or paired
  Buffer tile;                ///< [keyTile][R] or its transpose, for extra results and dear regions
  /// [keyTile][R] by capture: of those with queries and keys, in a dear region
  llvm::SmallVector<Buffer> captured;
  Buffer marks;     ///< of KeyLists, for a block of keys
  Buffer scores;    ///< [storedKeys][R]
  Buffer emptyRows; ///< [R] not 0 where a query sees no key, and hidden ones take part then
  Buffer tileKeys;  ///< [keyBlock / keyTile] the first key of each tile of weights, with key lists

  /// Allocates for blocks of `vectors` registers of queries.
  static AttentionScratch allocate(AttentionCode &k, int64_t vectors);
};

/// A block of queries.
struct BlockPlace {
  Index batch, head;
  Index begin, end; ///< of the rows that it owns, as far as there are rows
  Index vectors;    ///< registers of queries
};

/// Emits the attention of a block of queries, the rows from `begin` on, of one batch and head: of `most` registers, or
/// of one where `isWhole` does not hold; null: it always does. Internal to the attention family.
void emitAttentionBlock(AttentionCode &k, const AttentionScratch &scratch, const Index &batch, const Index &head,
                        const Index &begin, int64_t most, const Mask &isWhole);

/// Blocks of queries that a task computes where hidden keys may take part (letsHiddenTakePart): whole ones, those that
/// fill no more than a register, and rows that see no key, in which hidden keys take part then. The latter two share
/// their code, a quarter of a kernel, and all of them what loads queries and stores results.
class QueuedRows {
public:
  /// Of a task that adds up to `most`; whole blocks have `vectors` registers, 0: all are added by addEmpty.
  static QueuedRows allocate(AttentionCode &k, int64_t most, int64_t vectors);
  void addWhole(AttentionCode &k, const Index &batch, const Index &head, const Index &begin) const;
  void addSingle(AttentionCode &k, const Index &batch, const Index &head, const Index &begin) const;
  /// Adds rows [begin, end) that are computed, for those of which `isEmpty` holds; its first lane is row
  /// min(begin, all rows - lanes), or 0.
  void addEmpty(AttentionCode &k, const Mask &isEmpty, const Index &batch, const Index &head, const Index &begin,
                const Index &end) const;
  /// Computes all of them.
  void emit(AttentionCode &k, const AttentionScratch &scratch) const;

private:
  static constexpr int64_t kSingle = 0, kAgain = 1, kWhole = 2;
  void add(AttentionCode &k, int64_t kind, const Mask &isEmpty, llvm::ArrayRef<Index> place) const;
  void emitQueued(AttentionCode &k, const AttentionScratch &scratch, BlockPlace place, const Index &kind,
                  const Mask &isEmpty) const;

  static constexpr int64_t kFields = 5;
  Buffer count, fields; ///< batch, head, begin, end and kind of each
  Buffer marks;         ///< [most][lanes] not 0 where a row is empty
  int64_t vectors = 0;
};

} // namespace attn

#endif // PASSES_KERNELS_CPU_ATTENTIONBLOCK_H
