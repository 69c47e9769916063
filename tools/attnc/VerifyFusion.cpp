#include "tools/attnc/VerifyFusion.h"

#include "tools/options/Console.h"
#include "tools/options/ScratchFolder.h"

#include "llvm/Support/JSON.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;

namespace attn::tools {
namespace {

/// More differences than this are counted only.
constexpr size_t kMaxPrinted = 8;

class Verifier {
public:
  Verifier(const CompileJob &job, const WorkerLimits &limits, std::string folder, const FusionAssumptions &assumptions,
           unsigned &runs)
      : job(job), limits(limits), folder(std::move(folder)), assumptions(assumptions), runs(runs),
        name(sys::path::filename(job.input).str()) {}

  int run(const std::string &library, ArrayRef<std::string> passes) {
    unfused = folder + "/unfused.so";
    if (int code = compile(unfused, 0))
      return code;
    std::optional<FusionComparison> result = compare(library);
    if (!result)
      return isUnfit ? ExitUnsupported : ExitInternal;
    if (result->differences.empty()) {
      if (!result->uncompared.empty()) {
        reportError(job.input + ": --verify-fusion compared nothing: no run of any size ends well; " +
                    result->uncompared);
        return ExitUnsupported;
      }
      runs = result->casesRun;
      if (result->declared)
        reportNote(
            job.input +
            ": with NaN, infinity or huge numbers among the inputs, NaN and infinity reach other elements of " +
            Twine(result->declared) + (result->declared == 1 ? " output" : " outputs") +
            " than unfused, which is no fault: what a mask hides no longer spreads them, exponentials no longer "
            "overflow, and a NaN of a query or a key is no longer replaced (docs/reports.md: What fusion may change)");
      return ExitSuccess;
    }
    reportError(job.input + ": the fused form differs from the graph in " + Twine(result->differences.size()) +
                " outputs of " + Twine(result->casesRun) + " runs");
    for (size_t n = 0; n < std::min(kMaxPrinted, result->differences.size()); ++n)
      reportNote(result->differences[n]);
    if (result->differences.size() > kMaxPrinted)
      reportNote("and " + Twine(result->differences.size() - kMaxPrinted) + " more");
    if (!passes.empty())
      blame(passes);
    return ExitDifferent;
  }

private:
  /// Compiles the form in which the first `numPasses` passes ran. Exit code.
  int compile(const std::string &output, size_t numPasses) {
    CompileJob part = job;
    part.profile = part.annotated = ""; // which are about the library itself
    part.output = output;
    part.constants = output + ".constants";
    part.compile.maxFusionPasses = numPasses;
    part.compile.reproducerPath.clear();
    part.compile.dumpIrDir.clear();
    part.compile.printIrAfterAll = part.compile.timing = false;
    WorkerResult result = runWorker(
        limits, [&](WorkerChannel &channel) { return runCompileJob(part, channel); },
        [&](StringRef stage) { showProgress((name + ": verifying fusion: " + stage).str()); });
    showProgress("");
    if (result.end != WorkerResult::End::Exited || result.code != ExitSuccess) {
      reportError(job.input + ": --verify-fusion cannot compile the form with " + Twine(numPasses) +
                  " passes of fusion");
      return result.end == WorkerResult::End::Exited ? result.code : int(ExitInternal);
    }
    return ExitSuccess;
  }

  /// Runs `library` and the unfused form; nullopt, and told, when that fails.
  std::optional<FusionComparison> compare(const std::string &library) {
    WorkerResult result = runWorker(
        limits,
        [&](WorkerChannel &channel) {
          channel.stage("running");
          FusionComparison found = compareFusedForms(library, unfused, assumptions);
          std::string text;
          raw_string_ostream(text) << json::Value(json::Object{{"error", found.error},
                                                               {"unfit", found.isUnfit},
                                                               {"runs", found.casesRun},
                                                               {"uncompared", json::fixUTF8(found.uncompared)},
                                                               {"declared", found.declared},
                                                               {"differences", json::Array(found.differences)}});
          channel.report(text);
          return int(ExitSuccess);
        },
        [&](StringRef stage) { showProgress((name + ": verifying fusion: " + stage).str()); });
    showProgress("");
    FusionComparison found;
    Expected<json::Value> value = json::parse(result.report);
    if (!value)
      consumeError(value.takeError());
    const json::Object *object = value ? value->getAsObject() : nullptr;
    if (!object) {
      reportError(job.input + ": a run of --verify-fusion died or was stopped");
      return std::nullopt;
    }
    found.error = object->getString("error").value_or("").str();
    isUnfit = object->getBoolean("unfit").value_or(false);
    found.casesRun = object->getInteger("runs").value_or(0);
    found.uncompared = object->getString("uncompared").value_or("").str();
    found.declared = object->getInteger("declared").value_or(0);
    if (const json::Array *list = object->getArray("differences"))
      for (const json::Value &text : *list)
        found.differences.push_back(text.getAsString().value_or("").str());
    if (!found.error.empty()) {
      reportError(job.input + ": " + found.error);
      return std::nullopt;
    }
    return found;
  }

  /// Finds by bisection a pass before which the forms agree and after which they differ.
  void blame(ArrayRef<std::string> passes) {
    size_t good = 0, bad = passes.size();
    while (bad - good > 1) {
      size_t middle = good + (bad - good) / 2;
      std::string library = folder + "/part.so";
      if (compile(library, middle))
        return;
      std::optional<FusionComparison> result = compare(library);
      if (!result)
        return;
      (result->differences.empty() ? good : bad) = middle;
    }
    reportNote("the pass that made it so: " + passes[bad - 1]);
  }

  const CompileJob &job;
  const WorkerLimits &limits;
  std::string folder, unfused;
  const FusionAssumptions &assumptions;
  unsigned &runs;
  std::string name;
  bool isUnfit = false; ///< whether this machine cannot run a form
};

} // namespace

int verifyFusion(const CompileJob &job, const WorkerLimits &limits, const std::string &library,
                 ArrayRef<std::string> passes, const FusionAssumptions &assumptions, unsigned &runs) {
  std::unique_ptr<ScratchFolder> folder = ScratchFolder::create(ScratchFolder::temporaryParent());
  if (!folder) {
    reportError("cannot make a folder for --verify-fusion in " + ScratchFolder::temporaryParent());
    return ExitUsage;
  }
  return Verifier(job, limits, folder->path(), assumptions, runs).run(library, passes);
}

} // namespace attn::tools
