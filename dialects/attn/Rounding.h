#ifndef DIALECTS_ATTN_ROUNDING_H
#define DIALECTS_ATTN_ROUNDING_H

#include "llvm/ADT/StringRef.h"

namespace attn {

/// On an elementwise op that converts to f16 or bf16 because the graph says so (Cast): what it gives is rounded, also
/// where the arithmetic of such types is done in f32.
constexpr llvm::StringLiteral kRoundsAttr = "attn.rounds";

} // namespace attn

#endif // DIALECTS_ATTN_ROUNDING_H
