// onnx-case-server: compiles and runs models, one after the other, in one
// process, so that a suite of thousands of small ones pays for the start of
// LLVM once.
//
// A request is a line of JSON on standard input:
//
//   {"model": FILE, "library": FILE, "inputs": ["name=@file.npy", ...], "outputs": [["name", "file.npy"], ...]}
//
// with "gpu": "sm_80" for that architecture's CUDA instead of the CPU, "level": 0 for
// -O0, "quick": true for code that LLVM does not optimise, "shapes": {"name": [2, -1]} and "absent": ["name"] as
// --shape and --absent, "keep": true to leave the library there, and without "model" to run one that is there, and its
// answer a line on standard output, with the exit code that attn-run would have ended with:
//
//   {"code": 0, "message": "", "fused": 1, "softmaxes": 1, "compile_ms": 23.5}
//
// {"branches": FILE} writes the branches of our passes that were taken since the last one (Coverage.h).
//
// A model that makes it crash ends it; whoever asks sees the end of the stream.
#include "compiler/Compiler.h"
#include "dialects/attn/NodeLocation.h"
#include "dialects/attn/WeightStore.h"
#include "frontends/onnx/ImportOnnx.h"
#include "test/onnx_backend/Coverage.h"
#include "tools/attn-run/runner/Inputs.h"
#include "tools/attn-run/runner/Model.h"
#include "tools/attn-run/runner/Npy.h"

#include "mlir/IR/MLIRContext.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"
#include <chrono>
#include <cstring>
#include <iostream>
#include <optional>
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

void compile(const std::string &model, const std::string &library, CompileOptions options, const json::Object &request,
             Answer &answer) {
  DialectRegistry registry;
  registerCompilerDialects(registry);
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  context.loadAllAvailableDialects();
  FirstError errors(&context, answer.message);
  OwningOpRef<ModuleOp> module;
  WeightStore weights;
  onnx::ImportOptions served;
  served.servesBroadcasts = true;
  const json::Object *shapes = request.getObject("shapes");
  const json::Array *absent = request.getArray("absent");
  for (const json::Value &name : absent ? *absent : json::Array())
    served.absent.insert(name.getAsString()->str());
  for (const auto &[name, shape] : shapes ? *shapes : json::Object())
    for (const json::Value &size : *shape.getAsArray())
      served.shapes[name.str()].push_back(*size.getAsInteger());
  onnx::ImportStatus status = onnx::importOnnx(&context, model, served, module, weights);
  if (status != onnx::ImportStatus::Ok) {
    answer.code = status == onnx::ImportStatus::Unsupported ? 2 : status == onnx::ImportStatus::Request ? 1 : 3;
    return;
  }
  if (succeeded(compileModule(std::move(module), weights, options, library, &answer.report)))
    return;
  answer.code = answer.report.unsupported ? 2 : 4;
  if (answer.message.empty())
    answer.message = "the compile failed without a message";
}

/// `tensor` as `dtype`, of the same bytes: files know no narrow types.
bool retyped(const runner::Tensor &tensor, int32_t dtype, runner::Tensor &result, std::string &error) {
  if (!runner::Tensor::create(dtype, tensor.shape(), result, error))
    return false;
  memcpy(result.data(), tensor.data(), result.bytes());
  return true;
}

bool isNarrow(int32_t dtype) {
  return attnrt_dtype_size(dtype) == 1 && dtype != ATTNRT_I8 && dtype != ATTNRT_U8 && dtype != ATTNRT_BOOL;
}

bool readInputs(const attnrt_entry_info &entry, const json::Object &request, std::vector<runner::Tensor> &inputs,
                std::string &error) {
  const json::Array *given = request.getArray("inputs");
  for (int32_t i = 0; i < entry.num_inputs; ++i) {
    std::string prefix = std::string(entry.inputs[i].name) + "=", text;
    for (size_t k = 0; given && k < given->size(); ++k)
      if (llvm::StringRef value = (*given)[k].getAsString().value_or(""); value.starts_with(prefix))
        text = value.drop_front(prefix.size()).str();
    runner::Tensor tensor;
    if (text.empty() && entry.optional_inputs && entry.optional_inputs[i]) { // no elements say that it is left out
      std::vector<int64_t> none(entry.inputs[i].rank, 0);
      if (!runner::Tensor::create(entry.inputs[i].dtype, none, tensor, error))
        return false;
      inputs.push_back(std::move(tensor));
      continue;
    }
    if (text.empty())
      error = "no input '" + std::string(entry.inputs[i].name) + "'";
    if (text.empty() || runner::parseTensor(text, tensor, error) != runner::Fault::None)
      return false;
    if (!isNarrow(entry.inputs[i].dtype)) {
      inputs.push_back(std::move(tensor));
      continue;
    }
    if (!retyped(tensor, entry.inputs[i].dtype, inputs.emplace_back(), error))
      return false;
  }
  return true;
}

void run(const std::string &library, const json::Object &request, Answer &answer) {
  runner::Model model;
  runner::Failure failure;
  if (!model.load(library, "", 1, failure)) {
    answer.code = 4;
    answer.message = failure.message;
    return;
  }
  std::vector<runner::Tensor> inputs, outputs;
  if (!readInputs(model.entry(), request, inputs, answer.message)) {
    answer.code = 3;
    return;
  }
  if (!model.run(inputs, outputs, failure)) {
    answer.code = failure.status == ATTNRT_UNSUPPORTED ? 2 : 3;
    answer.message = std::string(attnrt_status_name(failure.status)) + ": " + failure.message;
    return;
  }
  const json::Array *wanted = request.getArray("outputs");
  for (size_t i = 0; wanted && i < wanted->size(); ++i) {
    const json::Array *pair = (*wanted)[i].getAsArray();
    if (!pair || pair->size() != 2)
      continue;
    for (int32_t k = 0; k < model.entry().num_outputs; ++k) {
      if ((*pair)[0].getAsString() != llvm::StringRef(model.entry().outputs[k].name))
        continue;
      runner::Tensor bytes;
      bool narrow = isNarrow(outputs[k].dtype());
      if ((narrow && !retyped(outputs[k], ATTNRT_U8, bytes, answer.message)) ||
          !runner::writeNpy((*pair)[1].getAsString().value_or("").str(), narrow ? bytes : outputs[k], answer.message))
        answer.code = 1;
    }
  }
}

Answer serve(const json::Object &request) {
  Answer answer;
  if (std::optional<llvm::StringRef> file = request.getString("branches")) {
    if (!writeBranches(file->str())) {
      answer.code = 1;
      answer.message = ("cannot write '" + *file + "'").str();
    }
    return answer;
  }
  std::string library = request.getString("library").value_or("").str();
  CompileOptions options;
  options.gpuArchs = request.getString("gpu").value_or("").str();
  options.quickCode = request.getBoolean("quick").value_or(false);
  options.optLevel = request.getInteger("level").value_or(options.optLevel);
  auto begin = std::chrono::steady_clock::now();
  if (std::optional<llvm::StringRef> model = request.getString("model"))
    compile(model->str(), library, options, request, answer);
  answer.milliseconds = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  if (answer.code == 0) {
    run(library, request, answer);
    if (!request.getBoolean("keep").value_or(false))
      unlink(library.c_str());
  }
  return answer;
}

} // namespace

int main(int argc, char **) {
  if (argc > 1) {
    llvm::errs() << "usage: onnx-case-server; a request is a line of JSON on standard input (CaseServer.cpp)\n";
    return 1;
  }
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
