// onnx-case-server: compiles and runs models, one after the other, in one
// process, so that a suite of thousands of small ones pays for the start of
// LLVM once.
//
// A request is a line of JSON on standard input:
//
//   {"model": FILE, "library": FILE, "inputs": ["name=@file.npy", ...], "outputs": [["name", "file.npy"], ...]}
//
// and its answer a line on standard output, with the exit code that attn-run
// would have ended with:
//
//   {"code": 0, "message": "", "fused": 1, "softmaxes": 1, "compile_ms": 23.5}
//
// A model that makes it crash ends it; whoever asks sees the end of the stream.
#include "compiler/Compiler.h"
#include "dialects/attn/NodeLocation.h"
#include "dialects/attn/WeightStore.h"
#include "frontends/onnx/ImportOnnx.h"
#include "tools/attn-run/runner/Inputs.h"
#include "tools/attn-run/runner/Model.h"
#include "tools/attn-run/runner/Npy.h"

#include "mlir/IR/MLIRContext.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"
#include <chrono>
#include <iostream>
#include <string>
#include <unistd.h>

using namespace mlir;
using namespace attn;
namespace json = llvm::json;

namespace {

struct Answer {
  int code = 0;
  std::string message;
  CompileReport report;
  double milliseconds = 0;
};

/// The first error of the context, as attnc prints it.
class FirstError {
public:
  FirstError(MLIRContext *context, std::string &text)
      : handler(context, [&text](Diagnostic &diagnostic) {
          if (diagnostic.getSeverity() != DiagnosticSeverity::Error || !text.empty())
            return;
          std::string where = describe(diagnostic.getLocation());
          text = (where.empty() ? "" : where + ": ") + diagnostic.str();
        }) {}

private:
  ScopedDiagnosticHandler handler;
};

void compile(const std::string &model, const std::string &library, Answer &answer) {
  DialectRegistry registry;
  registerCompilerDialects(registry);
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  context.loadAllAvailableDialects();
  FirstError errors(&context, answer.message);
  OwningOpRef<ModuleOp> module;
  WeightStore weights;
  onnx::ImportStatus status = onnx::importOnnx(&context, model, {}, module, weights);
  if (status != onnx::ImportStatus::Ok) {
    answer.code = status == onnx::ImportStatus::Unsupported ? 2 : 3;
    return;
  }
  if (succeeded(compileModule(std::move(module), weights, {}, library, &answer.report)))
    return;
  answer.code = 4;
  if (answer.message.empty())
    answer.message = "the compile failed without a message";
}

void run(const std::string &library, const json::Object &request, Answer &answer) {
  runner::Model model;
  runner::Failure failure;
  if (!model.load(library, "", 1, failure)) {
    answer.code = 4;
    answer.message = failure.message;
    return;
  }
  runner::InputOptions options;
  if (const json::Array *inputs = request.getArray("inputs"))
    for (const json::Value &input : *inputs)
      options.inputs.push_back(input.getAsString().value_or("").str());
  std::vector<runner::Tensor> inputs, outputs;
  if (runner::makeInputs(model.entry(), options, inputs, answer.message) != runner::Fault::None) {
    answer.code = 3;
    return;
  }
  if (!model.run(inputs, outputs, failure)) {
    answer.code = 3;
    answer.message = std::string(attnrt_status_name(failure.status)) + ": " + failure.message;
    return;
  }
  const json::Array *wanted = request.getArray("outputs");
  for (size_t i = 0; wanted && i < wanted->size(); ++i) {
    const json::Array *pair = (*wanted)[i].getAsArray();
    if (!pair || pair->size() != 2)
      continue;
    for (int32_t k = 0; k < model.entry().num_outputs; ++k)
      if ((*pair)[0].getAsString() == llvm::StringRef(model.entry().outputs[k].name) &&
          !runner::writeNpy((*pair)[1].getAsString().value_or("").str(), outputs[k], answer.message))
        answer.code = 1;
  }
}

Answer serve(const json::Object &request) {
  Answer answer;
  std::string library = request.getString("library").value_or("").str();
  auto begin = std::chrono::steady_clock::now();
  compile(request.getString("model").value_or("").str(), library, answer);
  answer.milliseconds = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  if (answer.code == 0) {
    run(library, request, answer);
    unlink(library.c_str());
  }
  return answer;
}

} // namespace

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    llvm::Expected<json::Value> request = json::parse(line);
    if (!request || !request->getAsObject()) {
      llvm::consumeError(request.takeError());
      return 1;
    }
    Answer answer = serve(*request->getAsObject());
    llvm::outs() << json::Value(json::Object{{"code", answer.code},
                                             {"message", json::fixUTF8(answer.message)},
                                             {"fused", answer.report.fusedAttentions},
                                             {"softmaxes", answer.report.softmaxes},
                                             {"compile_ms", answer.milliseconds}})
                 << "\n";
    llvm::outs().flush();
  }
  return 0;
}
