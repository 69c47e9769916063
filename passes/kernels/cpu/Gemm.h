#ifndef PASSES_KERNELS_CPU_GEMM_H
#define PASSES_KERNELS_CPU_GEMM_H

#include "dialects/attn/AttnOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include "passes/kernels/cpu/PanelTile.h"
#include "passes/kernels/spec/Regions.h"
#include "passes/kernels/spec/Storage.h"
#include "llvm/ADT/SmallVector.h"
#include <optional>
#include <string>

namespace attn {

/// C[m,n] = epilogue( sum_k A[m,k] B[k,n], operands at (m,n) ), all f32; with
/// isBatched, as many such products as there are B's, rows one below the other.
///
/// The sum runs over k in order, one fused multiply-add at a time, for every
/// tile height: a row's bits depend neither on the other rows nor on threads.
struct GemmSpec : EpilogueSpec, PanelCut {
  int64_t m = mlir::ShapedType::kDynamic; ///< rows of all of A, or kDynamic
  int64_t k = 0;                          ///< or kDynamic
  int64_t n = 0;                          ///< or kDynamic
  bool isBatched = false;                 ///< several B's; m is kDynamic

  PanelStorage storage = PanelStorage::F32; ///< narrow: k and n are fixed
  int64_t group = 0;                        ///< I8: rows that share a scale
  /// A is bf16, too, and pairs of products are summed in f32 by vdpbf16ps; its
  /// order and roundings, denormals are zero. K is even, storage BF16.
  bool hasNarrowRows = false;
  /// With hasNarrowRows: each factor is the sum of so many matrices in bf16, the
  /// next one what rounding to the one before leaves. Of their products those of
  /// parts i and j with i + j < parts are summed: 3 products for 2, 6 for 3.
  int64_t parts = 1;
  /// BF16: K of the panels is padded to a multiple of this.
  int64_t panelDepth = 1;
  bool hasNarrowResult = false; ///< C is rounded to bf16 as it is stored
  /// A run that may use tiles of bf16 (AMX) does; all others do as without. With
  /// hasNarrowRows, panels of 32 columns and a depth of 32: see useTiles.
  bool hasTiles = false;
  /// Of more rows than a micro-tile has, blocks share a panel that is written out as f32 for them: see sharePanels.
  bool sharesPanels = false;
  /// F16: a run that may use tiles of bf16 (AMX) does for kFewestTileRows rows or more. A number of f32 is the sum of
  /// kRowParts of bf16, one of f16 of two: such sums are as near as those of f32, in another order. Panels are shared.
  bool hasHalfTiles = false;

  static constexpr int64_t kRowParts = 3, kFewestTileRows = 16;
  static constexpr int64_t kPartedRows = 32; ///< of a block of parts

  /// A is never stored: A[m,k] is source[rowsAt[m] + depthAt[k]], as the windows of a convolution overlap.
  bool gathersRows = false;

  /// A further operand holds the panels of the product that runs next: with its
  /// last panel, each thread asks for the first one that it will need there.
  bool prefetchesNext = false;

  /// Whether the target may have tiles of bf16.
  static bool mayHaveTiles(TargetAttr target);
  /// The best tile of the target's instruction set.
  static GemmSpec forTarget(TargetAttr target, int64_t m, int64_t k, int64_t n);

  /// Takes panels of 64 columns (AVX-512) where 48 would leave 2 % of them empty:
  /// N = 512 or 1024, or where only they end with each of `parts`: the columns of
  /// matrices side by side. Not for panels that are widened in registers, as too few
  /// are left.
  void fitColumns(TargetAttr target, llvm::ArrayRef<int64_t> parts = {});

  /// Lets rows share panels of f16, or of bf16 by rows of f32, where there may be more than a micro-tile has; once all
  /// else is known.
  void sharePanels();

  /// Whether hasHalfTiles may be for the target.
  bool mayHaveHalfTiles(TargetAttr target) const;
  /// With hasHalfTiles: of A in parts.
  llvm::SmallVector<int64_t> rowPartShape() const;

  /// Sets hasTiles and what goes with it, once all else is known.
  void useTiles(TargetAttr target);

  /// Panels of one B, or kDynamic.
  int64_t numPanels() const { return mlir::ShapedType::isDynamic(n) ? n : (n + panelWidth() - 1) / panelWidth(); }
  /// Rows of B in a row of its panels: 2 where they are interleaved.
  int64_t rowsPerStep() const { return storage == PanelStorage::BF16 ? 2 : 1; }
  /// Of B's panels, and of their scales (I8).
  llvm::SmallVector<int64_t> panelShape() const;
  llvm::SmallVector<int64_t> scaleShape() const;

  /// The kernel's name and cache key: equal names, identical code.
  std::string symbol() const;

private:
  void fitCaches(TargetAttr target);
};

/// Whether buildGemm can emit `spec`; otherwise `reason`, if given, says why not.
bool canBuildGemm(const GemmSpec &spec, std::string *reason = nullptr);

/// Emits the kernel `spec.symbol()` at the builder's insertion point. Arguments:
///
///   A         memref<MxKxf32>, or bf16 with hasNarrowRows: the first of its parts; with gathersRows rowsAt,
///             memref<Mxi64>
///   B         memref<PxKxWxf32>, P = ceil(N / W) panels, zeros beyond N; those of
///             a batch one after the other; of f16, or as #attn.narrow_panels
///   scales    I8 only: memref<PxGxWxf32>, as #attn.panel_scales
///   parts     the other parts of A, memref<MxKxbf16> each
///   gathered  with gathersRows: depthAt, memref<Kxi64>, and source, memref<?xf32>
///   operands  see EpilogueOperand, in the order of spec.operands
///   next      with prefetchesNext: memref<?x?x?xf32>, panels of the next product
///             in this one's type; none of it is read
///   rows      with hasHalfTiles, written: memref<RxSxbf16>, see rowPartShape
///   C         memref<MxNxf32>, or bf16 with hasNarrowResult; written once, never read
///
/// A Full operand may be C's buffer if both are f32. One scf.parallel runs over all micro-tiles,
/// those of one panel and chunk one after the other; each prefetches its part of
/// the next panel. With sharesPanels one before it runs over panels and the blocks of rows that share them; with
/// hasHalfTiles two before that, over rows and over panels and 128 rows. Emits a
/// diagnostic at `loc` where canBuildGemm is false.
mlir::func::FuncOp buildGemm(mlir::OpBuilder &builder, mlir::Location loc, const GemmSpec &spec);

} // namespace attn

#endif // PASSES_KERNELS_CPU_GEMM_H
