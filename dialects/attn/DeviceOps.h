#ifndef DIALECTS_ATTN_DEVICEOPS_H
#define DIALECTS_ATTN_DEVICEOPS_H

#include "dialects/attn/AttnOps.h"

#define GET_OP_CLASSES
#include "dialects/attn/DeviceOps.h.inc"

namespace attn {
/// On a launch and its kernel: its blocks wait for each other, so all of them are to run at once.
inline constexpr llvm::StringLiteral kCooperativeAttr = "attn.cooperative";
/// On a launch: what it computes ("gemm"), for the name of its kernel in PTX, profilers and messages.
inline constexpr llvm::StringLiteral kKernelNameAttr = "attn.kernel_name";
/// On a launch and its kernel: threads have so many registers that this number of blocks fits. Without it ptxas may
/// spill for the sake of more blocks.
inline constexpr llvm::StringLiteral kResidentBlocksAttr = "attn.resident_blocks";
/// On a func.func {attn.kernel} and its calls in an entry with GPU code: runs on the CPU, on buffers of the host. Holds
/// what it stands for: "node 'order' (Sort)".
inline constexpr llvm::StringLiteral kOnHostAttr = "attn.on_host";
} // namespace attn

#endif // DIALECTS_ATTN_DEVICEOPS_H
