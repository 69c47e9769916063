#ifndef PASSES_KERNELS_CPU_PACKROWS_H
#define PASSES_KERNELS_CPU_PACKROWS_H

#include "dialects/attn/AttnOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include <string>

namespace attn {

/// The left-hand side of a buildIntegerGemm with tiles (AMX): of each matrix blocks of 32 rows, of a block steps of 64
/// bytes, of a step two tiles of 16 rows. A tile is 1 KB in one piece, so that all its lines fall into different sets
/// of the caches. Rows at a stride of K share a few: with K = 768 loads of tiles are 1.3 times as slow.
struct PackRowsSpec {
  int64_t m = mlir::ShapedType::kDynamic; ///< rows of all matrices
  int64_t k = mlir::ShapedType::kDynamic;

  static constexpr int64_t kRows = 32, kDepth = 64;
  /// Of P below.
  llvm::SmallVector<int64_t> shape() const;
  std::string symbol() const;
};

/// Emits the kernel `spec.symbol()` at the builder's insertion point. Arguments:
///
///   A  memref<MxKxi8>, the rows of as many matrices as P has
///   P  memref<?xBxSx2048xi8>: B = ceil(rows of a matrix / 32), S = ceil(K / 64); zeros behind a row, what was there
///      behind the last one; nothing is written where the run has no tiles or a matrix few rows
///   S  memref<Mxi32>: the sum of each row of bytes from 0 to 255, as P
///
/// One scf.parallel runs over all rows.
mlir::func::FuncOp buildPackRows(mlir::OpBuilder &builder, mlir::Location loc, const PackRowsSpec &spec);

} // namespace attn

#endif // PASSES_KERNELS_CPU_PACKROWS_H
