// Bounds of an entry's named dimensions, as attributes of its function.
#ifndef DIALECTS_ATTN_DIMBOUNDS_H
#define DIALECTS_ATTN_DIMBOUNDS_H

#include "llvm/ADT/StringRef.h"

namespace attn {

/// On an entry: for each bounded dimension, by the name that
/// AttnDialect::kDimsAttr gives it, an array of its least and its greatest size
/// (dictionary of array<i64>). An attn.require in the entry makes sure of them.
inline constexpr llvm::StringLiteral kDimBoundsAttr = "attn.dim_bounds";

/// On the attn.require that makes sure of a dimension's bounds: its name. Who calls an entry with more than its
/// own caller gave (a beam, with `width` rows an item) asks for the bounds of what it was given instead.
inline constexpr llvm::StringLiteral kBoundOfAttr = "attn.bound_of";

/// On an entry on buffers: the bytes of workspace that a run asks for at most
/// (i64), where the bounds of its dimensions tell.
inline constexpr llvm::StringLiteral kMaxWorkspaceAttr = "attn.max_workspace";

} // namespace attn

#endif // DIALECTS_ATTN_DIMBOUNDS_H
