#include "compiler/Target.h"
#include "dialects/attn/BlockProductOps.h"
#include "passes/Passes.h"
#include "passes/kernels/cpu/Gemm.h"

#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassManager.h"

using namespace mlir;
using namespace attn;

bool attn::isWeightStorage(StringRef text) {
  return text == "fp8" || WeightStorage::parse(text); // the former has no panels
}

namespace {
class CpuTarget : public Target {
public:
  explicit CpuTarget(const CompileOptions &options) : options(options) {}

  std::string findMissing(TargetAttr cpu) const override {
    if (!StringRef(options.precision).starts_with("bf16x") || hasNarrowProducts(cpu))
      return "";
    return "products of f32 by bf16 (" + options.precision +
           ") need avx512_bf16, which the processor to compile for does not have";
  }

  void permit(ModuleOp module) const override {
    if (options.precision != "int8")
      return;
    module.walk([](Operation *op) {
      if (auto matrix = dyn_cast<DequantizeBlocksOp>(op))
        matrix.setNarrowRows(true);
      else if (auto product = dyn_cast<BlockProductOp>(op))
        product.setNarrowRows(true);
    });
  }

  GraphOptions graphOptions() const override {
    GraphOptions graph;
    graph.listsBlocks = graph.widensHalves = graph.copiesRows = true;
    return graph;
  }

  void buildSearchPipeline(OpPassManager &pm, bool traces) const override {
    pm.addPass(createLowerSearchPass({.traces = traces}));
  }

  void buildKernelPipeline(OpPassManager &pm, llvm::function_ref<bool(StringRef)> wants) const override {
    auto add = [&](std::unique_ptr<Pass> pass) {
      if (wants(pass->getArgument()))
        pm.addPass(std::move(pass));
    };
    // int8 is about products whose rows are rounded, by then others than contractions.
    StringRef weights = options.weights, precision = options.precision == "int8" ? "f32" : StringRef(options.precision);
    if (options.optLevel > 0) {
      add(createMergeProjectionsPass());
      add(createFoldCodesPass());
      add(createLiftConstantsPass());
      LowerRecurrentPassOptions recurrent;
      // The states stay f32: rounding them would add up over the steps.
      recurrent.weights = precision == "bf16" && weights == "f32" ? "bf16" : weights.str();
      add(createLowerRecurrentPass(recurrent));
      if (options.cache == "int8")
        add(createNarrowCachesPass());
      add(createPrepareAttentionPass());
      add(createLowerAttentionPass({precision.str()}));
      add(createLowerNormalizationPass());
      add(createLowerSegmentsPass());
      std::optional<WeightStorage> storage = WeightStorage::parse(weights);
      if (storage && storage->block)
        add(createStoreBlocksPass({weights.str(), options.precision == "int8"}));
      else if (options.precision == "int8")
        add(createRoundRowsPass());
      add(createLowerProductsPass());
      add(createLowerBlockProductsPass());
    }
    // What has no kernel; its contractions may still have one.
    add(createDecomposePass());
    if (options.optLevel > 0) {
      LowerContractionsPassOptions contractions;
      contractions.weights = weights.str();
      contractions.precision = precision.str();
      add(createLowerContractionsPass(contractions));
    }
    pm.addPass(createAssignScratchPass());
  }

private:
  const CompileOptions &options;
};
} // namespace

std::unique_ptr<Target> attn::makeCpuTarget(const CompileOptions &options) {
  return std::make_unique<CpuTarget>(options);
}
