#ifndef PASSES_KERNELS_CPU_ATTENTIONLISTS_H
#define PASSES_KERNELS_CPU_ATTENTIONLISTS_H

#include "passes/kernels/shared/AttentionOperands.h"
#include "passes/kernels/shared/LaneBuilder.h"
#include "passes/kernels/spec/Attention.h"

namespace attn {

/// Which keys the queries of one batch and head see, as far as
/// `spec.blockLists` say. What is emitted takes time for the lists' entries, not
/// for the keys that they leave out.
class KeyLists {
public:
  KeyLists(LaneBuilder &k, const AttentionSpec &spec, mlir::ValueRange buffers, mlir::Value batch, mlir::Value head,
           mlir::Value numKeys);

  /// Whether every query sees every key.
  bool isFull() const { return lists.empty(); }

  /// i32 that `markKeys` fills for blocks of `rows` queries.
  static int64_t sizeOfMarks(const AttentionSpec &spec, int64_t rows);
  /// Marks the keys [first, first + keyBlock): bit r of marks[t][lane] says that
  /// the query of the lane sees key r of tile t. The result is a key: from
  /// first + keyBlock on, none before it is listed.
  mlir::Value markKeys(const QueryBlock &queries, mlir::Value marks, mlir::Value first);

  /// The first run of listed keys of `query`, [start, end), that ends behind
  /// `key`, cut off before `key`; [numKeys, numKeys) for none. Of one list only.
  std::pair<mlir::Value, mlir::Value> nextRun(mlir::Value query, mlir::Value key);

  /// How many keys `query` sees where its list, the only one, names single keys in ascending order and nothing behind
  /// them, as adjacency lists do that were made of edges; otherwise -1.
  mlir::Value countAscending(mlir::Value query);
  /// Entry `n` of the list of `query`, of one list only.
  mlir::Value entryOf(mlir::Value query, mlir::Value n);

private:
  struct List {
    HeadView view;
    int64_t rows, columns;
    mlir::Value count; ///< of the entries of a row
  };
  mlir::Value entriesOf(const List &list, mlir::Value query) {
    return list.view.along(k, list.view.base, AttentionOp::I, rowOf(list, query));
  }
  mlir::Value loadEntry(const List &list, mlir::Value base, mlir::Value n);
  /// The keys [start, end) of entry `n` of the list at `base`; none where start >= end.
  std::pair<mlir::Value, mlir::Value> keysOf(const List &list, mlir::Value base, mlir::Value n);
  mlir::Value rowOf(const List &list, mlir::Value query);
  LaneBuilder::Values lanesOf(const List &list, const QueryBlock &queries, mlir::Value row, mlir::Value lastRow);
  mlir::Value markList(const List &list, const QueryBlock &queries, mlir::Value marks, mlir::Value base,
                       mlir::Value first);
  mlir::Value splat(mlir::Value number);

  LaneBuilder &k;
  const AttentionSpec &spec;
  mlir::Value numKeys;
  llvm::SmallVector<List, 1> lists;
};

} // namespace attn

#endif // PASSES_KERNELS_CPU_ATTENTIONLISTS_H
