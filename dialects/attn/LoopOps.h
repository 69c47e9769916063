#ifndef DIALECTS_ATTN_LOOPOPS_H
#define DIALECTS_ATTN_LOOPOPS_H

#include "dialects/attn/AttnOps.h"

#define GET_OP_CLASSES
#include "dialects/attn/LoopOps.h.inc"

namespace attn {
/// On an attn.workspace: what an earlier execution of the same op got is given
/// again where it is large enough, so that a loop does not ask in each iteration.
inline constexpr llvm::StringLiteral kReusedAttr = "attn.reused";
} // namespace attn

#endif // DIALECTS_ATTN_LOOPOPS_H
