// What a command line of attnc asks for.
#ifndef TOOLS_ATTNC_REQUEST_H
#define TOOLS_ATTNC_REQUEST_H

#include "tools/attnc/CompileJob.h"
#include "tools/options/Options.h"

namespace attn::tools {

struct Request {
  CompileJob job;
  std::string output;                 ///< "-": standard output
  std::string reproducer;             ///< where it goes if one is written
  std::vector<std::string> arguments; ///< of the command line, but for what changes no result
  WorkerLimits limits;
  std::vector<std::string> fusionReports;
  std::string header;
  unsigned requireFused = 0;
  bool verifyFusion = false;
  std::string calibration; ///< an .npz file of inputs ("": none)
  bool json = false;
  bool progress = false;
};

/// The request of `line`, whose `failed` says whether it makes sense; what is wrong is reported.
Request readRequest(CommandLine &line);

} // namespace attn::tools

#endif // TOOLS_ATTNC_REQUEST_H
