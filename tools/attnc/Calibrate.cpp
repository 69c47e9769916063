#include "tools/attnc/Calibrate.h"

#include "tools/attn-run/CompareReference.h"
#include "tools/attn-run/NarrowRows.h"
#include "tools/attnc/Npz.h"
#include "tools/options/RunArguments.h"
#include "tools/options/ScratchFolder.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"
#include <cstring>

using namespace llvm;
using attn::runner::Tensor;

namespace attn::tools {
namespace {

using Tensors = std::vector<Tensor>;

/// "'x' (float32 [n, 64])".
std::string describe(const attnrt_tensor_info &input) {
  return "'" + std::string(input.name) + "' (" + runner::printType(input) + ")";
}

std::string listInputs(const attnrt_entry_info &entry) {
  return join(map_range(ArrayRef(entry.inputs, entry.num_inputs), describe), ", ");
}

class Calibration {
public:
  Calibration(const Request &request, std::string folder)
      : request(request), name(sys::path::filename(request.job.input).str()), reference(std::move(folder) + "/f32.so") {
  }

  int run(const std::string &library, std::string &text) {
    std::string error;
    if (runner::Fault fault = file.open(request.calibration, error); fault != runner::Fault::None)
      return reportFault(fault, error);
    if (int code = compile())
      return code;
    return inWorker([&](WorkerChannel &channel) { return runBoth(library, channel); }, text);
  }

private:
  int inWorker(function_ref<int(WorkerChannel &)> body, std::string &report) {
    WorkerResult result = runWorker(request.limits, body,
                                    [&](StringRef stage) { showProgress((name + ": calibrating: " + stage).str()); });
    showProgress("");
    report = std::move(result.report);
    if (result.end == WorkerResult::End::Exited)
      return result.code;
    std::string how = result.end == WorkerResult::End::OutOfMemory ? "ran out of memory"
                      : result.end == WorkerResult::End::TimedOut  ? "was stopped at the limit of --timeout"
                      : result.end == WorkerResult::End::Died      ? "died: " + std::string(strsignal(result.code))
                                                                   : "was stopped";
    reportError(name + ": --calibrate: " + how + " (" + result.stage + ")");
    return ExitInternal;
  }

  int compile() {
    CompileJob job = request.job;
    job.output = reference;
    job.constants = reference + ".constants";
    job.profile = job.annotated = "";
    job.profile.clear();
    job.compile.weights = job.compile.precision = "f32";
    job.compile.cache = "model";
    job.compile.reproducerPath.clear();
    job.compile.dumpIrDir.clear();
    job.compile.printIrAfterAll = job.compile.timing = false;
    std::string report;
    int code = inWorker([&](WorkerChannel &channel) { return runCompileJob(job, channel); }, report);
    if (code)
      reportError(name + ": --calibrate cannot compile the model in f32");
    return code;
  }

  /// The inputs of `entry` from the file, in its order; the exit code.
  int readInputs(const attnrt_entry_info &entry, Tensors &inputs) {
    std::vector<std::string> names = file.names(), missing, unknown = names;
    for (const attnrt_tensor_info &input : ArrayRef(entry.inputs, entry.num_inputs)) {
      if (!is_contained(names, input.name))
        missing.push_back(describe(input));
      erase(unknown, input.name);
    }
    if (!missing.empty()) {
      reportError(request.calibration + ": has no " + printable(join(missing, ", ")) + "; its arrays are called " +
                  (names.empty() ? "nothing at all" : printable("'" + join(names, "', '") + "'")) +
                  ": write it with numpy.savez(FILE, " + (missing.size() == 1 ? "input" : "inputs") +
                  "=...), each by its name in the model");
      return ExitInvalid;
    }
    if (!unknown.empty())
      reportNote(request.calibration + ": " + printable("'" + join(unknown, "', '") + "'") +
                 (unknown.size() == 1 ? " is no input" : " are no inputs") + " of the model and not used; it takes " +
                 printable(listInputs(entry)));
    inputs.resize(entry.num_inputs);
    std::string error;
    for (int32_t n = 0; n < entry.num_inputs; ++n)
      if (runner::Fault fault = file.read(entry.inputs[n].name, inputs[n], error); fault != runner::Fault::None)
        return reportFault(fault, error);
    return ExitSuccess;
  }

  int runBoth(const std::string &library, WorkerChannel &channel) {
    channel.stage("running");
    runner::Model narrow, plain;
    runner::Failure failure;
    if (!narrow.load(library, "", 0, failure) || !plain.load(reference, "", 0, failure))
      return reportFailure(name, failure);
    Tensors inputs, outputs, references;
    if (int code = readInputs(plain.entry(), inputs))
      return code;
    if (!plain.run(inputs, references, failure) || !narrowInputs(narrow.entry(), inputs, failure.message) ||
        !narrow.run(inputs, outputs, failure)) {
      int code = reportFailure(request.calibration, failure);
      if (code == ExitInvalid)
        reportNote("the model takes " + printable(listInputs(plain.entry())));
      return code;
    }
    std::string text;
    raw_string_ostream os(text);
    describeDistances(os, narrow.entry(), outputs, references, request.json);
    channel.report(text);
    return ExitSuccess;
  }

  const Request &request;
  std::string name, reference;
  NpzFile file;
};

} // namespace

int calibrate(const Request &request, const std::string &library, std::string &text) {
  std::unique_ptr<ScratchFolder> folder = ScratchFolder::create(ScratchFolder::temporaryParent());
  if (!folder) {
    reportError("cannot make a folder for --calibrate in " + ScratchFolder::temporaryParent());
    return ExitUsage;
  }
  return Calibration(request, folder->path()).run(library, text);
}

} // namespace attn::tools
