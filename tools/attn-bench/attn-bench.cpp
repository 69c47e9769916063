// Times the runs of a model.
#include "tools/attn-bench/Breakdown.h"
#include "tools/attn-bench/DeviceTimer.h"
#include "tools/attn-bench/Machine.h"
#include "tools/options/Console.h"
#include "tools/options/LibraryArgument.h"
#include "tools/options/Page.h"
#include "tools/options/RunArguments.h"
#include "tools/options/StagedOutput.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>

using namespace llvm;
using namespace attn;
using namespace attn::tools;
using runner::Tensor;

namespace {

constexpr const char kRoofline[] =
#include "tools/pages/roofline.inc"
    ;

constexpr ToolInfo kTool = {
    "attn-bench",
    BenchVis,
    "attn-bench [options] MODEL.so|MODEL.onnx|GRAPH.json\n       attn-bench --machine [--threads=N]",
    "Times the runs of a model library, or of an ONNX model or an in-house graph that it compiles first.\n"
    "At least 3 runs and 0.2 s of warm-up are not counted. Outputs are those of the last run.",
    "  attn-bench model.so --threads=2\n"
    "  attn-bench model.so --dim=batch:1 --dim=seq:128 --runs=100 --json\n"
    "  attn-bench model.onnx --breakdown --profile=trace.json --roofline=roof.html\n"
    "  attn-bench model.onnx --mcpu=x86-64-v3 --input=x=@x.npy --output=y=@y.npy\n",
    "  0  the model was measured\n"
    "  1  the command line is wrong, or a file cannot be read or written\n"
    "  2  the model needs what attnc does not support, or the library does not fit this machine\n"
    "  3  the model, the library or an input is damaged or does not fit\n"
    "  4  an error inside attnc, or a limit of memory or time was reached\n"};

constexpr uint64_t kWarmupRuns = 3;
constexpr double kWarmupMs = 200;

double nowMs() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Largest resident memory of this process so far, MiB. Not getrusage: its
/// figure begins with that of the program that started us.
double peakResidentMb() {
  FILE *file = std::fopen("/proc/self/status", "re");
  if (!file)
    return 0;
  char line[256];
  double kilobytes = 0;
  while (std::fgets(line, sizeof line, file))
    if (std::sscanf(line, "VmHWM: %lf kB", &kilobytes) == 1)
      break;
  std::fclose(file);
  return kilobytes / 1024;
}

struct Measurement {
  std::vector<double> times;       // ms, in the order of the runs
  std::vector<double> deviceTimes; // of a library with GPU code
  double loadMs = 0;
  double sessionMs = 0;  ///< of loadMs: making the session
  double firstRunMs = 0; ///< starts the threads and touches the workspace; not counted

