#ifndef DIALECTS_ATTN_BROADCASTFORM_H
#define DIALECTS_ATTN_BROADCASTFORM_H

#include "llvm/ADT/StringRef.h"

// Two sizes that a model names differently are one, or one of them is 1 and what
// has it is repeated. An entry is compiled for the first; a form of it, which
// looks at the sizes in each run, serves the second.

namespace attn {

/// On such a form: the entry, by its symbol. A library lists the entry alone.
inline constexpr llvm::StringLiteral kBroadcastFormAttr = "attn.broadcast_form";

/// On an `attn.require`: the form, by its symbol, that does the run where the
/// requirement does not hold. What is asked depends on sizes of inputs alone, so
/// that the run has not begun.
inline constexpr llvm::StringLiteral kOtherwiseAttr = "attn.otherwise";

} // namespace attn

#endif // DIALECTS_ATTN_BROADCASTFORM_H
