#include "passes/graph/Pipeline.h"
#include "passes/Passes.h"

#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;

void attn::buildGraphPipeline(OpPassManager &pm, unsigned optLevel) {
  pm.addPass(createInlinerPass());
  if (optLevel == 0) {
    pm.addPass(createDecomposePass());
    return;
  }
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
  // Before the elementwise ops are joined: the scale of a query, its transpose
  // and the guard after a softmax are then still ops of their own.
  pm.addPass(createRaiseSoftmaxPass());
  pm.addPass(createRaiseContractionPass());
  pm.addPass(createRecognizeAttentionPass());
  pm.addPass(createFoldLayoutPass());
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
  pm.addPass(createFuseElementwisePass());
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
}
