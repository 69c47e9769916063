#include "compiler/pipelines/Pipelines.h"
#include "compiler/Compiler.h"
#include "passes/Passes.h"
#include "passes/kernels/cpu/Gemm.h"

#include "mlir/Conversion/AffineToStandard/AffineToStandard.h"
#include "mlir/Conversion/ConvertToLLVM/ToLLVMPass.h"
#include "mlir/Conversion/ReconcileUnrealizedCasts/ReconcileUnrealizedCasts.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVMPass.h"
#include "mlir/Conversion/VectorToSCF/VectorToSCF.h"
#include "mlir/Dialect/Bufferization/Transforms/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/Dialect/MemRef/Transforms/Passes.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;
using namespace attn;

bool attn::isWeightStorage(StringRef text) { return WeightStorage::parse(text).has_value(); }

bool attn::hasProducts(TargetAttr target, StringRef precision) {
  return !precision.starts_with("bf16x") || GemmSpec::hasNarrowProducts(target);
}

void attn::buildSearchPipeline(OpPassManager &pm, bool forGpu) { pm.addPass(createLowerSearchPass({forGpu})); }

void attn::buildKernelPipeline(OpPassManager &pm, unsigned optLevel, StringRef weights, StringRef precision,
                               llvm::function_ref<bool(llvm::StringRef)> wants) {
  auto add = [&](std::unique_ptr<Pass> pass) {
    if (!wants || wants(pass->getArgument()))
      pm.addPass(std::move(pass));
  };
  if (optLevel > 0) {
    add(createMergeProjectionsPass());
    LowerRecurrentPassOptions recurrent;
    // The states stay f32: rounding them would add up over the steps.
    recurrent.weights = precision == "bf16" && weights == "f32" ? "bf16" : weights.str();
    add(createLowerRecurrentPass(recurrent));
    add(createPrepareAttentionPass());
    add(createLowerAttentionPass({precision.str()}));
    add(createLowerNormalizationPass());
    add(createLowerProductsPass());
  }
  // What has no kernel; its contractions may still have one.
  add(createDecomposePass());
  if (optLevel > 0) {
    LowerContractionsPassOptions contractions;
    contractions.weights = weights.str();
    contractions.precision = precision.str();
    add(createLowerContractionsPass(contractions));
    add(createCanonicalizerPass());
    add(createCSEPass());
  }
}

void attn::buildBufferPipeline(OpPassManager &pm) {
  pm.addNestedPass<func::FuncOp>(createGuardIndicesPass());
  pm.addPass(createFinalizeEntriesPass());
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
  // After CSE, which shares what must not be shared from here on.
  pm.addNestedPass<func::FuncOp>(createPrepareBuffersPass());
  pm.addPass(createEliminateEmptiesPass());
  bufferization::OneShotBufferizePassOptions options;
  options.functionBoundaryTypeConversion = bufferization::LayoutMapOption::IdentityLayoutMap;
  options.unknownTypeConversion = bufferization::LayoutMapOption::IdentityLayoutMap;
  options.bufferAlignment = 64;
  pm.addPass(bufferization::createOneShotBufferizePass(options));
  // This order: copies of a buffer to itself go.
  pm.addPass(createCSEPass());
  pm.addPass(createCanonicalizerPass());
  pm.addNestedPass<func::FuncOp>(createFinishBuffersPass());
  pm.addNestedPass<func::FuncOp>(createPlanMemoryPass());
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
}

void attn::buildLoopPipeline(OpPassManager &pm, bool marksRegions) {
  pm.addNestedPass<func::FuncOp>(createVectorizeLinalgPass());
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
  pm.addNestedPass<func::FuncOp>(createPollLoopsPass());
  pm.addPass(createOutlineParallelPass());
  if (marksRegions)
    pm.addPass(createMarkRegionsPass());
  pm.addPass(createApproximateMathPass());
  pm.addNestedPass<func::FuncOp>(createExpandHalfFloatsPass());
  pm.addPass(createCanonicalizerPass());
  pm.addNestedPass<func::FuncOp>(createLoopInvariantCodeMotionPass());
  pm.addPass(createCSEPass());
}

void attn::buildLlvmPipeline(OpPassManager &pm) {
  pm.addNestedPass<func::FuncOp>(createConvertVectorToSCFPass());
  pm.addNestedPass<func::FuncOp>(createExpandReshapesPass());
  pm.addPass(memref::createExpandStridedMetadataPass());
  pm.addPass(createLowerAffinePass());
  pm.addPass(createSCFToControlFlowPass());
  pm.addPass(createLowerRuntimePass());
  pm.addPass(createConvertVectorToLLVMPass());
  pm.addPass(createConvertToLLVMPass());
  pm.addPass(createReconcileUnrealizedCastsPass());
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
}

//===----------------------------------------------------------------------===//
// GPU
//===----------------------------------------------------------------------===//

void attn::buildGpuKernelPipeline(OpPassManager &pm, unsigned optLevel, StringRef precision, StringRef sm90a,
                                  llvm::function_ref<bool(llvm::StringRef)> wants) {
  auto add = [&](std::unique_ptr<Pass> pass) {
    if (!wants || wants(pass->getArgument()))
      pm.addPass(std::move(pass));
  };
  if (optLevel > 0)
    add(createChooseGpuRowsPass({precision.str(), sm90a.str()}));
  pm.addPass(createDecomposePass());
  if (optLevel > 0) {
    add(createChooseGpuGemmsPass({precision.str(), sm90a.str()}));
    pm.addPass(createCanonicalizerPass());
    pm.addPass(createCSEPass());
  }
}

void attn::buildLaunchPipeline(OpPassManager &pm, bool allowHostOps) {
  pm.addPass(createMoveToHostPass({allowHostOps}));
  pm.addPass(createLaunchLinalgPass());
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
  pm.addPass(createSeparateHostPass());
  pm.addPass(createMoveLoopsPass());
  pm.addPass(createOutlineLaunchesPass());
}

void attn::buildDevicePipeline(OpPassManager &pm) {
  // NVPTX knows no pow; exp and log of its parts are polynomials then.
  math::MathExpandOpsPassOptions expanded;
  expanded.opMnemonics = {"powf"};
  pm.addPass(math::createMathExpandOpsPass(expanded));
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
