#ifndef PASSES_KERNELS_GPU_RECURRENT_H
#define PASSES_KERNELS_GPU_RECURRENT_H

#include "passes/kernels/spec/Recurrent.h"

namespace attn {

/// Shapes of what a recurrent kernel keeps on the device: the states as
/// planes x D x B x units (padded), f32, and a counter (i64) for each of D x B.
llvm::SmallVector<int64_t> gpuRecurrentStates(const RecurrentSpec &spec);
llvm::SmallVector<int64_t> gpuRecurrentCounters(const RecurrentSpec &spec);

/// Emits the kernel `symbol`: all steps in one launch, behind one that sets the
/// states up. Arguments (S steps, B items, D directions, G gates, H units; S and
/// B swapped where batchFirst), f32 but for lengths:
///
///   projected   memref<SxBxDxG*H>: input * weight^T with all biases but the reset bias
///   recurrence  memref<DxG*HxH>
///   reset bias, peephole, lengths, initial_h, initial_c   as buildRecurrent has them
///   sequence, last_h, last_c (LSTM), states, counters: outs
///
/// Units are split over blocks, items as well where blocks are left. Each block
/// keeps the weights of its units in shared memory, if there is room for them;
/// else, and for a single step, it reads them anew. Blocks with the same items
/// wait for each other in each step, twice in a GRU that resets before its product.
mlir::func::FuncOp buildGpuRecurrent(mlir::OpBuilder &builder, mlir::Location loc, llvm::StringRef symbol,
                                     const RecurrentSpec &spec);

} // namespace attn

#endif // PASSES_KERNELS_GPU_RECURRENT_H
