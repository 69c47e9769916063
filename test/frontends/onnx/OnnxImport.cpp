// onnx-import MODEL [--dim=name:size] [--shape=name:2x3] [--quiet] [--locations]
//
// Imports one model, verifies the IR and prints it; diagnostics go to stderr as
// attnc prints them. Exit status: 0, 2 (unsupported), 3 (invalid) or 4 (the
// importer made IR that does not verify). --list-operators prints
// "domain Operator version" for each registered importer.
#include "dialects/attn/NodeLocation.h"
#include "dialects/attn/WeightStore.h"
#include "frontends/onnx/ImportOnnx.h"
#include "frontends/onnx/Importer.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/Verifier.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace attn;

static int listOperators() {
  onnx::OpRegistry registry;
  onnx::registerAllOps(registry);
  for (const auto &[name, versions] : registry.entries())
    for (const auto &[version, fn] : versions)
      llvm::outs() << (name.first.empty() ? "ai.onnx" : name.first) << " " << name.second << " " << version << "\n";
  return 0;
}

static int usage() {
  llvm::errs()
      << "usage: onnx-import MODEL [--dim=NAME:SIZE] [--shape=INPUT:2x3] [--quiet] [--locations], or onnx-import "
         "--list-operators\n";
  return 1;
}

int main(int argc, char **argv) {
  onnx::ImportOptions options;
  std::string path;
  bool quiet = false, locations = false;
  for (int i = 1; i < argc; ++i) {
    StringRef argument(argv[i]);
    if (argument == "--list-operators")
      return listOperators();
    if (argument == "--quiet") {
      quiet = true;
    } else if (argument == "--locations") {
      locations = true;
    } else if (argument.consume_front("--dim=")) {
      auto [name, size] = argument.rsplit(':');
      size.getAsInteger(10, options.dims[name.str()]);
    } else if (argument.consume_front("--shape=")) {
      auto [name, sizes] = argument.rsplit(':');
      SmallVector<StringRef> parts;
      sizes.split(parts, 'x');
      for (StringRef part : parts)
        part.getAsInteger(10, options.shapes[name.str()].emplace_back());
    } else if (argument.starts_with("-") || !path.empty()) {
      return usage();
    } else {
      path = argument.str();
    }
  }
  if (path.empty())
    return usage();
  MLIRContext context;
  ScopedDiagnosticHandler handler(&context, [](Diagnostic &diagnostic) {
    llvm::errs() << "error: " << describe(diagnostic.getLocation()) << ": " << diagnostic.str() << "\n";
  });
  WeightStore weights;
  OwningOpRef<ModuleOp> module;
  onnx::ImportStatus status = onnx::importOnnx(&context, path, options, module, weights);
  if (status != onnx::ImportStatus::Ok)
    return status == onnx::ImportStatus::Unsupported ? 2 : status == onnx::ImportStatus::Request ? 1 : 3;
  bool valid = succeeded(verify(*module));
  if (!quiet)
    module->print(llvm::outs(), OpPrintingFlags().enableDebugInfo(locations, /*prettyForm=*/true));
  return valid ? 0 : 4;
}
