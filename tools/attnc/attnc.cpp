// The compiler's driver: checks the command line, compiles in a worker process,
// and gives the output its name once it is whole.
#include "compiler/emit/gpu/GpuTarget.h"
#include "passes/kernels/gpu/Precision.h"
#include "tools/attnc/CompileJob.h"
#include "tools/attnc/GenerateOptions.h"
#include "tools/attnc/VerifyFusion.h"
#include "tools/attnc/Worker.h"
#include "tools/options/Console.h"
#include "tools/options/FusionReport.h"
#include "tools/options/Options.h"
#include "tools/options/StagedOutput.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/TargetParser/X86TargetParser.h"
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
    "attnc [options] MODEL.onnx | GRAPH.json | ENTRY=MODEL.onnx...",
    "Compiles an ONNX model into a library that libattnrt, attn-run and attn-bench load and run.\n"
    "A graph written by hand (MODEL.json, docs/graphs.md) and a model in the compiler's own\n"
    "textual IR (MODEL.mlir) are accepted too.",
    "  attnc model.onnx -o model.so                      a library for this machine\n"
    "  attnc model.onnx --dim=batch:1 --dim=seq:128      with fixed dimensions\n"
    "  attnc model.onnx --mcpu=x86-64-v3                 for any processor with AVX2\n"
    "  attnc model.onnx --fusion-report=-                with verdicts on each attention\n"
    "  attnc encode=enc.onnx step=dec.onnx -o model.so   two entries in one library\n"
    "  attnc encode=enc.onnx step=dec.onnx --generate=beam:4 --init=encode --bos=1 --eos=2 \\\n"
    "        --max-length=50 -o model.so                 with a third entry, which searches\n",
    "  0  the output is written\n"
    "  1  the command line is wrong, or a file cannot be read or written\n"
    "  2  the model needs what attnc does not support, --require-fused is not met, or\n"
    "     --verify-fusion has no run that ends well to compare\n"
    "  3  the model is damaged, data that it names is missing beside it, or it breaks a limit\n"
    "  4  an error inside attnc, or a limit of memory or time was reached\n"
    "  5  --verify-fusion found that the fused form differs from the graph\n"};

/// Everything a command line asks for.
struct Request {
  CompileJob job;
  std::string output;     // "-": standard output
  std::string reproducer; // where it goes if one is written
  WorkerLimits limits;
  std::string fusionReport, header;
  unsigned requireFused = 0;
  bool verifyFusion = false;
  bool json = false;
  bool progress = false;
};

const char *extension(EmitKind kind) { return kind == EmitKind::Lib ? ".so" : kind == EmitKind::Obj ? ".o" : ""; }

void checkCpu(CommandLine &line, StringRef cpu) {
  SmallVector<StringRef> known;
  X86::fillValidCPUArchList(known, /*Only64Bit=*/true);
  if (cpu == "native" || is_contained(known, cpu))
    return;
  StringRef nearest;
  unsigned best = std::min<size_t>(3, cpu.size() / 3);
  for (StringRef name : known)
    if (unsigned distance = cpu.edit_distance(name, /*AllowReplacements=*/true, best); distance <= best) {
      best = distance;
      nearest = name;
    }
  line.fail("unknown CPU '" + cpu + "'" + (nearest.empty() ? "" : ", did you mean '" + nearest.str() + "'?"));
}

uint64_t machineMemory() {
  long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
  return pages > 0 && size > 0 ? uint64_t(pages) * uint64_t(size) : 0;
}

/// "model.onnx", or "encode=encoder.onnx step=decoder.onnx": entries of one library.
void readInputs(CommandLine &line, CompileJob &job) {
  std::vector<StringRef> inputs = line.positional();
  if (inputs.empty())
    return line.fail("no model given");
  for (StringRef input : inputs) {
    auto [name, path] = input.split('=');
    bool isName = !name.empty() && !isDigit(name[0]) && all_of(name, [](char c) { return isAlnum(c) || c == '_'; });
    bool isEntry = isName && !path.empty() && !sys::fs::exists(input);
    if (!isName && !path.empty() && sys::fs::exists(path) && !sys::fs::exists(input))
      return line.fail("'" + name + "' cannot be the name of an entry: letters, digits and '_', not a digit first");
    if (!isEntry && inputs.size() > 1)
      return line.fail("several models are given as NAME=MODEL.onnx, each for an entry; '" + input + "' is not");
    if (isEntry && path.ends_with(".mlir"))
      return line.fail("textual IR names its entries itself: give '" + path + "' alone");
    if (!isEntry)
      path = input;
    else if (any_of(job.entries, [name = name](const auto &entry) { return entry.first == name; }))
      return line.fail("entry '" + name + "' is given twice");
    else
      job.entries.push_back({name.str(), path.str()});
    if (job.input.empty())
      job.input = path.str();
  }
}

