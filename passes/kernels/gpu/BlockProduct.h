#ifndef PASSES_KERNELS_GPU_BLOCKPRODUCT_H
#define PASSES_KERNELS_GPU_BLOCKPRODUCT_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include <string>

namespace attn {

/// Products of rows of f32 and a matrix of K x N that is stored as codes of a few bits, (code - zero) * scale with a
/// scale for each block of codes along K. Codes lie as #attn.byte_panels has them in words of 32 bits, scales and zero
/// points as #attn.pack_panels: a lane of a warp has a column.
struct GpuBlockSpec {
  int64_t rows = mlir::ShapedType::kDynamic;
  int64_t depth = 0, columns = 0; ///< K and N
  int64_t block = 32, bits = 4;
  bool isUnsigned = true; ///< codes are from 0 on, else from -2^(bits - 1) on
  mlir::Type scale;       ///< f32 or f16
  mlir::Type zero; ///< of zero points of blocks: i8 in the codes' range, or the scales'; null: `zeroPoint` is all
  int64_t zeroPoint = 0;

  static constexpr int64_t kWidth = 32;
  /// Of the rows that one launch multiplies.
  static constexpr int64_t kFewRows = 8;

  int64_t group() const { return 32 / bits; } ///< codes of a word
  int64_t numGroups() const { return (depth + group() - 1) / group(); }
  int64_t numBlocks() const { return (depth + block - 1) / block; }
  int64_t numPanels() const { return (columns + kWidth - 1) / kWidth; }
  llvm::SmallVector<int64_t> codeShape() const { return {numPanels(), numGroups(), kWidth}; }
  llvm::SmallVector<int64_t> scaleShape() const { return {numPanels(), numBlocks(), kWidth}; }

  /// What the names of both kernels have: equal names, identical code.
  std::string symbol() const;
};

/// Whether there are such kernels: blocks are whole words, or there is one.
bool canBuildGpuBlockProduct(const GpuBlockSpec &spec, std::string &reason);

/// Emits the product of up to kFewRows rows, with the arguments (rows, codes, scales, [zero points,] result). Codes are
/// read once, unpacked in registers; a block of threads has 32 columns, its warps share the sum. Of a number of rows
/// that the run tells, the host chooses among 1, 2, 4 and 8.
mlir::func::FuncOp buildGpuBlockProduct(mlir::OpBuilder &builder, mlir::Location loc, llvm::StringRef symbol,
                                        const GpuBlockSpec &spec);

/// Emits what writes the matrix out, K x N of f32, with the arguments (codes, scales, [zero points,] result).
mlir::func::FuncOp buildGpuUnpackBlocks(mlir::OpBuilder &builder, mlir::Location loc, llvm::StringRef symbol,
                                        const GpuBlockSpec &spec);

} // namespace attn

#endif // PASSES_KERNELS_GPU_BLOCKPRODUCT_H
