#ifndef PASSES_KERNELS_GPU_ATTENTIONLISTS_H
#define PASSES_KERNELS_GPU_ATTENTIONLISTS_H

#include "passes/kernels/gpu/BlockBuilder.h"
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

  /// `first`: of the block's queries; `exchange`: as acrossBlock wants it.
  BlockLists(BlockBuilder &k, const AttentionSpec &spec, mlir::ValueRange buffers, mlir::Value batch, mlir::Value head,
             const TileSizes &sizes, mlir::Value marks, mlir::Value exchange);
  void setSizes(mlir::Value first, mlir::Value numQueries, mlir::Value numKeys);

  /// Marks the window from `begin` on, a multiple of the tile: a key not before the
  /// window's end, and none between the two is listed.
  mlir::Value mark(mlir::Value begin);
  mlir::Value windowEnd() { return k.add(begin, windowTiles * sizes.keys); }
  /// Whether the tile from `key` on, in the window or not, has a listed key in the window.
  mlir::Value isListedTile(mlir::Value key);
  /// Whether query `i` sees key `j` of the window.
  mlir::Value isListed(mlir::Value i, mlir::Value j);

private:
  /// In marks: whether a tile is listed, by tile, then which blocks of columns each row of the list names.
  struct List {
    HeadView view;
    int64_t rows, columns, base, blocks;
    mlir::Value count; ///< of the entries of a row
  };
  static int64_t chooseWindow(const AttentionSpec &spec, const TileSizes &sizes);
  mlir::Value markList(const List &list);
  mlir::Value markAt(int64_t base, mlir::Value place) { return k.isNonZero(k.load(marks, k.add(place, base))); }

  BlockBuilder &k;
  const TileSizes sizes;
  const int64_t windowTiles, bytes;
  llvm::SmallVector<List, 1> lists;
  mlir::Value marks, exchange, first, numQueries, numKeys, begin;
};

} // namespace attn

#endif // PASSES_KERNELS_GPU_ATTENTIONLISTS_H
