#ifndef PASSES_KERNELS_CPU_PACKBYTES_H
#define PASSES_KERNELS_CPU_PACKBYTES_H

#include "dialects/attn/AttnOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include <string>

namespace attn {

/// Matrices of bytes that the run computes, as #attn.byte_panels one after the other, with the sums of their columns:
/// the right-hand sides of a batched buildIntegerGemm.
struct PackBytesSpec {
  int64_t k = mlir::ShapedType::kDynamic;
  int64_t n = mlir::ShapedType::kDynamic;
  bool isTransposed = false; ///< a matrix is N x K
  bool isUnsigned = false;   ///< its elements are 0 to 255, and 128 less is stored
  int64_t width = 8;         ///< columns of a panel
  int64_t group = 1;         ///< rows in a lane: 1 or 4
  int64_t lanes = 4;         ///< i32 lanes of a vector; divides width
  bool ordersSteps = false;  ///< says which steps are narrow; a group is even then

  std::string symbol() const;
};

/// Emits the kernel `spec.symbol()` at the builder's insertion point. Arguments:
///
///   B     memref<?xKxNxi8>, transposed memref<?xNxKxi8>
///   P     memref<?xSxWxi8>: ceil(N / width) panels for each matrix, S = ceil(K / group), W = width * group
///   sums  memref<?xwidthxi32>
///   order with ordersSteps: memref<?x?x(i16 or i32)>, as #attn.step_order
///
/// One scf.parallel runs over all panels.
mlir::func::FuncOp buildPackBytes(mlir::OpBuilder &builder, mlir::Location loc, const PackBytesSpec &spec);

} // namespace attn

#endif // PASSES_KERNELS_CPU_PACKBYTES_H
