// Makes a model that fails smaller, as long as it fails. For whoever reports or looks into a failure.
#include "dialects/attn/AttnOps.h"
#include "frontends/onnx/Reduce.h"
#include "tools/attn-reduce/ReducibleModule.h"
#include "tools/attnc/Diagnostics.h"
#include "tools/options/Console.h"
#include "tools/options/Options.h"
#include "tools/options/ScratchFolder.h"
#include "tools/options/StagedOutput.h"

#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"
#include <cerrno>
#include <cstring>

using namespace llvm;
using namespace attn;
using namespace attn::tools;

namespace {

constexpr ToolInfo kTool = {
    "attn-reduce",
    ReduceVis,
    "attn-reduce [options] --test=PROGRAM MODEL.onnx|FILE.mlir",
    "Leaves out of a model whatever it can while PROGRAM, which is called with the path of each candidate, exits with "
    "0:\n"
    "it says by this that the candidate still fails as the model does. The smallest so far is always in the output.",
    "  attn-reduce model.onnx --test=./still-wrong.sh -o small.onnx\n"
    "  attn-reduce model.onnx --test=grep --test-arg=-q --test-arg=Softmax\n"
    "  attn-reduce model.reproducer.mlir --test=./still-crashes.sh --test-timeout=20\n",
    "  0  a model is in the output from which nothing more can be left out\n"
    "  1  the command line is wrong, a file cannot be read or written, or the model itself does not pass the test\n"
    "  2  the model is too large for one file\n"
    "  3  the model is damaged\n"};

/// The program that says whether a candidate fails.
class FailureTest {
public:
  static std::optional<FailureTest> create(CommandLine &line, StringRef extension) {
    FailureTest test;
    StringRef name = line.text(OPT_test);
    ErrorOr<std::string> program = name.contains('/') ? ErrorOr<std::string>(name.str()) : sys::findProgramByName(name);
    if (!program || !sys::fs::can_execute(*program)) {
      line.fail(name.empty() ? "--test=PROGRAM is missing: what says whether a candidate still fails"
                             : "--test: '" + name.str() + "' is no program that can be run");
      return std::nullopt;
    }
    test.folder = ScratchFolder::create(ScratchFolder::temporaryParent());
    if (!test.folder) {
      reportError("cannot make a folder in " + ScratchFolder::temporaryParent() + ": " + std::strerror(errno));
      return std::nullopt;
    }
    test.program = *program;
    test.arguments = {test.program};
    for (StringRef argument : line.all(OPT_test_arg))
      test.arguments.push_back(argument.str());
    test.arguments.push_back(test.folder->path() + "/candidate" + extension.str());
    test.seconds = static_cast<unsigned>(line.number(OPT_test_timeout, 300, 1, 1000000));
    return test;
  }

  /// Whether a file of these bytes fails. A program that does not end, or is killed, says no.
  bool fails(StringRef bytes, std::string &error) {
    ++calls;
    if (!writeTextFile(arguments.back(), bytes, error))
      return false;
    SmallVector<StringRef> views(arguments.begin(), arguments.end());
    std::optional<StringRef> nothing[] = {StringRef(), StringRef(), StringRef()};
    bool couldNotStart = false;
    int status = sys::ExecuteAndWait(program, views, std::nullopt, nothing, seconds, 0, &error, &couldNotStart);
    if (!couldNotStart)
      error.clear();
    return status == 0;
  }

