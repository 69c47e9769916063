#include "compiler/pipelines/Instrumentation.h"

#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassInstrumentation.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Support/Timing.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/TimeProfiler.h"
#include "llvm/Support/raw_ostream.h"
#include <unistd.h>

using namespace mlir;

namespace {
class Printer : public PassManager::IRPrinterConfig {
public:
  Printer(const attn::CompileOptions &options, unsigned &count)
      : IRPrinterConfig(/*printModuleScope=*/true, /*printAfterOnlyOnChange=*/true), toStderr(options.printIrAfterAll),
        folder(options.dumpIrDir), count(count) {
    std::error_code code = folder.empty() ? std::error_code() : llvm::sys::fs::create_directories(folder);
    if (!code)
      return;
    llvm::errs() << "warning: cannot make the folder '" << folder << "' of --dump-ir: " << code.message() << '\n';
    folder.clear();
  }

  void printBeforeIfEnabled(Pass *, Operation *, PrintCallbackFn) override {}

  void printAfterIfEnabled(Pass *pass, Operation *, PrintCallbackFn print) override {
    if (toStderr)
      print(llvm::errs());
    if (folder.empty())
      return;
    StringRef name = pass->getArgument().empty() ? pass->getName() : pass->getArgument();
    std::string path = llvm::formatv("{0}/{1,0+3}-{2}.mlir", folder, count++, name);
    std::error_code code;
    llvm::raw_fd_ostream file(path, code);
    if (!code) {
      print(file);
      file.close();
      code = file.error();
      file.clear_error(); // else a full disk is a fatal error
    }
    if (code && !reported) {
      llvm::errs() << "warning: cannot write '" << path << "': " << code.message() << '\n';
      reported = true;
    }
  }

private:
  bool toStderr, reported = false;
  std::string folder;
  unsigned &count;
};

/// Passes as entries of llvm/Support/TimeProfiler.h. Its state belongs to a thread, and passes run on others than the
/// one that compiles: each gets a state for as long as it runs a pass.
struct Tracer : PassInstrumentation {
  void runBeforePass(Pass *pass, Operation *) override {
    if (!llvm::timeTraceProfilerEnabled()) {
      llvm::timeTraceProfilerInitialize(kGranularityMicroseconds, "attnc");
      isBorrowed = true;
    }
    ++depth;
    llvm::timeTraceProfilerBegin(pass->getArgument().empty() ? pass->getName() : pass->getArgument(), "");
  }
  void runAfterPass(Pass *, Operation *) override { end(); }
  void runAfterPassFailed(Pass *, Operation *) override { end(); }

private:
  static constexpr unsigned kGranularityMicroseconds = 10;

  static void end() {
    llvm::timeTraceProfilerEnd();
    if (--depth == 0 && std::exchange(isBorrowed, false))
      llvm::timeTraceProfilerFinishThread();
  }

  static thread_local unsigned depth; ///< passes within passes
  static thread_local bool isBorrowed;
};

thread_local unsigned Tracer::depth = 0;
thread_local bool Tracer::isBorrowed = false;

/// The reproducer of a pass that failed or crashed. It is printed into memory and becomes a file when it is whole. A
/// crash may have met its thread while that held a lock of the context, for which the printer then waits for ever: the
/// process has CompileOptions::kReproducerSeconds left, and dies by SIGALRM.
class Reproducer : public ReproducerStream {
public:
  explicit Reproducer(StringRef path) : path(path), stream(text) { alarm(attn::CompileOptions::kReproducerSeconds); }

  ~Reproducer() override {
    std::error_code code;
    llvm::raw_fd_ostream file(path, code);
    if (code)
      return;
    file << text;
    file.close();
    file.clear_error(); // else a full disk is a fatal error
  }

  StringRef description() override { return path; }
  llvm::raw_ostream &os() override { return stream; }

private:
  std::string path, text;
  llvm::raw_string_ostream stream;
};
} // namespace

void attn::instrument(PassManager &pm, const CompileOptions &options, TimingScope &timing, unsigned &numPrinted,
                      bool isReproduced) {
  if (options.printIrAfterAll || !options.dumpIrDir.empty()) {
    // The whole module is printed, so nobody may change another function of it.
    pm.getContext()->disableMultithreading();
    pm.enableIRPrinting(std::make_unique<Printer>(options, numPrinted));
  }
  // Each pass is tested with a verifier behind it. In a compile that costs a tenth of the passes' time.
  pm.enableVerifier(options.printIrAfterAll || !options.dumpIrDir.empty());
  if (isReproduced && !options.reproducerPath.empty())
    pm.enableCrashReproducerGeneration(
        [path = options.reproducerPath](std::string &) { return std::make_unique<Reproducer>(path); });
  if (options.timing)
    pm.enableTiming(timing);
  if (llvm::timeTraceProfilerEnabled())
    pm.addInstrumentation(std::make_unique<Tracer>());
}
