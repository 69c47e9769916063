#ifndef PASSES_KERNELS_GPU_INTEGERGEMMEMITTER_H
#define PASSES_KERNELS_GPU_INTEGERGEMMEMITTER_H

#include "passes/kernels/gpu/ByteProducts.h"
#include "passes/kernels/gpu/IntegerGemm.h"

namespace attn {

/// What the forms of a GpuIntegerSpec share: the sizes, the rows, and what becomes of a sum.
class GpuIntegerEmitter {
public:
  GpuIntegerEmitter(mlir::OpBuilder &b, mlir::Location loc, const GpuIntegerSpec &spec,
                    llvm::ArrayRef<Buffer> arguments);

protected:
  static constexpr int64_t kWarp = 32, kWidth = GpuIntegerSpec::kWidth, kGroup = GpuIntegerSpec::kGroup;
  static constexpr int64_t kPanelBytes = kWidth * kGroup; ///< of a group of rows

  /// Whether a row of A has its groups of 16 where they can be read at once.
  bool isVector() const { return !mlir::ShapedType::isDynamic(spec.k) && spec.k % kGroup == 0; }
  /// The 16 bytes of group `number` of a row, as words; zeros beyond its end, and unless `isInside`.
  Nums readGroup(Index row, Index number, Mask isInside);
  /// The first byte of what panel `panel` of all matrices has of group `number`.
  Index placeInPanels(Index panel, Index number) { return (panel * numGroups + number) * kPanelBytes; }
  /// The zero point of a column, or null.
  Num columnZeroAt(Index column);
  /// The products less zb times the sum of the row, as elements of C: of columns side by side from `column` on.
  Nums finish(Nums sums, Index matrix, Index row, Index column);
  /// Whether elements of `type` are read and written side by side.
  static bool areBytes(mlir::Type type);
  void store(llvm::ArrayRef<Num> results, Index row, Index column);

  ThreadCode k;
  const GpuIntegerSpec &spec;
  Buffer rows, panels, columnSums, rowZero, columnZero, result;
  llvm::SmallVector<Buffer> operands;
  Index numRows, depth, numGroups, numColumns, panelsOfMatrix;
};

/// By matrix units (IntegerGemmTiles.cpp).
void emitIntegerTiles(mlir::OpBuilder &b, mlir::Location loc, const GpuIntegerSpec &spec,
                      llvm::ArrayRef<Buffer> arguments);
/// For up to `height` rows, by products of four bytes (IntegerGemv.cpp).
void emitIntegerGemv(mlir::OpBuilder &b, mlir::Location loc, const GpuIntegerSpec &spec,
                     llvm::ArrayRef<Buffer> arguments, int64_t height);

} // namespace attn

#endif // PASSES_KERNELS_GPU_INTEGERGEMMEMITTER_H
