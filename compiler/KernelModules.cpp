#include "compiler/KernelModules.h"
#include "dialects/attn/AttnOps.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace attn;

/// Whether `kernel` is the same code in every module.
static bool standsAlone(func::FuncOp kernel) {
  return !kernel
              .walk([](Operation *op) {
                return isa<CheckIndexOp, RequireOp, WeightOp, KernelOp, CallOpInterface>(op) ? WalkResult::interrupt()
                                                                                             : WalkResult::advance();
              })
              .wasInterrupted();
}

std::vector<KernelModule> attn::separateKernels(ModuleOp module) {
  std::vector<KernelModule> kernels;
  for (auto kernel : llvm::make_early_inc_range(module.getOps<func::FuncOp>())) {
    if (!kernel->hasAttr(AttnDialect::kKernelAttr) || kernel.isExternal() || !standsAlone(kernel))
      continue;
    auto declaration = cast<func::FuncOp>(kernel->cloneWithoutRegions());
    declaration.setPrivate();
    OpBuilder(kernel).insert(declaration);
    OwningOpRef<ModuleOp> alone = ModuleOp::create(kernel.getLoc());
    if (Attribute target = module->getAttr(AttnDialect::kTargetAttr))
      (*alone)->setAttr(AttnDialect::kTargetAttr, target);
    kernel->remove();
    alone->push_back(kernel);
    kernels.push_back({kernel.getName().str(), std::move(alone)});
  }
  return kernels;
}
