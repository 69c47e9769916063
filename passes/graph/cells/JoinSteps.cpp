#include "dialects/attn/RecurrentLayer.h"
#include "passes/Passes.h"
#include "passes/graph/Structured.h"
#include "passes/graph/cells/CellMatch.h"

#include "mlir/Analysis/TopologicalSortUtils.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/IR/Remarks.h"

using namespace mlir;

namespace attn {
#define GEN_PASS_DEF_JOINSTEPSPASS
#include "passes/Passes.h.inc"

namespace {

using Chain = SmallVector<RecurrentLayer>;

RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }

bool isStep(const RecurrentLayer &layer) {
  return layer.direction == Direction::forward && !layer.batchFirst && !layer.lengths && layer.initialH &&
         typeOf(layer.input).getDimSize(0) == 1 && (layer.cell != RecurrentLayer::Lstm || layer.initialC);
}

/// Whether `value` is read by nothing but `reader`, through casts and changes of unit dimensions.
bool isReadOnlyBy(Value value, Operation *reader) {
  return llvm::all_of(value.getUsers(), [&](Operation *user) {
    if (user == reader || isa<tensor::DimOp>(user))
      return true;
    return user->getNumResults() == 1 && isView(user) && rootOf(user->getResult(0)) == rootOf(value) &&
           isReadOnlyBy(user->getResult(0), reader);
  });
}

struct JoinStepsPass : impl::JoinStepsPassBase<JoinStepsPass> {
  void runOnOperation() override {
    SmallVector<Chain> chains;
    DenseMap<Value, size_t> ending; // the last state of a chain, in this table
    getOperation()->walk([&](Operation *op) {
      std::optional<RecurrentLayer> layer = RecurrentLayer::get(op);
      if (!layer || !isStep(*layer))
        return;
      auto before = ending.find(rootOf(layer->initialH));
      size_t number = chains.size();
      if (before != ending.end() && follows(chains[before->second], *layer))
        number = before->second;
      else
        chains.emplace_back();
      if (!chains[number].empty())
        ending.erase(chains[number].back().lastH);
      chains[number].push_back(*layer);
      ending[layer->lastH] = number;
    });
    for (Chain &chain : chains) {
      // What a layer reads may be of one that has been joined since.
      for (RecurrentLayer &step : chain)
        step = *RecurrentLayer::get(step.op);
      // It needs all of its inputs before its first state: two chains that read
      // each other's states cannot both become one.
      if (chain.size() > 1 &&
          llvm::none_of(chain, [&](const RecurrentLayer &step) { return dependsOn(step.input, chain.front().op); }))
        join(chain);
    }
  }

private:
  static bool follows(const Chain &chain, const RecurrentLayer &next) {
    const RecurrentLayer &last = chain.back();
    auto isSame = [&](Value RecurrentLayer::*operand) { return last.*operand == next.*operand; };
    if (last.cell != next.cell || last.op->getBlock() != next.op->getBlock() || !isSame(&RecurrentLayer::weight) ||
        !isSame(&RecurrentLayer::recurrence) || !isSame(&RecurrentLayer::bias) || !isSame(&RecurrentLayer::peephole) ||
        last.activations != next.activations || last.clip != next.clip || last.inputForget != next.inputForget ||
        last.linearBeforeReset != next.linearBeforeReset || last.mirrored != next.mirrored ||
        typeOf(last.input) != typeOf(next.input) || typeOf(last.lastH) != typeOf(next.lastH))
      return false;
    if (last.cell == RecurrentLayer::Lstm &&
        (rootOf(next.initialC) != last.lastC || !isReadOnlyBy(last.lastC, next.op)))
      return false;
    return !dependsOn(next.input, chain.front().op);
  }

  void join(Chain &chain) {
    RecurrentLayer first = chain.front(), last = chain.back();
    IRRewriter b(last.op);
    Location loc = first.op->getLoc();
    int64_t steps = chain.size();
    SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, loc, first.input), whole = sizes;
    whole[0] = b.getIndexAttr(steps);
    Value input = emptyTensor(b, loc, whole, first.elementType());
    for (int64_t n = 0; n < steps; ++n)
      input = insertAlong(b, loc, chain[n].input, input, 0, b.getIndexAttr(n));
    SmallVector<int64_t> shape(typeOf(first.sequence).getShape());
    shape[0] = steps;
    Operation *joined = b.clone(*first.op);
    joined->setOperand(0, input);
    joined->getResult(0).setType(RankedTensorType::get(shape, first.elementType()));
    RecurrentLayer layer = *RecurrentLayer::get(joined);

    SmallVector<OpFoldResult> from(4, b.getIndexAttr(0)), one(4, b.getIndexAttr(1)), unit(one);
    one[2] = sizes[1];
    one[3] = b.getIndexAttr(first.hiddenSize());
    for (int64_t n = 0; n < steps; ++n) {
      from[0] = b.getIndexAttr(n);
      const RecurrentLayer &step = chain[n];
      if (!step.sequence.use_empty())
        b.replaceAllUsesWith(step.sequence, tensor::ExtractSliceOp::create(b, loc, typeOf(step.sequence),
                                                                           layer.sequence, from, one, unit));
      if (n + 1 < steps && !step.lastH.use_empty())
        b.replaceAllUsesWith(
            step.lastH, tensor::ExtractSliceOp::create(b, loc, typeOf(step.lastH), layer.sequence, from, one, unit));
    }
    b.replaceAllUsesWith(last.lastH, layer.lastH);
    remark::passed(loc, remark::RemarkOpts::name("Recurrent").category("attn-join-steps"))
        << remark::add("{0} steps are one layer", steps);
    for (RecurrentLayer &step : llvm::reverse(chain)) {
      if (step.lastC) // of those before the last, only sizes are read by now
        b.replaceAllUsesWith(step.lastC, layer.lastC);
      b.eraseOp(step.op);
    }
    // What read an early state may stand before the layer.
    sortTopologically(joined->getBlock());
  }
};

} // namespace
} // namespace attn
