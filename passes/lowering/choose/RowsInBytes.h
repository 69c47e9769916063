#ifndef PASSES_LOWERING_CHOOSE_ROWSINBYTES_H
#define PASSES_LOWERING_CHOOSE_ROWSINBYTES_H

#include "dialects/attn/AttnOps.h"

namespace attn {

/// The operands of `op`, keys and values that are attn.widen_rows as the bytes that these read: of i8 or, where the
/// target's kernels read such, of f8E4M3FN.
llvm::SmallVector<mlir::Value> getOperandsInBytes(AttentionOp op, bool readsFloat8);

/// Sizes of those of `values` that are attn.widen_rows are asked of the bytes, so that nothing keeps what they stand
/// for.
void readSizesOfBytes(mlir::ValueRange values);

} // namespace attn

#endif // PASSES_LOWERING_CHOOSE_ROWSINBYTES_H
