// Runs a model library, or compiles an ONNX model and runs it.
#include "tools/attn-run/AttentionMaps.h"
#include "tools/attn-run/CompareReference.h"
#include "tools/attn-run/Describe.h"
#include "tools/attn-run/NarrowRows.h"
#include "tools/options/Console.h"
#include "tools/options/LibraryArgument.h"
#include "tools/options/RunArguments.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;
using namespace attn;
using namespace attn::tools;
using runner::Tensor;

namespace {

constexpr ToolInfo kTool = {
    "attn-run",
    RunVis,
    "attn-run [options] MODEL.so|MODEL.onnx|GRAPH.json",
    "Runs a model library, or compiles an ONNX model or an in-house graph and runs it, in one step.\n"
    "Without --output and --expected-output, what comes out is summed up on standard output.",
    "  attn-run model.so                                 on inputs made from a seed\n"
    "  attn-run model.so --dim=seq:128 --threads=2       with a size for an open dimension\n"
    "  attn-run model.onnx --input=x=@x.npy --output=y=@y.npy\n"
    "  attn-run model.onnx --input=x=2x3xf32=1,2,3,4,5,6 --expected-output=y=@y.npy --rtol=1e-5\n"
    "  attn-run bert.onnx --input=input_ids=@ids.npy --attention-maps=maps   what it attends to, as a page\n"
    "  attn-run model.onnx --weights=int8 --compare=f32   what fewer bits cost\n"
    "  attn-run --info model.so                          what the library holds\n",
    "  0  the model ran, and its outputs are as expected\n"
    "  1  the command line is wrong, or a file cannot be read or written\n"
    "  2  the model needs what attnc does not support, or the library does not fit this machine\n"
    "  3  the model, the library or an input is damaged or does not fit\n"
    "  4  an error inside attnc, or a limit of memory or time was reached\n"
    "  5  an output is not what --expected-output says\n"};

/// Compares what --expected-output asks for; an exit code.
int compareOutputs(const std::vector<OutputArgument> &arguments, const std::vector<Tensor> &wanted,
                   const std::vector<Tensor> &outputs, const attnrt_entry_info &entry, double rtol, double atol,
                   std::string *json) {
  int code = ExitSuccess;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const char *name = entry.outputs[arguments[i].index].name;
    runner::Comparison result = runner::compare(outputs[arguments[i].index], wanted[i], rtol, atol);
    if (!result.equal) {
      reportError("output '" + Twine(name) + "': " + result.complaint);
      code = ExitDifferent;
    }
    if (json)
      raw_string_ostream(*json) << (i ? "," : "") << "{\"name\":" << jsonString(name)
                                << ",\"equal\":" << (result.equal ? "true" : "false")
                                << ",\"max_error\":" << jsonNumber(result.maxError)
                                << ",\"different\":" << result.different << "}";
    else if (result.equal)
      outs() << name << ": as expected, largest difference " << format("%.3g", result.maxError) << '\n';
  }
  return code;
}

