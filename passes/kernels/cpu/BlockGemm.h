#ifndef PASSES_KERNELS_CPU_BLOCKGEMM_H
#define PASSES_KERNELS_CPU_BLOCKGEMM_H

#include "passes/kernels/cpu/Gemm.h"
#include "passes/kernels/cpu/IntegerGemm.h"

namespace attn {

/// The zero points of a matrix in blocks: one number for all, or one a block.
enum class BlockZeros {
  Constant,
  Signed,   ///< i8
  Unsigned, ///< u8
  Float     ///< of the scales' type
};

/// C[m,n] = epilogue( sum_k A[m,k] (q[k,n] - z[k/block,n]) s[k/block,n], operands at (m,n) ), all f32 but the stored
/// q, which are codes of a few bits, and s.
///
/// Up to kFewRows rows the codes are unpacked in registers: sums of a block, then times its scale. With `hasDigits`
/// those of one row are multiplied as bytes. Of more rows a panel's blocks are written out as f32 once for all rows of
/// a chunk, to a scratch that stays in the first-level cache unless blocks are of 256. The order of a sum is that of k
/// in both.
struct BlockGemmSpec : EpilogueSpec, PanelTile {
  int64_t m = mlir::ShapedType::kDynamic; ///< rows of A, or kDynamic
  int64_t k = 0, n = 0;                   ///< of the weight: fixed
  int64_t block = 32, bits = 4;
  bool isUnsigned = true;     ///< codes are from 0 on, else from -2^(bits - 1)
  bool hasHalfScales = false; ///< in f16
  BlockZeros zeros = BlockZeros::Constant;
  int64_t zeroPoint = 0; ///< if constant
  /// Rows of A are rounded to s8 first, one scale a block: products of bytes.
  bool hasByteRows = false;
  ByteDot dot = ByteDot::Single; ///< of bytes; not Single where there are byte rows
  /// One row alone is taken as kDigits digits of s8 times a power of two per block. An f32 is that exactly unless it is
  /// below 2^-6 of its block's greatest, and else to 2^-30 of the greatest: products of bytes that are those of f32. A
  /// row that is not finite, or has a block that is all below 2^-97, is multiplied in f32.
  bool hasDigits = false;
  /// A run that may use tiles (AMX) does for kFewestTileRows rows or more: of bytes, with the same sums, or of bf16, as
  /// the sum of three of which an f32 is rows of A, and each code is one. Such products are those of f32, their sums of
  /// a block take it in another order.
  bool hasTiles = false;

  /// Rows of A for which codes are unpacked in registers.
  static constexpr int64_t kFewRows = 4;
  /// Rows of A that share what is unpacked.
  static constexpr int64_t kChunkRows = 96;
  static constexpr int64_t kDigits = 4;
  /// A number in f32 is the sum of so many in bf16.
  static constexpr int64_t kParts = 3;
  /// As many sums as vpdpbusd makes of 8 rows tiles make of 16.
  static constexpr int64_t kFewestTileRows = 16;
  /// Rows of A in a tile. With tiles there is memory for whole ones.
  static constexpr int64_t kTileRows = 16;
  /// As kChunkRows.
  static constexpr int64_t kTileChunkRows = 128;
  /// Blocks are divisors of it.
  static constexpr int64_t kMostBlock = 256;

  /// The best tile of the target's instruction set; feature bits alone decide.
  static BlockGemmSpec forTarget(TargetAttr target, int64_t m, int64_t k, int64_t n);

  /// Rows of the weight in a word of the panels, the `group` of #attn.byte_panels.
  int64_t group() const { return 32 / bits; }
  /// Rows of the weight that are written out at a time. In f32 128 of them take 32 KB, which the first-level cache
  /// holds beside the rows of A.
  int64_t depth() const { return hasByteRows ? kMostBlock : std::max(kMostBlock / 2, block); }
  int64_t numBlocks() const { return (k + block - 1) / block; }
  int64_t numPanels() const { return (n + panelWidth() - 1) / panelWidth(); }
  llvm::SmallVector<int64_t> panelShape() const { return {numPanels(), (k + group() - 1) / group(), panelWidth()}; }
  /// Of the scales and zero points.
  llvm::SmallVector<int64_t> scaleShape() const { return {numPanels(), numBlocks(), panelWidth()}; }

  /// Of A in bytes or parts, and of a number for each of its blocks.
  llvm::SmallVector<int64_t> rowShape() const {
    return {roundedRows(), numBlocks() * block * (hasByteRows ? 1 : kParts)};
  }
  llvm::SmallVector<int64_t> rowScaleShape() const { return {roundedRows(), numBlocks()}; }
  /// Of the row's digits, of the power of two of each block, and of what starts two sums of it.
  llvm::SmallVector<int64_t> digitShape() const { return {kDigits, numBlocks() * block}; }
  llvm::SmallVector<int64_t> digitScaleShape() const { return {1, numBlocks()}; }
  llvm::SmallVector<int64_t> digitStartShape() const { return {2, numBlocks()}; }
  /// What the rows there is memory for are a multiple of.
  int64_t rowMultiple() const { return hasTiles ? kTileRows : 1; }
  /// Whether codes less their zero point are bytes from -128 to 127, as tiles multiply them.
  bool hasSignedCodes() const {
    return bits < 8 || (zeros == BlockZeros::Constant && zeroPoint == (isUnsigned ? 128 : 0));
  }
  /// Whether `hasTiles` may be for the target.
  bool mayHaveTiles(TargetAttr target) const;
  /// Whether `hasDigits` may be: one instruction multiplies four bytes, and A may be one row.
  bool mayHaveDigits() const;

  /// The kernel's name and cache key: equal names, identical code.
  std::string symbol() const;

private:
  int64_t roundedRows() const {
    return mlir::ShapedType::isDynamic(m) ? m : static_cast<int64_t>(llvm::alignTo(m, rowMultiple()));
  }
};

/// Whether buildBlockGemm can emit `spec`; otherwise `reason`, if given, says why not.
bool canBuildBlockGemm(const BlockGemmSpec &spec, std::string *reason = nullptr);

/// Emits the kernel `spec.symbol()` at the builder's insertion point. Arguments:
///
///   A         memref<MxKxf32>
///   B         words as #attn.byte_panels in i32
///   scales    memref<PxBxWxf32>, or f16: the scales in panels, as #attn.pack_panels
///   zeros     unless they are constant: the same of zero points
///   operands  see EpilogueOperand, in the order of spec.operands
///   rows      with hasByteRows, written: memref<MxB*blockxi8>, memref<MxBxf32>, memref<MxBxi32>; with hasTiles M is
///             rounded up to whole tiles, and without hasByteRows it is memref<MxB*block*3xbf16>
///   digits    with hasDigits, written: memref<4xB*blockxi8>, memref<1xBxf32>, memref<2xBxi32>
///   C         memref<MxNxf32>, written once, never read
///
/// One scf.parallel runs over chunks of rows and, within one, panels; before it, one over rows that are rounded or
/// parted, and one over chunks and panels of tiles. Emits a diagnostic at `loc` where canBuildBlockGemm is false.
mlir::func::FuncOp buildBlockGemm(mlir::OpBuilder &builder, mlir::Location loc, const BlockGemmSpec &spec);

} // namespace attn

#endif // PASSES_KERNELS_CPU_BLOCKGEMM_H