  unsigned numCalls() const { return calls; }

private:
  std::unique_ptr<ScratchFolder> folder;
  std::string program;
  std::vector<std::string> arguments;
  unsigned seconds = 0, calls = 0;
};

/// Leaves out parts of `model`, many at once and ever fewer, until none can go. An exit code.
template <typename Model> int reduce(Model &model, FailureTest &test, StringRef output) {
  std::string error;
  const size_t nodes = model.size().first;
  auto attempt = [&](unsigned part, size_t first, size_t last) {
    if (!model.leaveOut(part, first, last) || model.candidateSize() >= model.size())
      return false;
    showProgress("candidate " + std::to_string(test.numCalls()) + ": " + std::to_string(model.candidateSize().first) +
                 " of " + std::to_string(nodes) + " nodes, " + std::to_string(model.size().first) + " so far");
    if (!test.fails(model.candidate(), error))
      return false;
    std::string bytes = model.candidate();
    model.accept();
    return writeTextFile(output, bytes, error);
  };
  bool isSmaller = true;
  while (isSmaller) {
    isSmaller = false;
    for (unsigned part = 0; part < Model::NumParts; ++part)
      for (size_t chunk = model.count(part); chunk && error.empty(); chunk /= 2)
        for (size_t first = 0; first < model.count(part) && error.empty();) {
          size_t last = std::min(first + chunk, model.count(part));
          if (attempt(part, first, last))
            isSmaller = true; // what followed stands at `first` now
          else
            first = last;
        }
  }
  showProgress("");
  if (!error.empty())
    reportError(error);
  return error.empty() ? ExitSuccess : ExitUsage;
}

template <typename Model>
int reduceFrom(Model &model, FailureTest &test, const CommandLine &line, StringRef input, StringRef output) {
  std::string error;
  showProgress("testing the model itself");
  if (!test.fails(model.candidate(), error)) {
    reportError(error.empty() ? input + ": --test does not exit with 0 for the model itself: there is nothing to keep"
                              : Twine(error));
    return ExitUsage;
  }
  auto before = model.size();
  if (!writeTextFile(output, model.candidate(), error)) {
    reportError(error);
    return ExitUsage;
  }
  if (int code = reduce(model, test, output))
    return code;
  auto after = model.size();
  if (line.has(OPT_json))
    jsonResult() << "{\"output\":" << jsonString(output) << ",\"nodes_before\":" << before.first
                 << ",\"nodes\":" << after.first << ",\"bytes_before\":" << before.second
                 << ",\"bytes\":" << after.second << ",\"candidates\":" << test.numCalls() << "}\n";
  else
    outs() << printable(output) << ": " << after.first << " of " << before.first << " nodes, "
           << formatBytes(after.second) << " of " << formatBytes(before.second) << ", " << test.numCalls()
           << " candidates\n";
  return ExitSuccess;
}

int reduceOnnx(mlir::MLIRContext &context, CommandLine &line, FailureTest &test, StringRef input, StringRef output) {
  onnx::ImportStatus status = onnx::ImportStatus::Ok;
  std::unique_ptr<onnx::ReducibleModel> model = onnx::ReducibleModel::read(&context, input, status);
  if (!model)
    return status == onnx::ImportStatus::Request       ? ExitUsage
           : status == onnx::ImportStatus::Unsupported ? ExitUnsupported
                                                       : ExitInvalid;
  if (size_t untyped = model->countUntyped())
    reportNote(input + ": the types of " + Twine(untyped) +
               " values are not declared, so that what makes them can go only with what reads them; "
               "onnx.shape_inference declares types");
  return reduceFrom(*model, test, line, input, output);
}

int runTool(int argc, char **argv) {
  int code = ExitSuccess;
  std::optional<CommandLine> line = CommandLine::parse(kTool, argc, argv, code);
  if (!line)
    return code;
  std::vector<StringRef> inputs = line->positional();
  if (inputs.size() != 1)
    line->fail(inputs.empty() ? "no model given" : "one model at a time, not " + std::to_string(inputs.size()));
  StringRef input = inputs.empty() ? "" : inputs.front(), extension = sys::path::extension(input);
  if (inputs.size() == 1 && extension != ".onnx" && extension != ".mlir")
    line->fail("'" + input + "' is neither MODEL.onnx nor FILE.mlir");
  if (line->failed())
    return ExitUsage;
  std::optional<FailureTest> test = FailureTest::create(*line, extension);
  if (line->failed() || !test)
    return ExitUsage;
  std::string fallback = (input.drop_back(extension.size()) + ".reduced" + extension).str();
  StringRef output = line->text(OPT_o, fallback);

  mlir::DialectRegistry registry;
  mlir::registerAllDialects(registry);
  mlir::registerAllExtensions(registry);
  registry.insert<AttnDialect>();
  mlir::MLIRContext context(registry);
  attn::tools::DiagnosticPrinter printer(&context, input.str());
  if (extension == ".onnx")
    return reduceOnnx(context, *line, *test, input, output);
  std::unique_ptr<ReducibleModule> module = ReducibleModule::read(&context, input);
  return module ? reduceFrom(*module, *test, *line, input, output) : ExitInvalid;
}

} // namespace

int main(int argc, char **argv) { return finishOutput(runTool(argc, argv)); }
