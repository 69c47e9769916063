#ifndef PASSES_KERNELS_SPEC_KERNELATTRS_H
#define PASSES_KERNELS_SPEC_KERNELATTRS_H

#include "llvm/ADT/StringRef.h"

namespace attn {

/// On a kernel: its loops run over whole rows, which may be long, and look whether the run is to end
/// (`attn-poll-loops`).
inline constexpr llvm::StringLiteral kPollsAttr = "attn.polls";

} // namespace attn

#endif // PASSES_KERNELS_SPEC_KERNELATTRS_H
