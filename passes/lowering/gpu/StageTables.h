#ifndef PASSES_LOWERING_GPU_STAGETABLES_H
#define PASSES_LOWERING_GPU_STAGETABLES_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace attn {

/// Tables of constants (memref.get_global) are in the host's memory; a kernel
/// that names one has its own copy. One that an entry passes on, sliced at a
/// place that only the run knows, or around a loop, is copied to the device:
/// the entry gets workspace for it and a linalg.copy.
void stageTables(mlir::func::FuncOp entry);

} // namespace attn

#endif // PASSES_LOWERING_GPU_STAGETABLES_H
