// The work of the worker process: a model in, an output file and a report out.
#ifndef TOOLS_ATTNC_COMPILEJOB_H
#define TOOLS_ATTNC_COMPILEJOB_H

#include "compiler/Compiler.h"
#include "frontends/onnx/ImportOnnx.h"
#include "frontends/search/BuildSearch.h"
#include "tools/attnc/HubFolder.h"
#include "tools/attnc/Worker.h"
#include <optional>
#include <string>

namespace attn::tools {

struct CompileJob {
  std::string input; ///< an ONNX model, a graph if it ends in .json, textual IR if in .mlir
  onnx::ImportOptions import;
  /// Several models as entries of one library, by name; the first is `input`.
  std::vector<std::pair<std::string, std::string>> entries;
  /// A folder whose models are the parts of a generation; `input` is the folder.
  std::optional<HubFolder> folder;
  /// One more entry, which searches.
  std::optional<SearchOptions> search;
  /// The library keeps what runs hand on: `states`, or what names say.
  bool ownState = false;
  std::vector<StatePair> states;
  CompileOptions compile;
  std::string output; ///< a path or "-"
  /// Where a library that computes constants may be meanwhile, in a folder that goes with the driver ("": no products
  /// of constants are computed).
  std::string constants;
  std::string profile;   ///< where the timeline of the compile goes ("": nowhere)
  std::string annotated; ///< where the model goes with what became of its nodes ("": nowhere)
};

/// The stage in which a model is read; compileModule names the later ones.
inline constexpr char kImportStage[] = "importing";

/// Imports and compiles; diagnostics go to standard error, the report to
/// `channel` as JSON: elf_bytes, weight_bytes, fused, softmaxes,
/// fusion_passes, nan_guards, fusion, narrowed, narrowing_error, states, caches.
/// Returns the exit code.
int runCompileJob(const CompileJob &job, WorkerChannel &channel);

/// Imports once more, in silence, and writes the reproducer of a compile that
/// died. Returns the exit code.
int writeJobReproducer(const CompileJob &job);

} // namespace attn::tools

#endif // TOOLS_ATTNC_COMPILEJOB_H
