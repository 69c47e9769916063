#ifndef PASSES_KERNELS_CPU_ATTENTIONROW_H
#define PASSES_KERNELS_CPU_ATTENTIONROW_H

#include "passes/kernels/cpu/AttentionCode.h"

namespace attn {

class QueuedRows;

/// Up to this many queries are computed one by one: a register of queries costs
/// as much as 16 of them whether it is full or not. With adjacency lists all are:
/// what they name is seldom a tile of keys that several queries see.
inline constexpr int64_t kMaxRowQueries = 4;

/// Whether rows serve `spec`: key and value rows lie dense, there is no weight
/// region, and at most one list of blocks, which hides its keys for good.
bool canEmitAttentionRow(const AttentionSpec &spec);

/// Whether the mask is adjacency lists: of single keys for each query.
bool listsKeys(const AttentionSpec &spec);

/// What one task computes of a spec that canEmitAttentionRow.
struct AttentionRowPlan {
  /// So many tasks keep a machine busy; with fewer, each gets a part of the keys.
  static constexpr int64_t kTasks = 16;
  /// Fewer keys are not worth a task.
  static constexpr int64_t kKeysOfChunk = 512;
  /// Without parts of the keys, heads share a read only if so many tasks remain.
  static constexpr int64_t kMinTasks = 8;
  static constexpr int64_t kMaxSharing = 16;
  /// f32 on the stack of the kernel, for what parts of the keys give.
  static constexpr int64_t kMaxPartials = 64 << 10;

  int64_t heads = 1; ///< neighbours that read the same keys
  int64_t rows = 1;
  int64_t mostRows = 1; ///< of a head, when they go one by one
  bool isSplit = false; ///< into parts of the keys

  static AttentionRowPlan get(const AttentionSpec &spec);
  static int64_t recordSize(const AttentionSpec &spec);
  /// f32 for the records of all parts of all rows, where there is more than one part.
  int64_t partialSize(const AttentionSpec &spec) const { return 2 * kTasks * heads * mostRows * recordSize(spec); }
};

/// Memory of one task; null where not needed.
struct AttentionRowScratch {
  Buffer weights; ///< [keyBlock]
  Buffer records; ///< one a row
  Buffer queries; ///< by row: the query, and the alignment
  Buffer keys;    ///< [keyBlock] of those that a list names, where it names single keys

  static AttentionRowScratch allocate(AttentionCode &k, const AttentionRowPlan &plan);
  static int64_t queryWidth(const AttentionSpec &spec);
};

/// A row, and where its record and its query begin.
struct AttentionRowPlace {
  Index batch, head, row;
  Buffer records;
  Index record, query;
};

/// Emits task `task`, for decoding: scores with the key width along the
/// lanes, softmax with the keys, and the sum of values with the value width
/// along the lanes, so that keys and values stream through once. `partials` is
/// what all tasks share, null where keys are not split; rows that see no key join `queue`. Internal to the attention
/// family.
void emitAttentionRows(AttentionCode &k, const AttentionRowPlan &plan, const Buffer &partials, const QueuedRows &queue,
                       const Index &task);
Index countAttentionRowTasks(AttentionCode &k, const AttentionRowPlan &plan, const Buffer &partials);

/// Emits the end of row `row` of those whose keys are split: its parts become one.
void emitAttentionRowMerge(AttentionCode &k, const AttentionRowPlan &plan, const Buffer &partials,
                           const QueuedRows &queue, const Index &row);
Index countAttentionRowMerges(AttentionCode &k, const AttentionRowPlan &plan, const Buffer &partials);

} // namespace attn

#endif // PASSES_KERNELS_CPU_ATTENTIONROW_H
