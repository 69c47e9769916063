#ifndef DIALECTS_ATTN_DEVICEOPS_H
#define DIALECTS_ATTN_DEVICEOPS_H

#include "dialects/attn/AttnOps.h"

#define GET_OP_CLASSES
#include "dialects/attn/DeviceOps.h.inc"

namespace attn {
/// On a launch and its kernel: its blocks wait for each other, so all of them are to run at once.
inline constexpr llvm::StringLiteral kCooperativeAttr = "attn.cooperative";
} // namespace attn

#endif // DIALECTS_ATTN_DEVICEOPS_H