void readTarget(CommandLine &line, CompileOptions &options) {
  StringRef target = line.text(OPT_target, "cpu");
  if (target != "cpu" && target != "cuda")
    return line.fail("--target expects cpu or cuda, not '" + target + "'");
  if (target == "cpu" && line.has(OPT_gpu_arch))
    return line.fail("--gpu-arch is for --target=cuda");
  if (target == "cpu" && line.has(OPT_allow_host_ops))
    return line.fail("--allow-host-ops is for --target=cuda");
  if (target == "cpu" && options.emit == EmitKind::Ptx)
    return line.fail("--emit=ptx is for --target=cuda");
  if (target == "cpu")
    return;
  if (options.weights != "f32")
    line.fail("--weights is for --target=cpu; for a GPU --precision=bf16|f16 stores weights of products in 16 bits");
  if (line.has(OPT_mark_regions))
    line.fail(
        "--mark-regions (attn-bench --breakdown and --profile) is for --target=cpu; attn-bench times a GPU as a whole");
  options.gpuArchs = line.text(OPT_gpu_arch, "sm_80").str();
  options.allowHostOps = line.has(OPT_allow_host_ops);
  std::string error;
  if (parseGpuArchs(options.gpuArchs, error).empty())
    line.fail(error);
}

/// --fp32-math, once --weights and --precision are known.
void readProducts(CommandLine &line, CompileOptions &options) {
  StringRef math = line.text(OPT_fp32_math, "f32");
  std::string flag = ("--fp32-math=" + math).str();
  if (math == "f32")
    return;
  if (math != "bf16x3" && math != "bf16x6")
    return line.fail("--fp32-math expects f32, bf16x3 or bf16x6, not '" + math + "'");
  if (line.text(OPT_target, "cpu") != "cpu")
    return line.fail(flag + " is for --target=cpu");
  if (options.weights != "f32" || options.precision != "f32")
    return line.fail(flag + " is about products of f32: leave out --weights and --precision");
  if (options.optLevel == 0)
    return line.fail(flag + " needs kernels, which -O0 does not choose");
  options.precision = math.str();
}

