// attnc --calibrate: what fewer bits cost a model on inputs that someone chose.
#ifndef TOOLS_ATTNC_CALIBRATE_H
#define TOOLS_ATTNC_CALIBRATE_H

#include "tools/attnc/Request.h"

namespace attn::tools {

/// Compiles what `request` names in f32, into a folder of its own, and runs that and `library` on the inputs in
/// `request.calibration`, each in a worker. `text` gets a line for each output, or with `request.json` an array.
/// Returns the exit code; what went wrong is reported.
int calibrate(const Request &request, const std::string &library, std::string &text);

} // namespace attn::tools

#endif // TOOLS_ATTNC_CALIBRATE_H
