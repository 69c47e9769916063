// What attn-run and attn-bench read from a command line in the same way.
#ifndef TOOLS_OPTIONS_RUNARGUMENTS_H
#define TOOLS_OPTIONS_RUNARGUMENTS_H

#include "tools/attn-run/runner/Inputs.h"
#include "tools/attn-run/runner/Model.h"
#include "tools/options/LibraryArgument.h"
#include "tools/options/Options.h"

namespace attn::tools {

/// --input, --dim, --shape and --seed.
runner::InputOptions inputOptions(CommandLine &line);

/// Takes open dimensions of an entry within the bounds that its library was compiled for.
void keepBounds(const attnrt_model_info &info, llvm::StringRef entry, runner::InputOptions &options);

/// False, with `failure`, if made-up inputs are so large that a run has too little memory beside them. Filling them
/// first would take minutes.
bool hasMemory(runner::Model &model, runner::InputOptions options, runner::Failure &failure);

/// After a run of made-up inputs that failed: looks for sizes with which runs of `model` end well, where dimensions
/// belong together under different names ("total" is "past" and "sequence"). True, and told, if there are such sizes,
/// which `options` then have.
bool relateSizes(runner::Model &model, const runner::Failure &failure, runner::InputOptions &options);

/// After a failure that was told: how to give what was made up for the run.
void reportMadeUp(const attnrt_entry_info &entry, const runner::InputOptions &options,
                  const std::vector<std::string> &madeUp, int exitCode);

/// Tells why an input could not be made; the exit code for it.
int reportFault(runner::Fault fault, llvm::StringRef error);

/// Tells why a call to the runtime failed; the exit code for it.
int reportFailure(llvm::StringRef model, const runner::Failure &failure);

/// An --output or --expected-output of one output of the entry.
struct OutputArgument {
  size_t index;
  std::string value; ///< "@file.npy", "-" to print it, or for --expected-output also a tensor in text
};

/// Reads all options `id`; false, and told, when one names no output of `entry`
/// or, with `files`, no file.
bool outputArguments(const CommandLine &line, OptionId id, const attnrt_entry_info &entry, bool files,
                     std::vector<OutputArgument> &arguments);

/// Writes or prints the outputs that --output asks for; false, and told, on failure.
bool writeOutputs(const std::vector<OutputArgument> &arguments, const attnrt_entry_info &entry,
                  const std::vector<runner::Tensor> &outputs);

/// --fusion-report and --require-fused of a library that was given; of a model
/// that was compiled first the compile has answered them. As reportFusion.
int reportGivenFusion(CommandLine &line, const LibraryArgument &library, const attnrt_model_info &info);

} // namespace attn::tools

#endif // TOOLS_OPTIONS_RUNARGUMENTS_H
