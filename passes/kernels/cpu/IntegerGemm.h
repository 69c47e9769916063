#ifndef PASSES_KERNELS_CPU_INTEGERGEMM_H
#define PASSES_KERNELS_CPU_INTEGERGEMM_H

#include "passes/kernels/cpu/ByteDot.h"
#include "passes/kernels/cpu/Gemm.h"
#include "passes/kernels/spec/IntegerProduct.h"
#include "passes/kernels/spec/StepOrder.h"

namespace attn {

/// The product by packed panels in registers.
struct IntegerGemmSpec : IntegerProductSpec, PanelCut {
  ByteDot dot = ByteDot::Single;
  /// A run that may use tiles of bytes (AMX) does for kFewestTileRows rows or more (of a matrix); all others do as
  /// without. Quads, panels of 32 columns.
  bool hasTiles = false;

  /// Of 8 rows tiles and vpdpbusd make as many sums, of 12 tiles 1.5 times as many, of 4 vpdpbusd 1.3 times (768 x 768
  /// from the second-level cache, Emerald Rapids; weights from memory come as fast for both).
  static constexpr int64_t kFewestTileRows = 8;

  /// Whether the target may have tiles of bytes.
  static bool mayHaveTiles(TargetAttr target);
  /// The best tile of the target's instruction set; feature bits alone decide.
  static IntegerGemmSpec forTarget(TargetAttr target, int64_t m, int64_t k, int64_t n);

  /// Rows of B that a lane takes in at once, the `group` of #attn.byte_panels.
  int64_t group() const { return dot == ByteDot::Single ? 1 : 4; }
  /// Whether the kernel is told which steps of a panel have products whose sums fit 16 bits.
  bool ordersSteps() const { return dot == ByteDot::Pairs; }
  /// Of one matrix, where n is fixed.
  int64_t numPanels() const { return (n + panelWidth() - 1) / panelWidth(); }
  llvm::SmallVector<int64_t> panelShape() const {
    int64_t steps = mlir::ShapedType::isDynamic(k) ? k : (k + group() - 1) / group();
    return {isBatched ? mlir::ShapedType::kDynamic : numPanels(), steps, panelWidth() * group()};
  }
  StepOrder stepOrder() const { return {k, group()}; }
  llvm::SmallVector<int64_t> sumShape() const { return {panelShape().front(), panelWidth()}; }

  /// The kernel's name and cache key: equal names, identical code.
  std::string symbol() const;
};

/// Whether buildIntegerGemm can emit `spec`; otherwise `reason`, if given, says why not.
bool canBuildIntegerGemm(const IntegerGemmSpec &spec, std::string *reason = nullptr);

/// Emits the kernel `spec.symbol()` at the builder's insertion point. Arguments:
///
///   A         memref<MxKxi8>
///   rows      with hasTiles: A as buildPackRows leaves it; with a zero point of B the sums of its rows, too
///   B         panels as #attn.byte_panels, of all matrices where it is batched
///   sums      memref<PxWxi32>, as #attn.column_sums
///   order     with ordersSteps: memref<PxSx(i16 or i32)>, as #attn.step_order
///   za        with hasRowZero: memref<i8>
///   zb        memref<i8>, or memref<Nxi8> by column
///   operands  see EpilogueOperand, in the order of spec.operands
///   C         memref<MxN>, written once, never read
///
/// One scf.parallel runs over all micro-tiles, those of one panel and chunk one after the other. Emits a diagnostic at
/// `loc` where canBuildIntegerGemm is false.
mlir::func::FuncOp buildIntegerGemm(mlir::OpBuilder &builder, mlir::Location loc, const IntegerGemmSpec &spec);

} // namespace attn

#endif // PASSES_KERNELS_CPU_INTEGERGEMM_H
