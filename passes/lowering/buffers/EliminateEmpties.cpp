#include "dialects/attn/AttnOps.h"
#include "passes/Passes.h"

#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Bufferization/Transforms/OneShotAnalysis.h"
#include "mlir/Dialect/Bufferization/Transforms/OneShotModuleBufferize.h"
#include "mlir/Dialect/Bufferization/Transforms/Transforms.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Interfaces/SubsetOpInterface.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SmallPtrSet.h"

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

using Chain = llvm::DenseSet<OpOperand *>;

/// What becomes of tensors up to the inserted value, as far as it may stay in one place.
Chain chainTo(SubsetInsertionOpInterface insertion, const bufferization::AnalysisState &state,
              llvm::function_ref<bool(Value)> isStart) {
  bufferization::TraversalConfig config;
  config.alwaysIncludeLeaves = false;
  config.followEquivalentOnly = config.followSameTypeOrCastsOnly = true;
  Chain chain;
  state.findValueInReverseUseDefChain(&insertion.getSourceOperand(), isStart, config, &chain);
  return chain;
}

/// Whether a region hands on a value from outside of it that is read elsewhere, too: another region, or the insertion
/// itself, may write to the value's place before.
bool isReadBeside(OpOperand *operand) {
  Operation *owner = operand->getOwner();
  return owner->hasTrait<OpTrait::IsTerminator>() && !operand->get().hasOneUse() &&
         !owner->getParentRegion()->isAncestor(operand->get().getParentRegion());
}

/// Whether what becomes of `empty` up to the inserted value overwrites something that is read later. In a buffer, which
/// the analysis does not follow, the copy that this takes would be lost: the insertion writes over what was kept.
bool overwritesWhatIsRead(SubsetInsertionOpInterface insertion, Value empty,
                          const bufferization::AnalysisState &state) {
  if (insertion->getNumResults() != 0)
    return false;
  Chain chain = chainTo(insertion, state, [&](Value value) { return value == empty; });
  return llvm::any_of(chain, [&](OpOperand *operand) {
    return operand->get() != empty && (!state.isInPlace(*operand) || isReadBeside(operand));
  });
}

/// Gives each use of a tensor.empty that leads to one insertion a tensor of its own. Upstream replaces one of several,
/// and which one depends on addresses.
void separateUses(Operation *root, const bufferization::AnalysisState &state) {
  llvm::MapVector<Operation *, SmallVector<OpOperand *>> others; // by tensor, in the order of the code
  root->walk([&](tensor::EmptyOp empty) {
    if (!empty->use_empty() && !empty->hasOneUse())
      others[empty];
  });
  root->walk([&](SubsetInsertionOpInterface insertion) {
    Chain chain =
        chainTo(insertion, state, [](Value value) { return isa_and_nonnull<tensor::EmptyOp>(value.getDefiningOp()); });
    llvm::SmallPtrSet<Operation *, 4> shared;
    for (OpOperand *operand : chain)
      if (Operation *maker = operand->get().getDefiningOp(); maker && others.contains(maker))
        shared.insert(maker);
    for (Operation *empty : shared) {
      bool isFirst = true;
      for (OpOperand &use : empty->getUses())
        if (chain.contains(&use) && !std::exchange(isFirst, false) && !llvm::is_contained(others[empty], &use))
          others[empty].push_back(&use);
    }
  });
  for (auto &[empty, uses] : others)
    for (OpOperand *use : uses)
      use->set(OpBuilder(use->getOwner()).clone(*empty)->getResult(0));
}

/// Inserts what a reshape only adds dimensions of size 1 to, as of what is stacked, as it is: the reshape would keep
/// what is computed into a tensor.empty from its place. Not where it has a dimension of size 1 itself: which of them a
/// slice without all of them lacks follows from sizes and strides, and strides need not be known.
void insertWithoutReshape(tensor::InsertSliceOp insertion) {
  auto reshape = insertion.getSource().getDefiningOp<tensor::ExpandShapeOp>();
  auto maker = reshape ? reshape.getSrc().getDefiningOp<linalg::LinalgOp>() : linalg::LinalgOp();
  if (!maker || !maker.getDpsInits()[0].getDefiningOp<tensor::EmptyOp>() ||
      llvm::is_contained(reshape.getSrcType().getShape(), 1))
    return;
  for (const ReassociationIndices &group : reshape.getReassociationIndices())
    if (llvm::count_if(group, [&](int64_t dim) { return reshape.getResultType().getDimSize(dim) != 1; }) > 1)
      return;
  insertion.getSourceMutable().assign(reshape.getSrc());
  if (reshape->use_empty())
    reshape->erase();
}

/// Gives the first insertion of a concatenation a tensor of its own where another begins in the same one: that would
/// move, its parts be computed elsewhere and copied. Other uses stay, since each tensor may become an allocation.
void separate(tensor::InsertSliceOp insertion) {
  auto empty = insertion.getDest().getDefiningOp<tensor::EmptyOp>();
  auto isInsertion = [&](Operation *user) {
    auto other = dyn_cast<tensor::InsertSliceOp>(user);
    return other && other != insertion && other.getDest() == insertion.getDest();
  };
  if (empty && llvm::any_of(empty->getUsers(), isInsertion))
    insertion.getDestMutable().assign(OpBuilder(empty).clone(*empty)->getResult(0));
}

/// Moves a tensor of a buffer up to where that is made: parts that are computed in front of it find their places, too.
void moveToBuffer(Value tensor) {
  auto op = tensor ? tensor.getDefiningOp<bufferization::ToTensorOp>() : bufferization::ToTensorOp();
  Operation *buffer = op ? op.getBuffer().getDefiningOp() : nullptr;
  if (buffer)
    op->moveAfter(buffer);
  else if (op)
    op->moveBefore(&cast<BlockArgument>(op.getBuffer()).getOwner()->front());
}

struct EliminateEmptiesPass : attn::impl::EliminateEmptiesPassBase<EliminateEmptiesPass> {
  void runOnOperation() override {
    getOperation().walk(insertWithoutReshape);
    getOperation().walk(separate);
    bufferization::OneShotBufferizationOptions options;
    options.allowReturnAllocsFromLoops = options.bufferizeFunctionBoundaries = true;
    bufferization::AnalysisState uses(options);
    separateUses(getOperation(), uses);
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
    // First what an output is put together in becomes its buffer, so that the parts are computed there.
    auto placeOutput = [&](RewriterBase &rewriter, SubsetInsertionOpInterface insertion, tensor::EmptyOp empty,
                           Operation *user) {
      Value placed = insertion->getNumResults() == 0 ? place(rewriter, insertion, empty, user) : Value();
      moveToBuffer(placed);
      return placed;
    };
    IRRewriter rewriter(&getContext());
    if (failed(bufferization::eliminateEmptyTensors(rewriter, getOperation(), state, placeOutput)) ||
        failed(bufferization::eliminateEmptyTensors(rewriter, getOperation(), state, place)))
      signalPassFailure();
  }
};

} // namespace
