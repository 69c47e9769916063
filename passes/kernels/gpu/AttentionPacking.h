#ifndef PASSES_KERNELS_GPU_ATTENTIONPACKING_H
#define PASSES_KERNELS_GPU_ATTENTIONPACKING_H

#include "passes/kernels/gpu/AttentionEmitter.h"
#include "passes/kernels/gpu/Warpgroups.h"

namespace attn {

/// Rows of 16 bits in whole panels, as they are packed.
struct PackedOperand {
  size_t position; ///< in spec.types
  unsigned rowDim, dim;
  int64_t width, padded;
  int64_t piece; ///< so many columns, up to 16 bytes, are an aligned piece of memory
  bool isF32;

  PackedOperand(const AttentionSpec &spec, size_t position, unsigned rowDim, unsigned dim);
  /// Whether copies of tiles can take them from where they are.
  bool isTiled;
  int64_t bytes(int64_t rows) const { return rows * padded * 2; }
  /// The words of eight columns of a row from `column` on; zeros where nothing is.
  Nums readPiece(ThreadCode &k, const OperandView &view, const Index &row, const Mask &isRow, const Index &column,
                 Precision precision) const;
  /// On the host: the map of tiles of `rows` rows of a panel.
  mlir::Value mapTiles(ThreadCode &k, mlir::Value buffer, int64_t rows) const;
  /// Starts to copy `rows` rows of a head from `begin` on to `place` in shared memory, as they would be packed; zeros
  /// beyond the last one. `barrier` gets to know.
  void copyTiles(ThreadCode &k, mlir::Value map, const Index &batch, const Index &head, const Index &begin,
                 int64_t rows, const Index &place, const Index &barrier) const;

private:
  mlir::AffineMap map;
};

/// How keys and values come to shared memory, and where packed ones are, in f32 elements of the scratch: tile by tile
/// of each (batch, group of heads), keys before values, and behind all tiles for
/// each whether it has a value that is not finite in 16 bits.
struct Packing {
  PackedOperand keys, values;
  int64_t keysPerTile;
  bool isAhead;                 ///< scores come a tile before results
  bool isPacked;                ///< by a launch of its own; else tiles are copied from where they are
  std::optional<int64_t> ratio; ///< heads of a group; all of them

  explicit Packing(const AttentionSpec &spec);
  int64_t elementsPerTile() const { return (keys.bytes(keysPerTile) + values.bytes(keysPerTile)) / 4; }
  Index groups(const Index &heads) const { return ratio ? ceilDiv(heads, *ratio) : constantLike(heads, 1); }
  Index groupOf(const Index &head) const { return ratio ? head / *ratio : constantLike(head, 0); }
  Index headOf(const Index &group) const { return ratio ? group * *ratio : group; }
};

} // namespace attn

#endif // PASSES_KERNELS_GPU_ATTENTIONPACKING_H
