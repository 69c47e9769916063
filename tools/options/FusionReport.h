#ifndef TOOLS_OPTIONS_FUSIONREPORT_H
#define TOOLS_OPTIONS_FUSIONREPORT_H

#include "llvm/ADT/StringRef.h"
#include <cstdint>

namespace attn::tools {

/// What --fusion-report=`path` ("": nothing) and --require-fused=`required` ask
/// of the verdicts on the softmaxes of `model`, a JSON array as a compile reports
/// and a library keeps it. On "-" it is a table: a line a softmax and, below it,
/// what was assumed, copied, or why not; then a line for each of `products`, of
/// quantised operands, a JSON array likewise. An exit code, told if not 0:
/// ExitUsage where the file cannot be written, ExitUnsupported where too few are
/// fused.
int reportFusion(llvm::StringRef model, llvm::StringRef verdicts, llvm::StringRef products, llvm::StringRef path,
                 uint64_t required);

} // namespace attn::tools

#endif // TOOLS_OPTIONS_FUSIONREPORT_H
