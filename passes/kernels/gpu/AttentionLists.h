#ifndef PASSES_KERNELS_GPU_ATTENTIONLISTS_H
#define PASSES_KERNELS_GPU_ATTENTIONLISTS_H

#include "passes/kernels/gpu/ThreadCode.h"
#include "passes/kernels/shared/AttentionOperands.h"
#include "passes/kernels/spec/Attention.h"

namespace attn {

/// How a block of threads has some queries and goes over tiles of keys.
struct TileSizes {
  int64_t threads, queries, keys;
};

/// Which keys the queries of a block see, as far as `spec.blockLists` say: the
/// threads read the lists together and mark what they name of some tiles, the
/// window, in shared memory. It takes time for the entries and for the tiles that
/// are listed, not for the keys that are left out.
class BlockLists {
public:
  /// Bytes of shared memory.
  static int64_t countBytes(const AttentionSpec &spec, const TileSizes &sizes);

  /// `exchange`: as acrossBlock wants it.
  BlockLists(ThreadCode &k, const AttentionSpec &spec, mlir::ValueRange buffers, const Index &batch, const Index &head,
             const TileSizes &sizes, const Buffer &marks, const Buffer &exchange);
  /// `first`: of the block's queries.
  void setSizes(const Index &first, const Index &numQueries, const Index &numKeys);

  /// Marks the window from `begin` on, a multiple of the tile: a key not before the
  /// window's end, and none between the two is listed.
  Index mark(const Index &begin);
  Index windowEnd() { return begin + windowTiles * sizes.keys; }
  /// Whether the tile from `key` on, in the window or not, has a listed key in the window.
  Mask isListedTile(const Index &key);
  /// Whether query `i` sees key `j` of the window.
  Mask isListed(const Index &i, const Index &j);

private:
  /// In marks: whether a tile is listed, by tile, then which blocks of columns each row of the list names.
  struct List {
    OperandView view;
    int64_t rows, columns, base, blocks;
    Index count; ///< of the entries of a row
  };
  static int64_t chooseWindow(const AttentionSpec &spec, const TileSizes &sizes);
  Index markList(const List &list);
  Num byte(int64_t value) { return k.number(k.b.getI8Type(), value); }
  Mask markAt(int64_t base, const Index &place) { return marks(place + base) != 0; }
  /// Whether all lists say so.
  Mask all(llvm::function_ref<Mask(const List &)> isNamed);

  ThreadCode &k;
  const TileSizes sizes;
  const int64_t windowTiles, bytes;
  llvm::SmallVector<List, 1> lists;
  Buffer marks, exchange;
  Index first, numQueries, numKeys, begin;
};

} // namespace attn

#endif // PASSES_KERNELS_GPU_ATTENTIONLISTS_H
