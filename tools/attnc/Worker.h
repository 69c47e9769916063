// A compile in a process of its own: the worker may run out of memory, hang or
// crash, and the driver still answers and cleans up.
#ifndef TOOLS_ATTNC_WORKER_H
#define TOOLS_ATTNC_WORKER_H

#include "tools/options/Console.h"

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace attn::tools {

/// The worker's line to the driver; a process is one worker at most.
class WorkerChannel {
public:
  /// What is being done now.
  void stage(llvm::StringRef text) { send('S', text); }
  /// The result, for WorkerResult::report.
  void report(llvm::StringRef text) { send('R', text); }
  /// Ends the worker as out of memory if less than 64 MiB are left below its limit.
  void endIfNearMemoryLimit();

private:
  void send(char kind, llvm::StringRef text);
};

struct WorkerLimits {
  uint64_t memoryBytes = 0; ///< of address space; 0: no limit
  double seconds = 0;       ///< 0: no limit
};

struct WorkerResult {
  enum class End {
    Exited,      ///< by itself, with `code`
    OutOfMemory, ///< an allocation failed
    Died,        ///< by signal `code`, or LLVM gave up with `fatal`
    TimedOut,    ///< stopped at the time limit
    Interrupted, ///< stopped because the driver got signal `code`
    NotStarted   ///< fork or pipe failed with errno `code`
  };
  End end = End::NotStarted;
  int code = 0;
  std::string stage;  ///< the last one begun
  std::string report; ///< what the worker reported
  std::string fatal;  ///< LLVM's last words
  /// What it printed.
  std::vector<std::pair<Severity, std::string>> said;
};

/// Runs `body` in a forked process under `limits` and waits for its end;
/// `body` returns its exit code. SIGINT, SIGTERM and SIGHUP stop the worker and
/// come back as Interrupted, still blocked so that the caller can clean up. Call it before the process makes threads.
WorkerResult runWorker(const WorkerLimits &limits, llvm::function_ref<int(WorkerChannel &)> body,
                       llvm::function_ref<void(llvm::StringRef)> onStage);

} // namespace attn::tools

#endif // TOOLS_ATTNC_WORKER_H
