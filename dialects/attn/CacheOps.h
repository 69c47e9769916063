#ifndef DIALECTS_ATTN_CACHEOPS_H
#define DIALECTS_ATTN_CACHEOPS_H

#include "dialects/attn/AttnOps.h"

#define GET_OP_CLASSES
#include "dialects/attn/CacheOps.h.inc"

namespace attn {
/// On an entry: what it keeps from run to run, an array of [input, output] and,
/// once its buffers are made, the dimension in which the run appends to the
/// input's memory, or -1 where the output has a buffer of its own.
inline constexpr llvm::StringLiteral kStatesAttr = "attn.states";

/// On an entry with states: why the run makes a new tensor of each and appends to
/// none of its memory, an array of texts; "" for a state that is appended to.
inline constexpr llvm::StringLiteral kStateReasonsAttr = "attn.state_reasons";

/// The layout of a view of the front rows, along `dim`, of a dense tensor.
mlir::MemRefType getFrontType(mlir::RankedTensorType type, int64_t dim);
} // namespace attn

#endif // DIALECTS_ATTN_CACHEOPS_H
