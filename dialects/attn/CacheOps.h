#ifndef DIALECTS_ATTN_CACHEOPS_H
#define DIALECTS_ATTN_CACHEOPS_H

#include "dialects/attn/AttnOps.h"

#define GET_OP_CLASSES
#include "dialects/attn/CacheOps.h.inc"

namespace attn {
/// On an entry: what it keeps from run to run, an array of [input, output] and,
/// once its buffers are made, the dimension in which the run appends to the
/// input's memory, kOwnBuffer or kWrittenOver.
inline constexpr llvm::StringLiteral kStatesAttr = "attn.states";

/// In place of a state's dimension: the output has a buffer of its own; it is
/// the input's memory, of which the run changes a part.
inline constexpr int64_t kOwnBuffer = -1, kWrittenOver = -2;

/// On an entry with states: why the run makes a new tensor of each and writes to
/// none of its memory, an array of texts; "" for a state that is kept in place.
inline constexpr llvm::StringLiteral kStateReasonsAttr = "attn.state_reasons";

/// On a module: what attn-narrow-caches made of each cache, an array of dictionaries.
inline constexpr llvm::StringLiteral kCacheReportAttr = "attn.cache_report";

/// Behind the codes of a row of attn.narrow_rows: an f32.
inline constexpr int64_t kScaleBytes = 4;

/// The code of a row's greatest magnitude, and the least that is not taken for 0.
inline constexpr double kGreatestCode = 127, kLeastOfRow = 0x1p-100;

/// Whether attn.narrow_rows may give elements of this type: i8 or f8E4M3FN.
inline bool isByteOfRow(mlir::Type element) {
  return element.isInteger(8) || mlir::isa<mlir::Float8E4M3FNType>(element);
}

/// What attn.narrow_rows makes of `rows`.
mlir::RankedTensorType getNarrowType(mlir::RankedTensorType rows, mlir::Type element);

/// The layout of a view of the front rows, along `dim`, of a dense tensor.
mlir::MemRefType getFrontType(mlir::RankedTensorType type, int64_t dim);
} // namespace attn

#endif // DIALECTS_ATTN_CACHEOPS_H
