#ifndef PASSES_LOWERING_CHOOSE_ROWSINBYTES_H
#define PASSES_LOWERING_CHOOSE_ROWSINBYTES_H

#include "dialects/attn/AttnOps.h"

namespace attn {

/// The operands of `op`, keys and values that are attn.widen_rows as the bytes that these read.
llvm::SmallVector<mlir::Value> getOperandsInBytes(AttentionOp op);

/// Sizes of those of `values` that are attn.widen_rows are asked of the bytes, so that nothing keeps what they stand
/// for.
void readSizesOfBytes(mlir::ValueRange values);

} // namespace attn

#endif // PASSES_LOWERING_CHOOSE_ROWSINBYTES_H