Request readRequest(CommandLine &line) {
  Request request;
  CompileJob &job = request.job;
  readInputs(line, job);

  StringRef emit = line.text(OPT_emit, "lib");
  auto kind = StringSwitch<std::optional<EmitKind>>(emit)
                  .Case("attn", EmitKind::Attn)
                  .Case("linalg", EmitKind::Linalg)
                  .Case("llvm", EmitKind::Llvm)
                  .Case("ptx", EmitKind::Ptx)
                  .Case("obj", EmitKind::Obj)
                  .Case("lib", EmitKind::Lib)
                  .Default(std::nullopt);
  if (!kind)
    line.fail("--emit expects attn, linalg, llvm, ptx, obj or lib, not '" + emit + "'");
  job.compile.emit = kind.value_or(EmitKind::Lib);

  StringRef level = line.text(OPT_O, "3");
  if (level.size() != 1 || level[0] < '0' || level[0] > '3')
    line.fail("-O expects a level from 0 to 3, not '" + level + "'");
  else
    job.compile.optLevel = level[0] - '0';
  job.compile.cpu = line.text(OPT_mcpu, "native").str();
  checkCpu(line, job.compile.cpu);
  job.compile.weights = line.text(OPT_weights, "f32").str();
  if (!isWeightStorage(job.compile.weights))
    line.fail("--weights expects f32, bf16, int8 or int8:GROUP, not '" + job.compile.weights + "'");
  else if (job.compile.weights != "f32" && job.compile.optLevel == 0)
    line.fail("--weights=" + job.compile.weights + " needs kernels, which -O0 does not choose");
  job.compile.precision = line.text(OPT_precision, "f32").str();
  bool isForGpu = line.text(OPT_target, "cpu") == "cuda", isKnown = parsePrecision(job.compile.precision).has_value();
  if (isForGpu && !isKnown)
    line.fail("--precision expects f32, tf32, bf16 or f16, not '" + job.compile.precision + "'");
  else if (!isForGpu && job.compile.precision != "f32" && job.compile.precision != "bf16")
    line.fail("--precision expects f32 or bf16, not '" + job.compile.precision + "'" +
              (isKnown ? ", which is for --target=cuda" : ""));
  else if (job.compile.precision != "f32" && job.compile.optLevel == 0)
    line.fail("--precision=" + job.compile.precision + " needs kernels, which -O0 does not choose");
  readProducts(line, job.compile);
  job.compile.cacheDir = line.text(OPT_cache_dir).str();
  if (line.has(OPT_cache_dir))
    if (std::error_code error = sys::fs::create_directories(job.compile.cacheDir))
      line.fail("cannot make the folder '" + job.compile.cacheDir + "' of --cache-dir: " + error.message());
  StringRef masks = line.text(OPT_masks, "proved");
  if (masks != "proved" && masks != "exact")
    line.fail("--masks expects proved or exact, not '" + masks + "'");
  job.compile.exactMasks = masks == "exact";
  readTarget(line, job.compile);
  for (auto &[name, range] : line.dims()) {
    if (range.lower == range.upper)
      job.import.dims[name] = range.lower;
    else
      job.import.dimRanges[name] = {range.lower, range.upper};
  }
  for (auto &[name, shape] : line.shapes())
    job.import.shapes[name] = shape;
  job.compile.printIrAfterAll = line.has(OPT_mlir_print_ir_after_all);
  job.compile.dumpIrDir = line.text(OPT_dump_ir).str();
  job.compile.marksRegions = line.has(OPT_mark_regions);
  job.compile.timing = line.has(OPT_mlir_timing);

  request.limits.memoryBytes = line.bytes(OPT_max_memory, machineMemory());
  request.limits.seconds = line.real(OPT_timeout, 0);
  request.fusionReport = line.text(OPT_fusion_report).str();
  request.header = line.text(OPT_emit_header).str();
  if (!request.header.empty() && job.compile.emit != EmitKind::Lib)
    line.fail("--emit-header describes a model library, not --emit=" + emit);
  request.requireFused = line.number(OPT_require_fused, 0, 0, UINT32_MAX);
  request.verifyFusion = line.has(OPT_verify_fusion);
  request.json = line.has(OPT_json);
  request.progress = line.has(OPT_progress);
  job.import.maxLoopIterations = line.number(OPT_max_loop_iterations, job.import.maxLoopIterations, 1, INT64_MAX);
  for (StringRef pass : line.all(OPT_disable_pass)) {
    if (!is_contained(optionalPasses(), pass))
      line.fail("--disable-pass: no pass '" + pass + "'; those that can be left out are " +
                join(optionalPasses(), ", "));
    job.compile.disabledPasses.push_back(pass.str());
  }

  job.search = readGenerateOptions(line);

  job.ownState = line.has(OPT_own_state);
  if (job.ownState)
    job.states = readStatePairs(line);
  else if (line.has(OPT_state) && !job.search)
    line.fail("--state belongs to --own-state and --generate");
  if (job.ownState && !job.compile.gpuArchs.empty())
    line.fail("--own-state is for --target=cpu: on a GPU a library keeps no state yet");

  bool isText = !*extension(job.compile.emit);
  SmallString<128> beside(sys::path::filename(job.input));
  sys::path::replace_extension(beside, extension(job.compile.emit));
  request.output = line.text(OPT_o, isText ? "-" : beside.str()).str();
  if (job.entries.size() > 1 && !isText && !line.has(OPT_o))
    line.fail("a library of several models needs a name: -o FILE");
  if (request.verifyFusion && job.entries.size() > 1)
    line.fail("--verify-fusion takes one model");
  if (request.verifyFusion && (job.compile.weights != "f32" || job.compile.precision != "f32"))
    line.fail("--verify-fusion compares forms in f32: leave out --weights, --precision and --fp32-math; attn-run "
              "--compare=f32 says "
              "what they cost");
  if (request.verifyFusion && job.compile.emit != EmitKind::Lib)
    line.fail("--verify-fusion runs a model library, not --emit=" + emit);
  if (request.output.empty())
    line.fail("-o expects the name of a file");
  else if (sys::fs::equivalent(request.output, job.input))
    line.fail("the output '" + request.output + "' is the model itself");
  if (request.output == "-" && !isText)
    line.fail("--emit=" + emit + " cannot be written to standard output");
  if (request.json && request.fusionReport == "-")
    line.fail("--json and --fusion-report=- would both write to standard output");
  if (request.output == "-" && (request.json || request.fusionReport == "-"))
    line.fail("standard output cannot take both the IR and a report: name a file with -o");
  request.reproducer = line.text(OPT_reproducer).str();
  if (request.reproducer.empty())
    request.reproducer =
        (request.output == "-" ? sys::path::stem(job.input).str() : request.output) + ".reproducer.mlir";
  return request;
}