/// Runs the model of `options`, and `reference` beside it if there is one.
int run(CommandLine &line, runner::Model &model, runner::Model *reference, StringRef name, runner::InputOptions options,
        double rtol, double atol, const AttentionMapsOptions &maps) {
  const attnrt_entry_info &entry = model.entry();
  runner::Model &first = reference ? *reference : model;
  std::vector<OutputArgument> written, expected;
  if (!outputArguments(line, OPT_output, entry, /*files=*/true, written) ||
      !outputArguments(line, OPT_expected_output, entry, /*files=*/false, expected))
    return ExitUsage;
  // What streams or has a state is run once.
  bool mayRunOften = !line.has(OPT_stream) && !line.has(OPT_own_state);
  runner::Failure failure;
  if (mayRunOften && !hasMemory(first, options, failure))
    return reportFailure(name, failure);
  std::string error;
  std::vector<std::string> madeUp;
  std::vector<Tensor> inputs, outputs, wanted(expected.size());
  // A reference takes caches as floats, and the model the same ones in bytes.
  if (runner::Fault fault = runner::makeInputs(first.entry(), options, inputs, error, &madeUp);
      fault != runner::Fault::None)
    return reportFault(fault, error);
  if (!madeUp.empty()) // or what comes of it is taken for real
    reportNote("made from the seed " + Twine(options.seed) + ", as --input does not give " +
               (madeUp.size() == 1 ? "it: " : "them: ") + printable(join(madeUp, ", ")) +
               (reference
                    ? "; on such inputs, whose integers are 0 or 1, models can lie further from f32 than on real ones"
                : !maps.folder.empty() ? "; a mask of booleans or integers made so hides half of the keys"
                                       : ""));
  for (size_t i = 0; i < expected.size(); ++i)
    if (runner::Fault fault = runner::parseTensor(expected[i].value, wanted[i], error); fault != runner::Fault::None)
      return reportFault(fault, error);

  bool hasStreamed = false;
  if (line.has(OPT_stream))
    model.onToken([&hasStreamed](int64_t row, int64_t step, int64_t token) {
      hasStreamed = true;
      outs() << row << ' ' << step << ' ' << token << '\n';
      outs().flush();
      return !outs().has_error(); // a reader that is gone wants no more
    });
  std::vector<Tensor> references;
  auto runAll = [&] {
    failure = runner::Failure();
    if (reference && (!reference->run(inputs, references, failure) || !narrowInputs(entry, inputs, failure.message)))
      return false;
    return model.run(inputs, outputs, failure);
  };
  bool runs = runAll();
  if (!runs && !madeUp.empty() && mayRunOften && relateSizes(first, failure, options))
    runs = runner::makeInputs(first.entry(), options, inputs, error) == runner::Fault::None && runAll();
  if (!runs) {
    int code = reportFailure(name, failure);
    reportMadeUp(first.entry(), options, madeUp, code);
    return code;
  }
  if (line.has(OPT_stream) && !hasStreamed)
    reportNote("--stream: entry '" + Twine(entry.name) +
               "' gave no token before its end; a search with one hypothesis does, of beams none is final");
  if (!writeOutputs(written, entry, outputs))
    return ExitUsage;
  if (!maps.folder.empty())
    if (int code = writeAttentionMaps(maps, name, model.info(), entry, outputs))
      return code;
  bool json = line.has(OPT_json);
  std::string comparisons;
  int code = compareOutputs(expected, wanted, outputs, entry, rtol, atol, json ? &comparisons : nullptr);
  if (json)
    jsonResult() << "{\"outputs\":" << outputsJson(entry, outputs) << ",\"expected\":[" << comparisons << ']';
  if (reference) {
    if (json)
      outs() << ",\"compared\":";
    describeDistances(outs(), entry, outputs, references, json);
  }
  if (json)
    outs() << "}\n";
  else if (!reference && written.empty() && expected.empty() && maps.folder.empty())
    describeOutputs(outs(), entry, outputs);
  return code;
}

int runTool(int argc, char **argv) {
  int code = ExitSuccess;
  std::optional<CommandLine> line = CommandLine::parse(kTool, argc, argv, code);
  if (!line)
    return code;
  runner::InputOptions options = inputOptions(*line);
  double rtol = line->real(OPT_rtol, 1e-3), atol = line->real(OPT_atol, 1e-4);
  auto threads = static_cast<int32_t>(line->number(OPT_threads, 0, 1, 4096));
  auto device = static_cast<int32_t>(line->number(OPT_device, 0, 0, runner::kMostDevices));
  if (StringRef kind = line->text(OPT_compare); line->has(OPT_compare)) {
    StringRef path = line->positional().empty() ? "" : line->positional().front();
    if (kind != "f32")
      line->fail("--compare expects f32, not '" + kind + "'");
    else if (!LibraryArgument::isModel(path))
      line->fail("--compare=f32 compiles the model itself: give MODEL.onnx or GRAPH.json");
    else if (line->has(OPT_info))
      line->fail("--info runs nothing that --compare could compare");
  }
  AttentionMapsOptions maps;
  if ((code = readMapsOptions(*line, maps)))
    return code;
  std::unique_ptr<LibraryArgument> library = LibraryArgument::prepare(*line, code), reference;
  if (library && line->has(OPT_compare) && !(reference = LibraryArgument::prepareReference(*line, code)))
    library.reset();
  if (!library)
    return code;
  options.dimsAreOpen = library->isGiven();

  runner::Model model, referenceModel;
  runner::Failure failure;
  std::string entry = line->text(OPT_entry).str();
  bool onlyInfo = line->has(OPT_info);
  for (runner::Model *each : {&model, &referenceModel}) {
    each->useOwnProducts(line->has(OPT_own_products));
    each->useDevice(device);
  }
  bool loaded = onlyInfo ? model.open(library->path(), entry, failure)
                         : model.load(library->path(), entry, threads, failure) &&
                               (!reference || referenceModel.load(reference->path(), entry, threads, failure));
  if (loaded && !onlyInfo && line->has(OPT_own_state))
    loaded = model.keepState(failure) && (!reference || referenceModel.keepState(failure));
  library->discard();
  if (reference)
    reference->discard();
  if (!loaded)
    return reportFailure(library->name(), failure);
  if ((code = reportGivenFusion(*line, *library, model.info())))
    return code;
  if (!onlyInfo) {
    keepBounds(model.info(), model.entry().name, options);
    return run(*line, model, reference ? &referenceModel : nullptr, library->name(), options, rtol, atol, maps);
  }
  if (line->has(OPT_json))
    jsonResult() << modelJson(model.info()) << '\n';
  else
    describeModel(outs(), library->name(), model.info());
  return ExitSuccess;
}

} // namespace

int main(int argc, char **argv) { return finishOutput(runTool(argc, argv)); }