  std::vector<double> sorted() const { return sorted(times); }
  double min() const { return sorted().front(); }
  double median() const { return median(times); }
  double deviceMedian() const { return median(deviceTimes); }
  double deviceMin() const { return sorted(deviceTimes).front(); }
  /// Nearest rank: the least time that 95 % of the runs do not exceed.
  double p95() const { return sorted()[static_cast<size_t>(std::ceil(0.95 * static_cast<double>(times.size()))) - 1]; }

private:
  static std::vector<double> sorted(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values;
  }
  static double median(const std::vector<double> &values) {
    std::vector<double> s = sorted(values);
    size_t half = s.size() / 2;
    return s.size() % 2 ? s[half] : (s[half - 1] + s[half]) / 2;
  }
};

/// Times runs until there are `runs` of them and `minMs` have passed. They take
/// the sets of `inputs` in turn.
bool measure(runner::Model &model, std::vector<std::vector<Tensor>> &inputs, std::vector<Tensor> &outputs,
             uint64_t runs, double minMs, Measurement &result, Breakdown *breakdown, DeviceTimer *device,
             runner::Failure &failure) {
  double start = nowMs();
  for (uint64_t i = 0; i < kWarmupRuns || nowMs() - start < kWarmupMs; ++i) {
    if (!model.run(inputs[i % inputs.size()], outputs, failure))
      return false;
    if (i == 0)
      result.firstRunMs = nowMs() - start;
  }
  start = nowMs();
  for (uint64_t i = 0; i < runs || nowMs() - start < minMs; ++i) {
    if (breakdown)
      breakdown->beginRun();
    bool isTimed = device && device->begin();
    double before = nowMs();
    if (!model.run(inputs[i % inputs.size()], outputs, failure))
      return false;
    result.times.push_back(nowMs() - before);
    if (double ms = isTimed ? device->end() : -1; ms >= 0)
      result.deviceTimes.push_back(ms);
    if (breakdown)
      breakdown->endRun();
  }
  return true;
}

void printTimes(raw_ostream &os, const std::vector<double> &times) {
  os << '[';
  for (size_t i = 0; i < times.size(); ++i)
    os << (i ? "," : "") << format("%.6f", times[i]);
  os << ']';
}

bool isLeftOut(const attnrt_entry_info &entry, const std::vector<Tensor> &inputs, size_t i) {
  return entry.optional_inputs && entry.optional_inputs[i] && inputs[i].elements() == 0;
}

/// "ids int64 8x16, mask bool 8x16", without those left out.
std::string printInputs(const attnrt_entry_info &entry, const std::vector<Tensor> &inputs) {
  std::string text;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (!isLeftOut(entry, inputs, i))
      text += (text.empty() ? "" : ", ") + printable(entry.inputs[i].name) + ' ' +
              attnrt_dtype_name(inputs[i].dtype()) + ' ' + runner::printShape(inputs[i].shape());
  return text;
}

std::vector<std::string> namesLeftOut(const attnrt_entry_info &entry, const std::vector<Tensor> &inputs) {
  std::vector<std::string> names;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (isLeftOut(entry, inputs, i))
      names.push_back(entry.inputs[i].name);
  return names;
}

void printJsonInputs(raw_ostream &os, const attnrt_entry_info &entry, const std::vector<Tensor> &inputs) {
  json::Array run, leftOut;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (!isLeftOut(entry, inputs, i))
      run.push_back(json::Object{{"name", json::fixUTF8(entry.inputs[i].name)},
                                 {"dtype", attnrt_dtype_name(inputs[i].dtype())},
                                 {"shape", json::Array(inputs[i].shape())}});
  for (const std::string &name : namesLeftOut(entry, inputs))
    leftOut.push_back(json::fixUTF8(name));
  os << ",\"inputs\":" << json::Value(std::move(run)) << ",\"left_out\":" << json::Value(std::move(leftOut));
}

void printJson(const Measurement &result, int32_t threads, const attnrt_entry_info &entry,
               const std::vector<Tensor> &inputs, std::optional<json::Object> breakdown) {
  raw_ostream &os = jsonResult();
  os << format("{\"min_ms\":%.6f,\"median_ms\":%.6f,\"p95_ms\":%.6f,\"times_ms\":", result.min(), result.median(),
               result.p95());
  printTimes(os, result.times);
  if (!result.deviceTimes.empty()) {
    os << format(",\"device_min_ms\":%.6f,\"device_median_ms\":%.6f,\"device_times_ms\":", result.deviceMin(),
                 result.deviceMedian());
    printTimes(os, result.deviceTimes);
  }
  os << format(",\"load_ms\":%.3f,\"session_ms\":%.3f,\"first_run_ms\":%.3f,\"peak_rss_mb\":%.1f,\"threads\":%d,"
               "\"runs\":%zu",
               result.loadMs, result.sessionMs, result.firstRunMs, peakResidentMb(), threads, result.times.size());
  printJsonInputs(os, entry, inputs);
  if (breakdown)
    os << ",\"breakdown\":" << json::Value(std::move(*breakdown));
  os << "}\n";
}

/// With as many digits as tell a run of nanoseconds from none.
std::string milliseconds(double ms) {
  std::string text;
  raw_string_ostream(text) << format(ms < 0.1 ? "%.6f" : "%.3f", ms);
  return text;
}

void printText(StringRef name, const Measurement &result, int32_t threads, const std::string &inputs) {
  outs() << printable(name) << ": " << result.times.size() << (result.times.size() == 1 ? " run, " : " runs, ")
         << threads << (threads == 1 ? " thread\n" : " threads\n");
  if (!inputs.empty())
    outs() << "  inputs " << inputs << '\n';
  outs() << "  median " << milliseconds(result.median()) << " ms   min " << milliseconds(result.min())
         << " ms   95% within " << milliseconds(result.p95()) << " ms\n";
  if (!result.deviceTimes.empty())
    outs() << "  between events on the GPU: median " << milliseconds(result.deviceMedian()) << " ms   min "
           << milliseconds(result.deviceMin()) << " ms, copies of inputs and outputs included\n";
  outs() << format("  load %.1f ms, of it session %.2f ms   first run %.3f ms   peak memory %.1f MiB\n", result.loadMs,
                   result.sessionMs, result.firstRunMs, peakResidentMb());
}

bool hasGpuCode(const attnrt_model_info &info) {
  Expected<json::Value> manifest = json::parse(info.manifest_json);
  if (!manifest) {
    consumeError(manifest.takeError());
    return false;
  }
  const json::Object *fields = manifest->getAsObject();
  return fields && fields->getArray("gpu");
}

bool writeProfile(const Breakdown &regions, StringRef path, double peak) {
  std::string error;
  bool isWritten = writeFile(path, [&](raw_ostream &os) { regions.writeTimeline(os, peak); }, error);
  if (!isWritten)
    reportError(error);
  return isWritten;
}

/// A page: the regions below the roof that this machine has.
bool writeRoofline(const Breakdown &regions, StringRef path, StringRef model, int32_t threads, double peak) {
  json::Object data = regions.toJson(peak);
  data["model"] = json::fixUTF8(sys::path::filename(model));
  data["threads"] = threads;
  data["peak"] = peak;
  data["bandwidth"] = measureBandwidth(threads);
  std::string error;
  bool isWritten = writeTextFile(path, fillPage(kRoofline, "@ROOFLINE_DATA@", std::move(data)), error);
  if (isWritten)
    reportNote("the regions below the roof of this machine; look at " + path);
  else
    reportError(error);
  return isWritten;
}

/// Loads what was compiled or given; the fusion report says what it has of it. An exit code.
int load(CommandLine &line, LibraryArgument &library, int32_t threads, int32_t device, runner::Model &model,
         Measurement &result) {
  runner::Failure failure;
  double start = nowMs();
  model.useOwnProducts(line.has(OPT_own_products));
  model.useDevice(device);
  bool loaded = model.load(library.path(), line.text(OPT_entry).str(), threads, failure);
  loaded = loaded && (!line.has(OPT_own_state) || model.keepState(failure));
  result.loadMs = nowMs() - start;
  result.sessionMs = model.sessionMs();
  library.discard();
  return loaded ? reportGivenFusion(line, library, model.info()) : reportFailure(library.name(), failure);
}

/// Has the regions of a run timed. An exit code.
int lookInside(const CommandLine &line, runner::Model &model, StringRef name, Breakdown &regions) {
  bool hearsThreads = line.has(OPT_profile);
  if (hasGpuCode(model.info())) {
    if (line.has(OPT_breakdown) || line.has(OPT_roofline)) {
      reportError(name + " is for --target=cuda, whose regions are not timed; --profile shows its kernels");
      return ExitUsage;
    }
    regions.attachStream(model);
    return ExitSuccess;
  }
  std::string error;
  if (!regions.initialize(model.info().manifest_json, error)) {
    reportError(name + " cannot be profiled: " + error);
    return ExitUsage;
  }
  regions.attach(model, hearsThreads);
  return ExitSuccess;
}

/// Events around the runs on a GPU, or null.
std::unique_ptr<DeviceTimer> timeDevice(runner::Model &model, int32_t device) {
  if (!hasGpuCode(model.info()))
    return nullptr;
  std::string error;
  std::unique_ptr<DeviceTimer> timer = DeviceTimer::create(device, error);
  if (timer)
    model.useStream(timer->stream());
  else
    reportNote("no times of the GPU: " + error);
  return timer;
}

/// Makes each set of inputs; an exit code.
int makeSets(const attnrt_entry_info &entry, const runner::InputOptions &options,
             std::vector<std::vector<Tensor>> &sets, std::vector<std::string> &madeUp) {
  std::string error;
  for (std::vector<Tensor> &set : sets) {
    madeUp.clear();
    if (runner::Fault fault = runner::makeInputs(entry, options, set, error, &madeUp); fault != runner::Fault::None)
      return reportFault(fault, error);
  }
  return ExitSuccess;
}

/// Prints the roof that --roofline draws, without a model. An exit code.
int printMachine(CommandLine &line) {
  int32_t cpus = attnrt_available_cpus();
  auto threads = static_cast<int32_t>(line.number(OPT_threads, cpus, 1, cpus));
  if (!line.positional().empty())
    line.fail("--machine takes no model");
  for (auto [id, flag] :
       {std::pair(OPT_runs, "--runs"), std::pair(OPT_min_time, "--min-time"), std::pair(OPT_breakdown, "--breakdown"),
        std::pair(OPT_profile, "--profile"), std::pair(OPT_roofline, "--roofline")})
    if (line.has(id))
      line.fail(Twine(flag) + " is of a model's runs, and --machine takes no model");
  if (line.failed())
    return ExitUsage;
  double peak = measurePeak(threads), bandwidth = measureBandwidth(threads);
  if (line.has(OPT_json)) {
    jsonResult() << json::Value(json::Object{{"threads", threads}, {"peak", peak}, {"bandwidth", bandwidth}}) << '\n';
    return ExitSuccess;
  }
  outs() << threads << (threads == 1 ? " thread: " : " threads: ")
         << format("%.1f GFLOP/s of f32 in registers, %.1f GB/s from memory; they meet at %.1f operations a byte\n",
                   peak * 1e-9, bandwidth * 1e-9, peak / bandwidth);
  return ExitSuccess;
}

/// Whether pages can be written, before the time is spent on a measurement. An exit code.
int checkPages(const CommandLine &line) {
  for (auto [id, flag] : {std::pair(OPT_profile, "--profile"), std::pair(OPT_roofline, "--roofline")}) {
    if (!line.has(id))
      continue;
    std::string why;
    if (StringRef path = line.text(id); path.empty() || path == "-")
      why = std::string(flag) + " expects a file" + (path.empty() ? "" : ": standard output has the times");
    else if (!StagedOutput::create(path, why))
      why = std::string(flag) + ": " + why;
    if (why.empty())
      continue;
    reportError(why);
    return ExitUsage;
  }
  return ExitSuccess;
}

int runTool(int argc, char **argv) {
  int code = ExitSuccess;
  std::optional<CommandLine> line = CommandLine::parse(kTool, argc, argv, code);
  if (!line)
    return code;
  if (line->has(OPT_machine))
    return printMachine(*line);
  if ((code = checkPages(*line)))
    return code;
  runner::InputOptions options = inputOptions(*line);
  auto threads = static_cast<int32_t>(line->number(OPT_threads, 0, 1, 4096));
  auto deviceNumber = static_cast<int32_t>(line->number(OPT_device, 0, 0, runner::kMostDevices));
  // --runs alone is exact, --min-time has a floor.
  uint64_t runs = line->number(OPT_runs, 0, 1, 100000000);
  double minMs = line->real(OPT_min_time, runs ? 0 : 1) * 1e3;
  uint64_t sets = line->number(OPT_rotate, 1, 1, 1024);
  std::unique_ptr<LibraryArgument> library = LibraryArgument::prepare(*line, code);
  if (!library)
    return code;
  options.dimsAreOpen = library->isGiven();

  Measurement result;
  runner::Model model;
  if ((code = load(*line, *library, threads, deviceNumber, model, result)))
    return code;

  keepBounds(model.info(), model.entry().name, options);
  std::vector<OutputArgument> written;
  if (!outputArguments(*line, OPT_output, model.entry(), /*files=*/true, written))
    return ExitUsage;
  runner::Failure failure;
  if (!line->has(OPT_own_state) && !hasMemory(model, options, failure))
    return reportFailure(library->name(), failure);
  std::vector<Tensor> outputs;
  std::vector<std::vector<Tensor>> inputs(sets);
  std::vector<std::string> madeUp;
  if ((code = makeSets(model.entry(), options, inputs, madeUp)))
    return code;
  if (std::vector<std::string> names = namesLeftOut(model.entry(), inputs.front()); !names.empty())
    reportNote("runs without its optional " + Twine(names.size() == 1 ? "input " : "inputs ") +
               printable(join(names, ", ")) + "; --input gives values");
  Breakdown regions;
  bool looksInside = line->has(OPT_breakdown) || line->has(OPT_profile) || line->has(OPT_roofline);
  if (looksInside && (code = lookInside(*line, model, library->name(), regions)))
    return code;
  std::unique_ptr<DeviceTimer> device = timeDevice(model, deviceNumber);
  auto measureAll = [&] {
    return measure(model, inputs, outputs, runs ? runs : 3, minMs, result, looksInside ? &regions : nullptr,
                   device.get(), failure);
  };
  bool runsWell = measureAll();
  if (!runsWell && !madeUp.empty() && !line->has(OPT_own_state) && relateSizes(model, failure, options)) {
    if ((code = makeSets(model.entry(), options, inputs, madeUp)))
      return code;
    runsWell = measureAll();
  }
  if (!runsWell) {
    code = reportFailure(library->name(), failure);
    reportMadeUp(model.entry(), options, madeUp, code);
    return code;
  }
  if (!writeOutputs(written, model.entry(), outputs))
    return ExitUsage;
  double peak = looksInside && !hasGpuCode(model.info()) ? measurePeak(model.threads()) : 0;
  bool breaksDown = line->has(OPT_breakdown);
  if (line->has(OPT_json))
    printJson(result, model.threads(), model.entry(), inputs.front(),
              breaksDown ? std::optional(regions.toJson(peak)) : std::nullopt);
  else
    printText(library->name(), result, model.threads(), printInputs(model.entry(), inputs.front()));
  if (breaksDown && !line->has(OPT_json))
    regions.print(outs(), peak);
  if (line->has(OPT_profile) && !writeProfile(regions, line->text(OPT_profile), peak))
    return ExitUsage;
  if (line->has(OPT_roofline) &&
      !writeRoofline(regions, line->text(OPT_roofline), library->name(), model.threads(), peak))
    return ExitUsage;
  return ExitSuccess;
}

} // namespace

int main(int argc, char **argv) { return finishOutput(runTool(argc, argv)); }