/// What the worker reported about a compile.
struct Summary {
  uint64_t elfBytes = 0, weightBytes = 0;
  std::string narrowed = "[]";
  double narrowingError = 0;
  std::string states = "[]";
  std::vector<std::string> copiedStates; // notes on those that grow
  std::vector<std::string> hostOps;
  unsigned fused = 0, softmaxes = 0;
  std::string fusion = "[]", header;
  std::vector<std::string> fusionPasses;
  FusionAssumptions assumptions;

  static Summary parse(StringRef text) {
    Summary summary;
    Expected<json::Value> value = json::parse(text);
    if (!value) {
      consumeError(value.takeError());
      return summary;
    }
    if (const json::Object *object = value->getAsObject()) {
      summary.elfBytes = object->getInteger("elf_bytes").value_or(0);
      summary.weightBytes = object->getInteger("weight_bytes").value_or(0);
      summary.fused = object->getInteger("fused").value_or(0);
      summary.softmaxes = object->getInteger("softmaxes").value_or(0);
      summary.header = object->getString("header").value_or("").str();
      if (const json::Array *passes = object->getArray("fusion_passes"))
        for (const json::Value &pass : *passes)
          summary.fusionPasses.push_back(pass.getAsString().value_or("").str());
      if (const json::Array *verdicts = object->getArray("fusion"))
        for (const json::Value &verdict : *verdicts)
          if (const json::Object *fields = verdict.getAsObject())
            if (const json::Array *list = fields->getArray("assumes"))
              summary.assumptions.keepsLogitsSmall |= !list->empty();
      summary.assumptions.hasNaNGuard = object->getBoolean("nan_guard").value_or(false);
      if (const json::Array *masks = object->getArray("masks"))
        for (const json::Value &mask : *masks)
          summary.assumptions.masks.push_back(mask.getAsString().value_or("").str());
      summary.narrowingError = object->getNumber("narrowing_error").value_or(0);
      if (const json::Array *narrowed = object->getArray("narrowed")) {
        summary.narrowed.clear();
        raw_string_ostream(summary.narrowed) << json::Value(json::Array(*narrowed));
      }
      if (const json::Array *nodes = object->getArray("host_ops"))
        for (const json::Value &node : *nodes)
          summary.hostOps.push_back(node.getAsString().value_or("").str());
      if (const json::Array *states = object->getArray("states"))
        summary.readStates(*states);
      if (const json::Value *fusion = object->get("fusion")) {
        summary.fusion.clear();
        raw_string_ostream(summary.fusion) << formatv("{0:2}", *fusion);
      }
    }
    return summary;
  }

  void readStates(const json::Array &list) {
    states.clear();
    raw_string_ostream(states) << json::Value(json::Array(list));
    for (const json::Value &state : list)
      if (const json::Object *fields = state.getAsObject();
          fields && fields->getBoolean("grows").value_or(false) && fields->getBoolean("in_place") == false)
        copiedStates.push_back(("entry '" + fields->getString("entry").value_or("") + "': each run copies its state '" +
                                printable(fields->getString("input").value_or("")) +
                                "', and does not append to it: " + fields->getString("reason").value_or(""))
                                   .str());
  }
};

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
  case WorkerResult::End::Died:
    reportError(file + ": internal error: the compile died: " +
                (result.fatal.empty() ? std::string(strsignal(result.code)) : result.fatal) + during);
    break;
  default:
    reportError(file + ": cannot start a worker process: " + std::strerror(result.code));
    break;
  }
  return ExitInternal;
}

