// The compiler's driver: checks the command line, compiles in a worker process,
// and gives the output its name once it is whole.
#include "tools/attnc/Calibrate.h"
#include "tools/attnc/LibraryCache.h"
#include "tools/attnc/Request.h"
#include "tools/attnc/Summary.h"
#include "tools/attnc/Worker.h"
#include "tools/options/Console.h"
#include "tools/options/FusionReport.h"
#include "tools/options/Page.h"
#include "tools/options/StagedOutput.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"
#include <chrono>
#include <csignal>
#include <cstring>
#include <unistd.h>

using namespace llvm;
using namespace attn;
using namespace attn::tools;

namespace {

constexpr ToolInfo kTool = {
    "attnc",
    AttncVis,
    "attnc [options] MODEL.onnx | GRAPH.json | ENTRY=MODEL.onnx... | FOLDER",
    "Compiles an ONNX model into a library that libattnrt, attn-run and attn-bench load and run.\n"
    "A graph written by hand (MODEL.json, docs/graphs.md) and a model in the compiler's own\n"
    "textual IR (MODEL.mlir, of --emit=attn, without large weights) are accepted too. Where the\n"
    "Python package is installed, 'attnc cache' (or 'python -m attnc cache') lists and clears the\n"
    "libraries that attnc.load keeps.",
    "  attnc model.onnx -o model.so                      a library for this machine\n"
    "  attnc model.onnx --dim=batch:1 --dim=seq:128      with fixed dimensions\n"
    "  attnc model.onnx --mcpu=x86-64-v3                 for any processor with AVX2\n"
    "  attnc model.onnx --fusion-report=-                with verdicts on each attention\n"
    "  attnc encode=enc.onnx step=dec.onnx -o model.so   two entries in one library\n"
    "  attnc encode=enc.onnx step=dec.onnx --generate=beam:4 --init=encode --bos=1 --eos=2 \\\n"
    "        --max-length=50 -o model.so                 with a third entry, which searches\n"
    "  attnc FOLDER --generate=beam:4 -o model.so        a folder of the Hugging Face hub (docs/hub.md)\n",
    "  0  the output is written\n"
    "  1  the command line is wrong, or a file cannot be read or written\n"
    "  2  the model needs what attnc does not support, --require-fused is not met, or\n"
    "     --verify-fusion has no run that ends well to compare\n"
    "  3  the model is damaged, data that it names is missing beside it, or it breaks a limit\n"
    "  4  an error inside attnc, or a limit of memory or time was reached\n"
    "  5  --verify-fusion found that the fused form differs from the graph\n"};

/// Says how a worker that did not end by itself did end; its exit code.
int reportDeath(const Request &request, const WorkerResult &result) {
  std::string during = result.stage.empty() ? "" : " (" + result.stage + ")";
  const std::string &file = request.job.input;
  switch (result.end) {
  case WorkerResult::End::OutOfMemory:
    reportError(file + ": the compile ran out of memory" + during +
                (request.limits.memoryBytes
                     ? "; the limit is " + formatBytes(request.limits.memoryBytes) + ", --max-memory raises it"
                     : ""));
    break;
  case WorkerResult::End::TimedOut:
    reportError(file + ": the compile was stopped after " + formatSeconds(request.limits.seconds) +
                ", the limit set by --timeout" + during);
    break;
  case WorkerResult::End::Died: {
    // Its own alarm stops a worker that a crash left waiting (CompileOptions::reproducerPath).
    std::string signal = result.code == SIGALRM ? "a pass crashed" : strsignal(result.code);
    reportError(file + ": internal error: the compile died: " + (result.fatal.empty() ? signal : result.fatal) +
                during);
    break;
  }
  default:
    reportError(file + ": cannot start a worker process: " + std::strerror(result.code));
    break;
  }
  return ExitInternal;
}

/// How many products --precision=int8 made of bytes.
std::string describeByteRows(const Summary &summary) {
  Expected<json::Value> parsed = json::parse(summary.products);
  if (!parsed) {
    consumeError(parsed.takeError());
    return "";
  }
  size_t plain = 0, bytes = 0;
  for (const json::Value &product : *parsed->getAsArray()) {
    StringRef arithmetic = product.getAsObject()->getString("arithmetic").value_or("");
    plain += is_contained({"f32", "f16", "bf16"}, arithmetic.split(',').first);
    bytes += arithmetic == "s8 blocks in s32" || arithmetic == "s8 rows in s32";
  }
  if (plain + bytes == 0)
    return "--precision=int8 changes nothing: no product of rows by a weight was found";
  return (Twine("rows are rounded to 8 bits in ") + Twine(bytes) + " of " + Twine(plain + bytes) +
          " products by weights" + (plain ? "; --fusion-report=- lists them" : ""))
      .str();
}

/// How many caches --cache stores in 8 bits, and what that saves.
std::string describeCaches(StringRef type, const Summary &summary) {
  size_t stored = summary.cacheCount - summary.wideCacheCount;
  if (!stored)
    return ("--cache=" + type + " changes nothing: no cache of an attention is kept").str();
  return (Twine(stored) + " of " + Twine(summary.cacheCount) + (summary.cacheCount == 1 ? " cache is" : " caches are") +
          " stored in 8 bits: " + Twine(summary.cacheBytes) + " bytes a position, not " +
          Twine(summary.cacheBytesBefore))
      .str();
}

/// What fewer bits cost a library: "" where the command line asks for none.
std::string describeNarrowing(const Request &request, const Summary &summary) {
  const CompileOptions &options = request.job.compile;
  StringRef storage = options.weights != "f32" ? options.weights : options.precision;
  std::vector<std::string> parts;
  if (options.emit != EmitKind::Lib)
    return "";
  if (summary.narrowed == "[]" && options.weights != "f32")
    parts.push_back(("no f32 weights that could be stored in " + storage).str());
  else if (summary.narrowed != "[]" && storage != "f32")
    raw_string_ostream(parts.emplace_back())
        << "weights in " << storage << " differ by " << format("%.2g %%", 100 * summary.narrowingError);
  if (options.precision == "int8")
    parts.push_back(describeByteRows(summary));
  if (options.cache != "model")
    parts.push_back(describeCaches(options.cache, summary));
  return join(parts, "; ");
}

/// Whether each node of --expose-attention has outputs now; says which have none, and why.
bool checkExposure(const Request &request, const Summary &summary) {
  auto isMeant = [](const ExposedAttention &one, StringRef node) {
    StringRef name = StringRef(one.node).split('\'').second.rsplit('\'').first;
    return node == "all" || node == name || node == one.entry + ":" + name.str();
  };
  for (const ExposedAttention &one : summary.exposed)
    if (!one.reason.empty())
      reportWarning((one.entry.empty() ? request.job.input : "entry '" + printable(one.entry) + "'") + ": " +
                    printable(one.node) + ": its weights are no output: " + one.reason);
  for (const std::string &node : request.job.compile.exposedNodes) {
    auto isExposed = [&](const ExposedAttention &one) { return one.reason.empty() && isMeant(one, node); };
    if (any_of(summary.exposed, isExposed))
      continue;
    std::string text = request.job.input + ": --expose-attention: ", quoted = "'" + printable(node) + "'";
    if (any_of(summary.exposed, [&](const ExposedAttention &one) { return isMeant(one, node); }))
      text += node == "all" ? "no fused attention can be shown" : "the attention " + quoted + " cannot be shown";
    else if (summary.attentions.empty())
      text += "there is no fused attention; --fusion-report=- says why";
    else
      text += "there is no fused attention " + quoted + "; there are: " + printable(join(summary.attentions, ", "));
    reportError(text);
    return false;
  }
  return true;
}

int finish(const Request &request, StagedOutput &staged, const Summary &summary, double seconds) {
  std::string error;
  if (int code = reportFusion(request.job.input, summary.fusion, summary.products, request.fusionReports,
                              request.requireFused))
    return code;
  if (!checkExposure(request, summary))
    return ExitUsage;
  if (!request.header.empty() && !writeTextFile(request.header, summary.header, error)) {
    reportError(error);
    return ExitUsage;
  }
  unsigned verified = 0;
  if (request.verifyFusion) {
    int code =
        verifyFusion(request.job, request.limits, staged.path(), summary.fusionPasses, summary.assumptions, verified);
    bool isDecided = code == ExitSuccess || code == ExitDifferent;
    std::vector<std::string> pages = request.fusionReports; // written again, to say how it ended
    erase_if(pages, [](StringRef path) { return !isPage(path); });
    if (isDecided)
      code = std::max(code, reportFusion(request.job.input, summary.fusion, summary.products, pages, 0,
                                         Verification{code == ExitSuccess, verified}));
    if (code)
      return code;
  }
  std::string calibration;
  if (!request.calibration.empty())
    if (int code = calibrate(request, staged.path(), calibration))
      return code;
  uint64_t size = 0;
  if (staged.path() != "-")
    sys::fs::file_size(staged.path(), size);
  if (!staged.commit(error)) {
    reportError(error);
    return ExitUsage;
  }
  for (const std::string &warning : summary.copiedStates)
    reportWarning(request.job.input + ": " + warning);
  for (const std::string &warning : summary.wideCaches)
    reportWarning(request.job.input + ": " + warning);
  for (const std::string &node : summary.hostOps)
    reportNote(request.job.input + ": " + printable(node) + " runs on the CPU, between copies from and to the GPU");
  if (request.json) {
    raw_ostream &os = jsonResult();
    os << "{\"output\":" << jsonString(request.output) << ",\"bytes\":" << size << ",\"elf_bytes\":" << summary.elfBytes
       << ",\"weight_bytes\":" << summary.weightBytes << ",\"seconds\":" << format("%.3f", seconds)
       << ",\"fused\":" << summary.fused << ",\"softmaxes\":" << summary.softmaxes;
    if (request.verifyFusion)
      os << ",\"verified_runs\":" << verified;
    if (!calibration.empty())
      os << ",\"calibrated\":" << calibration;
    os << ",\"states\":" << summary.states << ",\"caches\":" << summary.caches
       << ",\"narrowing_error\":" << format("%.3g", summary.narrowingError) << ",\"narrowed\":" << summary.narrowed
       << ",\"host_ops\":" << json::Value(json::Array(summary.hostOps)) << ",\"products\":" << summary.products
       << "}\n";
    return ExitSuccess;
  }
  if (request.verifyFusion)
    reportNote("verify-fusion: " + Twine(summary.fused) + (summary.fused == 1 ? " attention, " : " attentions, ") +
               Twine(verified) + (verified == 1 ? " set" : " sets") + " of inputs, no difference");
  std::string narrowing = describeNarrowing(request, summary);
  if (isatty(STDERR_FILENO) && staged.path() != "-") {
    errs() << sys::path::filename(request.output) << ": " << formatBytes(size) << " in " << formatSeconds(seconds);
    if (summary.softmaxes)
      errs() << ", " << summary.fused << " of " << summary.softmaxes << " attentions fused";
    errs() << (narrowing.empty() ? "" : ", ") << narrowing << '\n';
  } else if (!narrowing.empty()) {
    reportNote(request.job.input + ": " + narrowing);
  }
  SmallVector<StringRef> distances;
  StringRef(calibration).split(distances, '\n', -1, /*KeepEmpty=*/false);
  for (StringRef distance : distances)
    reportNote(request.job.input + ": output " + distance);
  return ExitSuccess;
}

/// Gives a failed compile's reproducer its name. A pass that fails or crashes
/// leaves one; after any other death a second worker writes it. A compile that
/// was stopped has nothing to show.
void keepReproducer(const Request &request, const WorkerResult &result) {
  if (result.end == WorkerResult::End::TimedOut)
    return;
  const CompileJob &job = request.job;
  const std::string &path = job.compile.reproducerPath;
  bool died = result.end != WorkerResult::End::Exited && result.stage != kImportStage;
  if (!sys::fs::exists(path) && died) {
    WorkerLimits limits = {request.limits.memoryBytes, /*seconds=*/60};
    runWorker(limits, [&](WorkerChannel &) { return writeJobReproducer(job); }, [](StringRef) {});
  }
  if (!sys::fs::exists(path))
    return;
  std::string error;
  if (copyTextFile(path, request.reproducer, error))
    reportNote("'attn-opt --run-reproducer " + request.reproducer + "' replays it");
  else
    reportNote(error);
}

int compile(Request request) {
  std::string error;
  // Opened by the worker; asked here so that a wrong name is a matter of the command line.
  std::vector<std::string> inputs{request.job.input};
  for (const auto &entry : request.job.entries)
    inputs.push_back(entry.second);
  if (!request.calibration.empty())
    inputs.push_back(request.calibration);
  for (const std::string &input : inputs)
    if (!sys::fs::exists(input)) {
      reportError(input + ": no such file");
      return ExitUsage;
    }
  std::unique_ptr<StagedOutput> staged = StagedOutput::create(request.output, error);
  if (!staged) {
    reportError(error);
    return ExitUsage;
  }
  // A reader that goes away (| head) must kill neither the worker nor, before it
  // has cleaned up, the driver: writes fail instead, which finishOutput tells.
  // A file beyond the limit of its size likewise.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  CompileJob &job = request.job;
  job.output = staged->path();
  job.compile.outputName = request.output;
  job.compile.reproducerPath = staged->side("reproducer.mlir");
  job.constants = staged->side("constants.so");

  auto start = std::chrono::steady_clock::now();
  std::string name = sys::path::filename(job.input).str();
  auto onStage = [&](StringRef stage) {
    if (request.progress)
      errs() << "progress: " + stage.str() + "\n"; // at once: the worker process writes here, too
    else
      showProgress((name + ": " + stage).str());
  };
  LibraryCache cache(request);
  WorkerResult result;
  if (cache.load(job.output, result)) {
    onStage("found in " + job.compile.cacheDir);
  } else {
    result = runWorker(request.limits, [&](WorkerChannel &channel) { return runCompileJob(job, channel); }, onStage);
    if (result.end == WorkerResult::End::Exited && result.code == ExitSuccess)
      if (std::error_code error = cache.store(request, job.output, result))
        reportWarning("--cache-dir=" + job.compile.cacheDir + " does not keep '" + request.output +
                      "': " + error.message());
  }
  showProgress("");
  double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();

  if (result.end == WorkerResult::End::Interrupted) {
    staged.reset();
    std::signal(result.code, SIG_DFL);
    std::raise(result.code);
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_UNBLOCK, &all, nullptr); // the signal takes us here
  }
  int code = result.end == WorkerResult::End::Exited ? result.code : reportDeath(request, result);
  if (code == ExitSuccess)
    return finish(request, *staged, Summary::parse(result.report), seconds);
  if (code == ExitInternal)
    keepReproducer(request, result);
  return code;
}

} // namespace

int main(int argc, char **argv) {
  int code = ExitSuccess;
  std::optional<CommandLine> line = CommandLine::parse(kTool, argc, argv, code);
  if (!line)
    return finishOutput(code);
  Request request = readRequest(*line);
  return finishOutput(line->failed() ? static_cast<int>(line->failure()) : compile(std::move(request)));
}
