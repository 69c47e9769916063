// The command line that attnc, attn-run, attn-bench and attn-reduce share: parsing, help and
// checked values. The options themselves are in Options.td.
#ifndef TOOLS_OPTIONS_OPTIONS_H
#define TOOLS_OPTIONS_OPTIONS_H

#include "tools/options/Console.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/Option/ArgList.h"
#include "llvm/Option/OptTable.h"
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace attn::tools {

/// Which tools have an option, as a mask.
enum OptionVisibility : unsigned { AttncVis = 1u << 4, RunVis = 1u << 5, BenchVis = 1u << 6, ReduceVis = 1u << 7 };

/// The flag of options that may be given again, beside llvm::opt::DriverFlag.
enum OptionFlag : unsigned { Repeatable = 1u << 4 };

enum OptionId : unsigned {
  OPT_INVALID = 0,
#define OPTION(...) LLVM_MAKE_OPT_ID(__VA_ARGS__),
#include "tools/options/Options.inc"
#undef OPTION
};

/// What a tool says about itself in --help.
struct ToolInfo {
  const char *name;
  OptionVisibility visibility;
  const char *usage;     ///< what follows "usage: "
  const char *overview;  ///< a paragraph
  const char *examples;  ///< indented lines
  const char *exitCodes; ///< indented lines
};

/// What --dim says of a dimension: NAME:N, or NAME:LOWER..UPPER.
struct DimRange {
  int64_t lower, upper;
};

/// A parsed command line. Its getters check a value and, if it is wrong, report
/// it and remember that; `failed()` is asked once all are read.
class CommandLine {
public:
  /// Parses, reports unknown options with the nearest known one and those that
  /// lack their value, and serves --help and --version. Returns nullopt when nothing is left to do;
  /// `exitCode` is then the tool's.
  static std::optional<CommandLine> parse(const ToolInfo &tool, int argc, char **argv, int &exitCode);

  bool has(OptionId id) const { return args.hasArg(id); }
  std::vector<llvm::StringRef> positional() const;
  std::vector<llvm::StringRef> all(OptionId id) const;
  /// The files that an option names, each once.
  std::vector<std::string> files(OptionId id) const;
  llvm::StringRef text(OptionId id, llvm::StringRef fallback = "") const;
  /// A whole number in [lower, upper].
  uint64_t number(OptionId id, uint64_t fallback, uint64_t lower = 0, uint64_t upper = INT64_MAX);
  /// A number >= 0.
  double real(OptionId id, double fallback);
  /// Bytes: "512M", "4G", "1048576".
  uint64_t bytes(OptionId id, uint64_t fallback);
  /// Every "NAME:REST" of an option; NAME may hold colons itself.
  std::vector<std::pair<std::string, std::string>> named(OptionId id);
  /// Every --dim, by name: its bounds, equal for one size.
  std::vector<std::pair<std::string, DimRange>> dims();
  /// Every --shape, as input and sizes, -1 for one left open ("?").
  std::vector<std::pair<std::string, std::vector<int64_t>>> shapes();

  /// The options of the groups that shape a compile, as attnc takes them;
  /// without reports, those alone that change what is computed.
  std::vector<std::string> compileArguments(bool withReports = true) const;

  /// All options and inputs but those.
  std::vector<std::string> argumentsBesides(llvm::ArrayRef<OptionId> left) const;

  /// Reports a usage error.
  void fail(const llvm::Twine &message);
  /// Reports that a file or folder does not serve, about which --help says nothing.
  void reject(const llvm::Twine &message, ExitCode code = ExitUsage);
  bool hasRejectedFile() const { return hasRejected; }
  /// Whether there was one; the first time, points to --help behind them all.
  bool failed();
  /// What to end with where there was one.
  ExitCode failure() const { return code; }
  const ToolInfo &tool() const { return *info; }

private:
  CommandLine(const ToolInfo &tool, llvm::opt::InputArgList args) : info(&tool), args(std::move(args)) {}
  void checkUnknown();
  void failWithoutValue(llvm::opt::Option option, const llvm::Twine &more = "");
  void checkValues();

  const ToolInfo *info;
  llvm::opt::InputArgList args;
  bool wrong = false, noted = false, hasRejected = false;
  ExitCode code = ExitSuccess;
};

/// Reads "2x128" or "?x8" (-1); "" is rank 0.
std::optional<std::vector<int64_t>> parseShape(llvm::StringRef text);

} // namespace attn::tools

#endif // TOOLS_OPTIONS_OPTIONS_H
