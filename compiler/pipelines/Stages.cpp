#include "compiler/pipelines/Stages.h"
#include "compiler/pipelines/Instrumentation.h"

#include "mlir/Pass/PassManager.h"

using namespace mlir;

namespace attn {

Stages::Stages(const CompileOptions &options, CompileReport &report) : options(options), report(report) {
  timings.setEnabled(options.timing);
  root = timings.getRootScope();
}

TimingScope Stages::enter(StringRef name) {
  if (options.onStage)
    options.onStage(name);
  return root.nest(name);
}

LogicalResult Stages::runPasses(ModuleOp module, StringRef name, llvm::function_ref<void(PassManager &)> build) {
  TimingScope scope = enter(name);
  PassManager pm(module->getContext());
  build(pm);
  watch(pm, scope);
  return pm.run(module);
}

void Stages::watch(PassManager &pm, TimingScope &scope, bool isReproduced) {
  instrument(pm, options, scope, numPrinted, isReproduced);
}

} // namespace attn
