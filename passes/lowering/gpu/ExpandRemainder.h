#ifndef PASSES_LOWERING_GPU_EXPANDREMAINDER_H
#define PASSES_LOWERING_GPU_EXPANDREMAINDER_H

#include "mlir/Dialect/GPU/IR/GPUDialect.h"

namespace attn {

/// Writes out the `arith.remf` of a launch, which NVPTX has no code for: exactly,
/// by subtracting multiples of the divisor by powers of two.
void expandRemainders(mlir::gpu::LaunchOp launch);

} // namespace attn

#endif // PASSES_LOWERING_GPU_EXPANDREMAINDER_H
