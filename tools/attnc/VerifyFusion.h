// attnc --verify-fusion: is the library the graph it came from?
#ifndef TOOLS_ATTNC_VERIFYFUSION_H
#define TOOLS_ATTNC_VERIFYFUSION_H

#include "tools/attnc/CompileJob.h"
#include "tools/attnc/FusionCases.h"
#include "tools/attnc/Worker.h"

#include "llvm/ADT/ArrayRef.h"
#include <string>

namespace attn::tools {

/// Compiles `job` in its unfused form into a folder of its own, runs it and
/// `library` (what `job` compiled to with `passes` of fusion) on
/// adversarial inputs, and reports each difference and the pass that made it.
/// Every run is in a worker. `runs` are those compared. Returns the exit
/// code: ExitDifferent for a difference, ExitUnsupported where an entry has no run to compare.
int verifyFusion(const CompileJob &job, const WorkerLimits &limits, const std::string &library,
                 llvm::ArrayRef<std::string> passes, const FusionAssumptions &assumptions, unsigned &runs);

} // namespace attn::tools

#endif // TOOLS_ATTNC_VERIFYFUSION_H
