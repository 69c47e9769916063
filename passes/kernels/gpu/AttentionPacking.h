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
  LaneBuilder::Values readPiece(BlockBuilder &k, const HeadView &view, mlir::Value row, mlir::Value isRow,
                                mlir::Value column, Precision precision) const;
  /// On the host: the map of tiles of `rows` rows of a panel.
  mlir::Value mapTiles(BlockBuilder &k, mlir::Value buffer, int64_t rows) const;
  /// Starts to copy `rows` rows of a head from `begin` on to `place` in shared memory, as they would be packed; zeros
  /// beyond the last one. `barrier` gets to know.
  void copyTiles(BlockBuilder &k, mlir::Value map, mlir::Value batch, mlir::Value head, mlir::Value begin, int64_t rows,
                 mlir::Value place, mlir::Value barrier) const;

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
  mlir::Value groups(LaneBuilder &k, mlir::Value heads) const { return ratio ? k.ceilDiv(heads, *ratio) : k.index(1); }
  mlir::Value groupOf(LaneBuilder &k, mlir::Value head) const {
    return ratio ? k.div(head, k.index(*ratio)) : k.index(0);
  }
  mlir::Value headOf(LaneBuilder &k, mlir::Value group) const { return ratio ? k.mul(group, *ratio) : group; }
};

} // namespace attn

#endif // PASSES_KERNELS_GPU_ATTENTIONPACKING_H
