#ifndef PASSES_LOWERING_GPU_HOSTOPS_H
#define PASSES_LOWERING_GPU_HOSTOPS_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include <string>

namespace attn {

/// Whether a GPU has no code for a scalar op: some functions of f64.
bool lacksGpuCode(mlir::Operation *op);

/// Why a linalg op on buffers has no kernel on a GPU; "": it has one.
std::string whyNoGpuKernel(mlir::linalg::LinalgOp op);

} // namespace attn

#endif // PASSES_LOWERING_GPU_HOSTOPS_H
