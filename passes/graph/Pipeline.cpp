#include "passes/graph/Pipeline.h"
#include "passes/Passes.h"

#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;

void attn::buildGraphPipeline(OpPassManager &pm, unsigned optLevel, llvm::function_ref<bool(llvm::StringRef)> wants,
                              const GraphOptions &options) {
  auto add = [&](std::unique_ptr<Pass> pass) {
    if (!wants || wants(pass->getArgument()))
      pm.addPass(std::move(pass));
  };
  add(createInlinerPass());
  pm.addPass(createAssumeRequiredPass()); // no matter of fusion, but of what is read before a check
  if (options.widensHalves) // at -O0, too: what is rounded is no matter of fusion
    add(createWidenHalvesPass());
  if (optLevel == 0) {
    add(createDecomposePass());
    add(createAppendCachesPass()); // how a library keeps a state is no matter of speed alone
    return;
  }
  add(createCanonicalizerPass());
  add(createCSEPass());
  // Before the elementwise ops are joined: the scale of a query, its transpose
  // and the guard after a softmax are then still ops of their own.
  add(createRaiseSoftmaxPass(options.exactMasks));
  add(createRaiseContractionPass());
  add(createViewBytesPass());
  add(createRaiseProductsPass(options.weights));
  add(createRaiseBlockProductsPass());
  add(createRecognizeCellsPass());
  add(createCSEPass());
  add(createJoinStepsPass());
  add(createSplitConcatPass());
  add(createRaiseTablesPass(options.weights, /*keepsTables=*/!options.listsBlocks));
  add(createComputePositionsPass(options.weights));
  add(createWriteSlicesPass(options.weights, options.copiesRows));
  add(createMarkPlacesPass(options.weights));
  add(createRaiseBandsPass(options.weights));
  add(createRecognizeAttentionPass(/*listsEdges=*/options.listsBlocks));
  add(createOpenMasksPass());
  add(createProveMasksPass(options.exactMasks, options.weights));
  if (options.listsBlocks)
    add(createListBlocksPass(options.weights));
  if (!options.widensHalves)
    add(createMoveConversionsPass());
  add(createFoldLayoutPass());
  add(createCanonicalizerPass());
  add(createCSEPass());
  add(createMoveChannelsPass());
  add(createFuseElementwisePass());
  add(createCanonicalizerPass());
  add(createCSEPass());
  add(createSelectRowsPass());
  // Cuts what is one op by now, so that the pieces take in what the parts were.
  add(createSplitElementwisePass());
  add(createFuseElementwisePass());
  add(createCanonicalizerPass());
  add(createCSEPass());
  add(createAppendCachesPass());
  if (!options.exposedNodes.empty())
    add(createExposeAttentionPass(options.exposedNodes, options.exposedAs));
}
