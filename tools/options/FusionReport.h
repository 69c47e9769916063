#ifndef TOOLS_OPTIONS_FUSIONREPORT_H
#define TOOLS_OPTIONS_FUSIONREPORT_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include <cstdint>
#include <optional>
#include <string>

namespace attn::tools {

/// What --verify-fusion found: whether the results are the same, on how many sets of inputs.
struct Verification {
  bool same;
  unsigned runs;
};

/// What each --fusion-report=`paths` and --require-fused=`required` ask
/// of the verdicts on the softmaxes of `model`, a JSON array as a compile reports
/// and a library keeps it. On "-" it is a table: a line a softmax and, below it,
/// what was assumed, copied, or why not; then a line for each of `products`, of
/// quantised operands, a JSON array likewise. In a file that ends in .html it is a page, with what `verified` says.
/// An exit code, told if not 0:
/// ExitUsage where the file cannot be written, ExitUnsupported where too few are
/// fused.
int reportFusion(llvm::StringRef model, llvm::StringRef verdicts, llvm::StringRef products,
                 llvm::ArrayRef<std::string> paths, uint64_t required,
                 std::optional<Verification> verified = std::nullopt);

} // namespace attn::tools

#endif // TOOLS_OPTIONS_FUSIONREPORT_H