/// What fewer bits cost a library: "" where the command line asks for none.
std::string describeNarrowing(const Request &request, const Summary &summary) {
  const CompileOptions &options = request.job.compile;
  StringRef storage = options.weights != "f32" ? options.weights : options.precision;
  std::string text;
  if (storage == "f32" || options.emit != EmitKind::Lib)
    return text;
  raw_string_ostream os(text);
  if (summary.narrowed == "[]" && options.weights != "f32")
    os << "no weights are stored in " << storage;
  else if (summary.narrowed != "[]")
    os << "weights in " << storage << " differ by " << format("%.2g %%", 100 * summary.narrowingError);
  return text;
}

int finish(const Request &request, StagedOutput &staged, const Summary &summary, double seconds) {
  std::string error;
  if (int code = reportFusion(request.job.input, summary.fusion, request.fusionReport, request.requireFused))
    return code;
  if (!request.header.empty() && !writeTextFile(request.header, summary.header, error)) {
    reportError(error);
    return ExitUsage;
  }
  unsigned verified = 0;
  if (request.verifyFusion) {
    if (int code = verifyFusion(request.job, request.limits, staged.path(), summary.fusionPasses, summary.assumptions,
                                verified))
      return code;
  }
  uint64_t size = 0;
  if (staged.path() != "-")
    sys::fs::file_size(staged.path(), size);
  if (!staged.commit(error)) {
    reportError(error);
    return ExitUsage;
  }
  if (request.json) {
    raw_ostream &os = jsonResult();
    os << "{\"output\":" << jsonString(request.output) << ",\"bytes\":" << size << ",\"elf_bytes\":" << summary.elfBytes
       << ",\"weight_bytes\":" << summary.weightBytes << ",\"seconds\":" << format("%.3f", seconds)
       << ",\"fused\":" << summary.fused << ",\"softmaxes\":" << summary.softmaxes;
    if (request.verifyFusion)
      os << ",\"verified_runs\":" << verified;
    os << ",\"states\":" << summary.states << ",\"narrowing_error\":" << format("%.3g", summary.narrowingError)
       << ",\"narrowed\":" << summary.narrowed << ",\"host_ops\":" << json::Value(json::Array(summary.hostOps))
       << "}\n";
    return ExitSuccess;
  }
  if (request.verifyFusion)
    reportNote("verify-fusion: " + Twine(summary.fused) + (summary.fused == 1 ? " attention, " : " attentions, ") +
               Twine(verified) + (verified == 1 ? " set" : " sets") + " of inputs, no difference");
  for (const std::string &note : summary.copiedStates)
    reportNote(request.job.input + ": " + note);
  for (const std::string &node : summary.hostOps)
    reportNote(request.job.input + ": " + printable(node) + " runs on the CPU, between copies from and to the GPU");
  std::string narrowing = describeNarrowing(request, summary);
  if (isatty(STDERR_FILENO) && staged.path() != "-") {
    errs() << sys::path::filename(request.output) << ": " << formatBytes(size) << " in " << formatSeconds(seconds);
    if (summary.softmaxes)
      errs() << ", " << summary.fused << " of " << summary.softmaxes << " attentions fused";
    errs() << (narrowing.empty() ? "" : ", ") << narrowing << '\n';
  } else if (!narrowing.empty()) {
    reportNote(request.job.input + ": " + narrowing);
  }
  return ExitSuccess;
}

/// Gives a failed compile's reproducer its name. A pass that fails or crashes
/// leaves one; after any other death a second worker writes it.
void keepReproducer(const Request &request, const WorkerResult &result) {
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

  auto start = std::chrono::steady_clock::now();
  std::string name = sys::path::filename(job.input).str();
  WorkerResult result = runWorker(
      request.limits, [&](WorkerChannel &channel) { return runCompileJob(job, channel); },
      [&](StringRef stage) {
        if (request.progress)
          errs() << "progress: " + stage.str() + "\n"; // at once: the worker process writes here, too
        else
          showProgress((name + ": " + stage).str());
      });
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
  return finishOutput(line->failed() ? static_cast<int>(ExitUsage) : compile(std::move(request)));
}
