#ifndef PASSES_KERNELS_CPU_PACKPANELS_H
#define PASSES_KERNELS_CPU_PACKPANELS_H

#include "dialects/attn/AttnOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include <string>

namespace attn {

/// P[b*N/W + p, k, w] = B[b, k, p*W + w], zero beyond N, all f32: the right-hand
/// sides of a batched GEMM as the panels that buildGemm reads.
struct PackPanelsSpec {
  int64_t k = mlir::ShapedType::kDynamic;
  int64_t n = mlir::ShapedType::kDynamic;
  int64_t width = 8; ///< columns of a panel
  int64_t lanes = 4; ///< of a vector; divides width

  std::string symbol() const;
};

/// Emits the kernel `spec.symbol()` at the builder's insertion point. Arguments:
///
///   B  memref<?xKxNxf32>
///   P  memref<?xKxWxf32>, ceil(N / W) panels for each matrix of B
///
/// One scf.parallel runs over all panels.
mlir::func::FuncOp buildPackPanels(mlir::OpBuilder &builder, mlir::Location loc, const PackPanelsSpec &spec);

} // namespace attn

#endif // PASSES_KERNELS_CPU_PACKPANELS_H
