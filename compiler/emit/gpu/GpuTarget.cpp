#include "compiler/Target.h"
#include "compiler/emit/gpu/Ptx.h"
#include "dialects/attn/DeviceOps.h"
#include "passes/Passes.h"

#include "mlir/Conversion/AffineToStandard/AffineToStandard.h"
#include "mlir/Conversion/ReconcileUnrealizedCasts/ReconcileUnrealizedCasts.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/Transforms/Passes.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;
using namespace attn;

namespace {

/// Linalg on buffers to launches, and the kernels into a gpu.module beside the entries.
void buildLaunchPipeline(OpPassManager &pm, bool allowHostOps) {
  pm.addPass(createMoveToHostPass({allowHostOps}));
  pm.addPass(createLaunchLinalgPass());
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
  pm.addPass(createSeparateHostPass());
  pm.addPass(createMoveLoopsPass());
  pm.addPass(createOutlineLaunchesPass());
}

/// A module with that gpu.module alone to the LLVM and NVVM dialects.
void buildDevicePipeline(OpPassManager &pm) {
  pm.addPass(createExpandDoublesPass());
  pm.addPass(createApproximateMathPass());
  OpPassManager &kernels = pm.nest<gpu::GPUModuleOp>();
  kernels.addPass(createCanonicalizerPass());
  kernels.addPass(createCSEPass());
  kernels.addPass(createLoopInvariantCodeMotionPass());
  kernels.addPass(memref::createExpandStridedMetadataPass());
  kernels.addPass(createLowerAffinePass());
  kernels.addPass(createSCFToControlFlowPass());
  kernels.addPass(createLowerKernelsPass());
  kernels.addPass(createReconcileUnrealizedCastsPass());
  kernels.addPass(createCanonicalizerPass());
  kernels.addPass(createCSEPass());
}

/// A copy of the kernels of `host`, which keeps what its launches name, without bodies.
OwningOpRef<ModuleOp> takeKernels(ModuleOp host) {
  OwningOpRef<ModuleOp> device = ModuleOp::create(host.getLoc());
  for (auto kernels : host.getOps<gpu::GPUModuleOp>()) {
    device->push_back(kernels->clone());
    for (auto kernel : kernels.getOps<gpu::GPUFuncOp>())
      while (&kernel.front().front() != kernel.front().getTerminator())
        (--kernel.front().getTerminator()->getIterator())->erase();
  }
  return device;
}

class GpuTarget : public Target {
public:
  explicit GpuTarget(const CompileOptions &options)
      : options(options), archs(parseGpuArchs(options.gpuArchs, archError)) {}

  GraphOptions graphOptions() const override {
    GraphOptions graph;
    graph.listsBlocks = graph.widensHalves = graph.copiesRows = false;
    return graph;
  }

  void buildSearchPipeline(OpPassManager &pm, bool traces) const override {
    pm.addPass(createLowerGpuSearchPass({.traces = traces}));
  }

  void buildKernelPipeline(OpPassManager &pm, llvm::function_ref<bool(StringRef)> wants) const override {
    auto add = [&](std::unique_ptr<Pass> pass) {
      if (wants(pass->getArgument()))
        pm.addPass(std::move(pass));
    };
    std::string sm90a = useOfSm90a().str();
    bool isFloat8 = options.weights == "fp8";
    if (options.optLevel > 0 && options.weights != "f32" && !isFloat8)
      add(createStoreBlocksPass({options.weights, /*narrowsRows=*/false}));
    if (options.optLevel > 0) {
      add(createMergeProjectionsPass({/*anyRows=*/true}));
      if (isFloat8) // each column has its own scale, whichever weights lie side by side
        add(createStoreFloat8Pass());
      if (options.cache != "model")
        add(createNarrowGpuCachesPass({options.cache == "fp8"}));
      add(createChooseGpuRowsPass({options.precision, sm90a}));
    }
    pm.addPass(createDecomposePass());
    if (options.optLevel > 0)
      add(createChooseGpuGemmsPass({options.precision == "int8" ? "f32" : options.precision, sm90a}));
  }

  bool separatesKernels() const override { return false; }

  /// Launches in the entries, and the kernels as PTX and, where there is a
  /// ptxas, as machine code.
  LogicalResult compileDevice(ModuleOp host, Stages &stages) override {
    if (archs.empty())
      return mlir::emitError(UnknownLoc::get(host.getContext()), archError);
    if (failed(stages.runPasses(host, "launches",
                                [&](PassManager &pm) { buildLaunchPipeline(pm, options.allowHostOps); }))) {
      stages.report.unsupported = true;
      return failure();
    }
    host.walk([&](MapTilesOp) { mapsTiles = true; });
    OwningOpRef<ModuleOp> device = takeKernels(host);
    if (failed(stages.runPasses(*device, "kernels of the GPU", [](PassManager &pm) { buildDevicePipeline(pm); })))
      return failure();
    if (auto names = host->getAttrOfType<ArrayAttr>(AttnDialect::kGpuKernelsAttr))
      for (auto name : names.getAsRange<StringAttr>())
        kernelNames.push_back(name.str());
    for (const GpuArch &arch : archs)
      if (failed(addImages(*device, arch, stages))) {
        stages.report.unsupported = true;
        return failure();
      }
    return success();
  }

  StringRef deviceText() const override { return images.front().bytes; }
  /// With launches only what runs on the CPU has loops.
  bool hasLoops(const CompileReport &report) const override { return !report.hostOps.empty(); }
  bool canMarkRegions() const override { return false; }

  void describe(LibraryDescription &library) override {
    library.gpuImages = std::move(images);
    library.gpuKernels = std::move(kernelNames);
    if (mapsTiles)
      library.neededAbi = ATTNRT_ABI_TILES;
  }

private:
  StringRef useOfSm90a() const {
    auto isExact = [](const GpuArch &arch) { return arch.exact; };
    return llvm::none_of(archs, isExact) ? "none" : llvm::all_of(archs, isExact) ? "only" : "also";
  }

  LogicalResult addImages(ModuleOp device, const GpuArch &arch, Stages &stages) {
    TimingScope scope = stages.enter("PTX");
    FailureOr<std::string> ptx = emitPtx(device, arch, options.optLevel);
    if (failed(ptx))
      return failure();
    std::optional<std::string> cubin;
    std::string error;
    if (options.emit == EmitKind::Lib && !assemblePtx(*ptx, arch, cubin, error))
      return mlir::emitError(UnknownLoc::get(device.getContext()), error);
    if (cubin)
      images.push_back({false, arch.number, arch.exact, std::move(*cubin)});
    images.push_back({true, arch.number, arch.exact, std::move(*ptx)});
    return success();
  }

  const CompileOptions &options;
  std::string archError;
  std::vector<GpuArch> archs;
  std::vector<GpuImage> images;
  std::vector<std::string> kernelNames;
  bool mapsTiles = false; ///< whether the host asks the runtime to
};
} // namespace

std::unique_ptr<Target> attn::makeGpuTarget(const CompileOptions &options) {
  return std::make_unique<GpuTarget>(options);
}
