#ifndef PASSES_KERNELS_SPEC_KERNELATTRS_H
#define PASSES_KERNELS_SPEC_KERNELATTRS_H

#include "llvm/ADT/StringRef.h"

namespace attn {

/// On a kernel: its loops run over whole rows, which may be long, and look whether the run is to end
/// (`attn-poll-loops`). On a loop of another kernel: it may be long, and is left where the run is to end.
inline constexpr llvm::StringLiteral kPollsAttr = "attn.polls";

/// On a kernel: two numbers, the bytes of scratch that its caller provides for a call and for each task that runs at a
/// time. On a memref.alloca of the kernel: the place in the former.
inline constexpr llvm::StringLiteral kScratchAttr = "attn.scratch";
/// On a memref.alloca of a task: its place in the task's scratch, and the bytes of that.
inline constexpr llvm::StringLiteral kTaskScratchAttr = "attn.task_scratch";

} // namespace attn

#endif // PASSES_KERNELS_SPEC_KERNELATTRS_H
