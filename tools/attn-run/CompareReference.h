// --compare=f32: how far a model in fewer bits is from the one in f32.
#ifndef TOOLS_ATTN_RUN_COMPAREREFERENCE_H
#define TOOLS_ATTN_RUN_COMPAREREFERENCE_H

#include "tools/attn-run/runner/Model.h"
#include "llvm/ADT/StringRef.h"

namespace llvm {
class raw_ostream;
} // namespace llvm

namespace attn::tools {

/// The distance of an output from a reference of the same shape.
struct Distance {
  bool sameShape = true;
  uint64_t elements = 0;
  uint64_t notFinite = 0;                          ///< in one of the two alone
  double maxError = 0, maxValue = 0, relative = 0; ///< root mean square error over root mean square
};

Distance measureDistance(const runner::Tensor &output, const runner::Tensor &reference);

/// A line for each output, or with `json` one array. Caches in bytes are compared by the numbers that they stand for.
void describeDistances(llvm::raw_ostream &os, const attnrt_entry_info &entry,
                       const std::vector<runner::Tensor> &outputs, const std::vector<runner::Tensor> &references,
                       bool json);

} // namespace attn::tools

#endif // TOOLS_ATTN_RUN_COMPAREREFERENCE_H
