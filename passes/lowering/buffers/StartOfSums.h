#ifndef PASSES_LOWERING_BUFFERS_STARTOFSUMS_H
#define PASSES_LOWERING_BUFFERS_STARTOFSUMS_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace attn {

/// The scalar that a fill right before `op`, a reduction on buffers, writes to output `number`, or null. The fill is
/// erased: the reduction is to start from that scalar instead of what stands in the output.
mlir::Value takeFill(mlir::linalg::LinalgOp op, int64_t number);

} // namespace attn

#endif // PASSES_LOWERING_BUFFERS_STARTOFSUMS_H
