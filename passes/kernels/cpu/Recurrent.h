#ifndef PASSES_KERNELS_CPU_RECURRENT_H
#define PASSES_KERNELS_CPU_RECURRENT_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "passes/kernels/spec/Recurrent.h"

namespace attn {

/// Emits the kernel `spec.symbol()` at the builder's insertion point. Arguments
/// (S steps, B items, D directions, G gates, H units; S and B swapped where
/// batchFirst):
///
///   projected   memref<SxBxDxG*Hxf32>: input * weight^T with all biases but the reset bias
///   panels      memref<(D*P)xHxWxf32> for each sweep, zeros beyond H; narrow
///               ones as #attn.narrow_panels of each gate, side by side
///   scales      I8 only: memref<(D*P)xceil(H/group)xWxf32> for each sweep
///   reset bias  memref<DxHxf32>, if any
///   peephole    memref<Dx3*Hxf32>, if any
///   lengths     memref<Bxi32>, if any, in [0, S]
///   initial_h, initial_c   memref<DxBxHxf32> (BxDxH where batchFirst), if any
///   sequence, last_h, last_c (LSTM), scratch: outs; scratch is
///               memref<planes x D x B x paddedHidden x f32>
///
/// Items are independent: one scf.parallel runs over directions and groups of
/// items, each with all its steps. Where that is one task and the weights are
/// large, each step runs its panels in parallel instead.
mlir::func::FuncOp buildRecurrent(mlir::OpBuilder &builder, mlir::Location loc, const RecurrentSpec &spec);

} // namespace attn

#endif // PASSES_KERNELS_CPU_RECURRENT_H
