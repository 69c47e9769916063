// The work of the worker process: a model in, an output file and a report out.
#ifndef TOOLS_ATTNC_COMPILEJOB_H
#define TOOLS_ATTNC_COMPILEJOB_H

#include "compiler/Compiler.h"
#include "frontends/onnx/ImportOnnx.h"
#include "tools/attnc/Worker.h"
#include <string>

namespace attn::tools {

struct CompileJob {
  std::string input; ///< an ONNX model, or textual IR if it ends in .mlir
  onnx::ImportOptions import;
  CompileOptions compile;
  std::string output; ///< a path or "-"
};

/// Imports and compiles; diagnostics go to standard error, the report to
/// `channel` as JSON: elf_bytes, weight_bytes, fused, softmaxes, fusion.
/// Returns the exit code.
int runCompileJob(const CompileJob &job, WorkerChannel &channel);

} // namespace attn::tools

#endif // TOOLS_ATTNC_COMPILEJOB_H
