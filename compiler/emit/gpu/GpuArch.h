#ifndef COMPILER_EMIT_GPU_GPUARCH_H
#define COMPILER_EMIT_GPU_GPUARCH_H

#include "llvm/ADT/StringRef.h"
#include <string>
#include <vector>

namespace attn {

/// An architecture that code is made for.
struct GpuArch {
  unsigned number = 80; ///< compute capability times ten
  bool exact = false;   ///< "sm_90a": what only this one has

  std::string name() const { return "sm_" + std::to_string(number) + (exact ? "a" : ""); }
};

/// Reads "sm_90a,sm_80": newest first in the result, each once. Empty, with
/// `error` set, for anything else.
std::vector<GpuArch> parseGpuArchs(llvm::StringRef text, std::string &error);

} // namespace attn

#endif // COMPILER_EMIT_GPU_GPUARCH_H
