#include "dialects/attn/AttnOps.h"
#include "passes/Passes.h"

#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Bufferization/Transforms/OneShotAnalysis.h"
#include "mlir/Dialect/Bufferization/Transforms/OneShotModuleBufferize.h"
#include "mlir/Dialect/Bufferization/Transforms/Transforms.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Tensor/Transforms/Transforms.h"
#include "mlir/Interfaces/SubsetOpInterface.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

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

/// Whether what becomes of `empty` up to the inserted value overwrites something that is read later. In a buffer, which
/// the analysis does not follow, the copy that this takes would be lost: the insertion writes over what was kept.
bool overwritesWhatIsRead(SubsetInsertionOpInterface insertion, Value empty,
                          const bufferization::AnalysisState &state) {
  if (insertion->getNumResults() != 0)
    return false;
  bufferization::TraversalConfig config;
  config.alwaysIncludeLeaves = false;
  config.followEquivalentOnly = config.followSameTypeOrCastsOnly = true;
  llvm::DenseSet<OpOperand *> chain;
  state.findValueInReverseUseDefChain(
      &insertion.getSourceOperand(), [&](Value value) { return value == empty; }, config, &chain);
  return llvm::any_of(chain, [&](OpOperand *operand) { return operand->get() != empty && !state.isInPlace(*operand); });
}

struct EliminateEmptiesPass : attn::impl::EliminateEmptiesPassBase<EliminateEmptiesPass> {
  void runOnOperation() override {
    // A reshape that only adds dimensions of size 1, as of what is stacked, would keep what is inserted from its place.
    RewritePatternSet patterns(&getContext());
    tensor::populateReassociativeReshapeFoldingPatterns(patterns);
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      return signalPassFailure();
    bufferization::OneShotBufferizationOptions options;
    options.allowReturnAllocsFromLoops = options.bufferizeFunctionBoundaries = true;
    bufferization::OneShotAnalysisState state(getOperation(), options);
    if (failed(bufferization::analyzeModuleOp(getOperation(), state)))
      return signalPassFailure();
    auto place = [&](RewriterBase &rewriter, SubsetInsertionOpInterface insertion, tensor::EmptyOp empty,
                     Operation *user) -> Value {
      for (Value needed : insertion.getValuesNeededToBuildSubsetExtraction())
        if (isRequiredBetween(user, needed))
          return {};
      if (overwritesWhatIsRead(insertion, empty, state))
        return {};
      return bufferization::buildSubsetExtraction(rewriter, insertion, empty, user);
    };
    IRRewriter rewriter(&getContext());
    if (failed(bufferization::eliminateEmptyTensors(rewriter, getOperation(), state, place)))
      signalPassFailure();
  }
};

} // namespace
