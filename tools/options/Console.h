// What the tools say: messages on standard error in one form, coloured on a
// terminal unless NO_COLOR is set, and the exit codes they end with.
#ifndef TOOLS_OPTIONS_CONSOLE_H
#define TOOLS_OPTIONS_CONSOLE_H

#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/raw_ostream.h"
#include <string>

namespace attn::tools {

enum ExitCode : int {
  ExitSuccess = 0,
  ExitUsage = 1,       ///< the command line, or a file that cannot be read or written
  ExitUnsupported = 2, ///< a sound model that attnc cannot compile, or a machine that cannot run it
  ExitInvalid = 3,     ///< a model, library or tensor file that breaks a rule or a limit
  ExitInternal = 4,    ///< the fault is attnc's, or a limit of memory or time was reached
  ExitDifferent = 5    ///< an output is not what --expected-output or, unfused, the graph says
};

enum class Severity { Error, Warning, Note };

/// Prints "error: text" and a newline. Further lines of a text are indented.
void report(Severity severity, const llvm::Twine &text);
inline void reportError(const llvm::Twine &text) { report(Severity::Error, text); }
inline void reportWarning(const llvm::Twine &text) { report(Severity::Warning, text); }
inline void reportNote(const llvm::Twine &text) { report(Severity::Note, text); }

/// From here on finishOutput() prints the error that a tool ends with as a JSON
/// object (docs/reports.md), unless there was a result.
void tellErrorsAsJson();
/// Standard output for the JSON that --json promises: a result, or what another
/// tool said of its error.
llvm::raw_ostream &jsonResult();
/// What a worker process reports is part of its driver's error: the worker hands
/// it on as it prints it, and the driver notes it.
void handOnReports(void (*listener)(Severity, llvm::StringRef text));
void noteReport(Severity severity, llvm::StringRef text);

/// The end of a tool: the error as JSON if that is asked for, and standard output
/// flushed. `code`, or ExitUsage, and told, if it could not all be written; where
/// its reader is gone, 141 and nothing told.
int finishOutput(int code);

/// The line that shows what is being done, on a terminal only; the next message
/// or call replaces it. "" removes it.
void showProgress(llvm::StringRef text);

/// `text` with control characters written as \xNN: names in a model may hold
/// anything, a terminal's escape sequences too.
std::string printable(llvm::StringRef text);

/// "91.3 MiB".
std::string formatBytes(uint64_t bytes);
/// "1.24 s", "830 ms".
std::string formatSeconds(double seconds);

/// `text` as a JSON string, quotes included.
std::string jsonString(llvm::StringRef text);

} // namespace attn::tools

#endif // TOOLS_OPTIONS_CONSOLE_H
