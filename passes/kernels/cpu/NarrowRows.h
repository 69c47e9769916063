#ifndef PASSES_KERNELS_CPU_NARROWROWS_H
#define PASSES_KERNELS_CPU_NARROWROWS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "passes/kernels/spec/Rows.h"

namespace attn {

/// Whether there is such a kernel of the rows, which has no codes of e4m3; if not, `reason` says why.
bool canBuildCpuNarrowRows(const NarrowRowsSpec &spec, std::string *reason = nullptr);

/// Emits the kernel `spec.symbol()` with the arguments (rows, bytes): the
/// greatest magnitude of a row, then its codes and its scale, as
/// attn.narrow_rows says. One scf.parallel over the rows.
mlir::func::FuncOp buildNarrowRows(mlir::OpBuilder &builder, mlir::Location loc, const NarrowRowsSpec &spec);

} // namespace attn

#endif // PASSES_KERNELS_CPU_NARROWROWS_H
