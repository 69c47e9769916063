#include "dialects/attn/AttnOps.h"
#include "passes/Passes.h"

#include "mlir/Dialect/Bufferization/Transforms/OneShotAnalysis.h"
#include "mlir/Dialect/Bufferization/Transforms/OneShotModuleBufferize.h"
#include "mlir/Dialect/Bufferization/Transforms/Transforms.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Interfaces/SubsetOpInterface.h"

namespace attn {
#define GEN_PASS_DEF_ELIMINATEEMPTIESPASS
#include "passes/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {

/// Whether a requirement stands in front of `value` and behind `user`, or in something there.
bool isRequiredBetween(Operation *user, Value value) {
  Operation *op = value.getDefiningOp();
  Operation *top = op ? op->getBlock()->findAncestorOpInBlock(*user) : nullptr;
  for (; top && top != op && top->isBeforeInBlock(op); top = top->getNextNode())
    if (top->walk([](RequireOp) { return WalkResult::interrupt(); }).wasInterrupted())
      return true;
  return false;
}

struct EliminateEmptiesPass : attn::impl::EliminateEmptiesPassBase<EliminateEmptiesPass> {
  void runOnOperation() override {
    bufferization::OneShotBufferizationOptions options;
    options.allowReturnAllocsFromLoops = options.bufferizeFunctionBoundaries = true;
    bufferization::OneShotAnalysisState state(getOperation(), options);
    if (failed(bufferization::analyzeModuleOp(getOperation(), state)))
      return signalPassFailure();
    auto place = [](RewriterBase &rewriter, SubsetInsertionOpInterface insertion, tensor::EmptyOp empty,
                    Operation *user) -> Value {
      for (Value needed : insertion.getValuesNeededToBuildSubsetExtraction())
        if (isRequiredBetween(user, needed))
          return {};
      return bufferization::buildSubsetExtraction(rewriter, insertion, empty, user);
    };
    IRRewriter rewriter(&getContext());
    if (failed(bufferization::eliminateEmptyTensors(rewriter, getOperation(), state, place)))
      signalPassFailure();
  }
};

} // namespace
