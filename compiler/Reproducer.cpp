#include "compiler/Target.h"
#include "compiler/emit/cpu/Target.h"
#include "compiler/package/LibraryFile.h"
#include "compiler/pipelines/Pipelines.h"

#include "mlir/Pass/PassManager.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;

LogicalResult attn::writeReproducer(ModuleOp module, const CompileOptions &options, StringRef path) {
  std::string error;
  FailureOr<TargetAttr> target = makeTarget(module.getContext(), options.cpu, error);
  if (failed(target))
    return module.emitError(error);
  module->setAttr(AttnDialect::kTargetAttr, *target);

  // Up to where the weights, which are not in the text, get their places.
  PassManager pm(module.getContext());
  std::unique_ptr<Target> machine = makeTarget(options);
  machine->permit(module);
  machine->buildSearchPipeline(pm, !options.exposedNodes.empty());
  GraphOptions graph = machine->graphOptions();
  graph.exactMasks = options.exactMasks;
  auto all = [](StringRef) { return true; };
  buildGraphPipeline(pm, options.optLevel, all, graph);
  machine->buildKernelPipeline(pm, all);
  buildBufferPipeline(pm, options.optLevel);
  buildLoopPipeline(pm);

  std::string text;
  llvm::raw_string_ostream os(text);
  module.print(os);
  os << "\n\n{-#\n  external_resources: {\n    mlir_reproducer: {\n      pipeline: \"";
  pm.printAsTextualPipeline(os);
  os << "\",\n      disable_threading: false,\n      verify_each: true\n    }\n  }\n#-}\n";

  std::unique_ptr<LibraryFile> file = LibraryFile::create(path, error);
  if (!file)
    return module.emitError(error);
  file->append(ArrayRef<char>(text.data(), text.size()));
  if (!file->commit(error))
    return module.emitError(error);
  return success();
}
