#ifndef PASSES_KERNELS_CPU_ATTENTIONLISTS_H
#define PASSES_KERNELS_CPU_ATTENTIONLISTS_H

#include "passes/kernels/cpu/AttentionCode.h"

namespace attn {

/// Which keys the queries of one batch and head see, as far as
/// `spec.blockLists` say. What is emitted takes time for the lists' entries, not
/// for the keys that they leave out.
class KeyLists {
public:
  /// A run of keys [start, end), or of what they are cut to.
  using Run = std::tuple<Index, Index>;
  KeyLists(AttentionCode &k, const Index &batch, const Index &head, const Index &numKeys);

  /// Whether every query sees every key.
  bool isFull() const { return lists.empty(); }

  /// i32 that `markKeys` fills for blocks of `rows` queries.
  static int64_t sizeOfMarks(const AttentionSpec &spec, int64_t rows);
  /// Marks the keys [first, first + keyBlock): bit r of marks[t][lane] says that
  /// the query of the lane sees key r of tile t. The result is a key: from
  /// first + keyBlock on, none before it is listed.
  Index markKeys(const QueryBlock &queries, const Buffer &marks, const Index &first);

  /// The first run of listed keys of `query` that ends behind `key`, cut off
  /// before `key`; [numKeys, numKeys) for none. Of one list only.
  Run nextRun(const Index &query, const Index &key);

  /// How many keys `query` sees where its list, the only one, names single keys in ascending order and nothing behind
  /// them, as adjacency lists do that were made of edges; otherwise -1.
  Index countAscending(const Index &query);
  /// Entry `n` of the list of `query`, of one list only.
  Index entryOf(const Index &query, const Index &n);

private:
  struct List {
    OperandView view;
    int64_t rows, columns;
    Index count; ///< of the entries of a row
  };
  Index entriesOf(const List &list, const Index &query) {
    return list.view.along(list.view.base, AttentionOp::I, query / list.rows);
  }
  Index loadEntry(const List &list, const Index &base, const Index &n) { return toIndex(list.view.flat(base + n)); }
  /// The keys of entry `n` of the list at `base`; none where start >= end.
  Run keysOf(const List &list, const Index &base, const Index &n);
  llvm::SmallVector<Vec> lanesOf(const List &list, const QueryBlock &queries, const Index &row, const Index &lastRow);
  Index markList(const List &list, const QueryBlock &queries, const Buffer &marks, const Index &base,
                 const Index &first);
  void markTile(const Buffer &marks, const Index &at, const Index &corner, const Run &keys,
                const llvm::SmallVector<Vec> &lanes);
  /// An i32 of `number`, in every lane.
  Vec splat(const Index &number) { return k.splat(toNum(number, k.b.getI32Type())); }

  AttentionCode &k;
  const AttentionSpec &spec;
  Index numKeys;
  llvm::SmallVector<List, 1> lists;
};

} // namespace attn

#endif // PASSES_KERNELS_CPU_ATTENTIONLISTS_H
