#include "compiler/pipelines/Pipelines.h"
#include "passes/Passes.h"

#include "mlir/Conversion/ConvertToLLVM/ToLLVMPass.h"
#include "mlir/Conversion/ReconcileUnrealizedCasts/ReconcileUnrealizedCasts.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Dialect/Bufferization/Transforms/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;
using namespace attn;

void attn::buildBufferPipeline(OpPassManager &pm, unsigned optLevel) {
  if (optLevel > 0) {
    pm.addPass(createCanonicalizerPass());
    pm.addPass(createCSEPass());
  }
  pm.addNestedPass<func::FuncOp>(createGuardIndicesPass());
  pm.addPass(createFinalizeEntriesPass());
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
  // After CSE, which shares what must not be shared from here on.
  pm.addNestedPass<func::FuncOp>(createPrepareBuffersPass());
  pm.addNestedPass<func::FuncOp>(createJoinConversionsPass());
  pm.addNestedPass<func::FuncOp>(createSinkConversionsPass());
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

/// What LLVM has no word for, in terms of what it has.
static void addExpansions(OpPassManager &pm) {
  pm.addNestedPass<func::FuncOp>(createLowerVectorsPass());
  pm.addNestedPass<func::FuncOp>(createExpandReshapesPass());
  pm.addNestedPass<func::FuncOp>(createExpandViewsPass());
}

/// What is left to fold or to share afterwards, LLVM does faster.
static void addConversions(OpPassManager &pm) {
  pm.addPass(createSCFToControlFlowPass());
  pm.addPass(createLowerRuntimePass());
  pm.addPass(createConvertToLLVMPass());
  pm.addPass(createReconcileUnrealizedCastsPass());
}

void attn::buildKernelCodePipeline(OpPassManager &pm) {
  // Builders say many things twice, and fold what matters: the canonicalizer would leave as much to LLVM.
  pm.addPass(createCSEPass());
  pm.addNestedPass<func::FuncOp>(createPollLoopsPass());
  pm.addPass(createOutlineParallelPass());
  pm.addPass(createApproximateMathPass());
  pm.addNestedPass<func::FuncOp>(createExpandHalfFloatsPass());
  // While its loops stand, which addresses leave.
  addExpansions(pm);
  pm.addNestedPass<func::FuncOp>(createLoopInvariantCodeMotionPass());
  pm.addPass(createCSEPass());
  addConversions(pm);
}

void attn::buildLlvmPipeline(OpPassManager &pm) {
  addExpansions(pm);
  addConversions(pm);
}
