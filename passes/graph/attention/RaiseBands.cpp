#include "passes/Passes.h"
#include "passes/graph/Collect.h"
#include "passes/graph/Pipeline.h"
#include "passes/graph/Structured.h"
#include "passes/graph/attention/BandMatch.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Iterators.h"
#include "mlir/IR/Remarks.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;

namespace attn {
#define GEN_PASS_DEF_RAISEBANDSPASS
#include "passes/Passes.h.inc"

namespace {

/// Steps of reading that are taken for one softmax: about five times those of Longformer.
constexpr unsigned kMaxSteps = 30000;

/// The contractions that weights of a softmax come to, through moves and elementwise ops.
struct Sums {
  OpOperand *skewed = nullptr; ///< behind a skew: a part of the softmax that is put into another tensor
  OpOperand *front = nullptr;  ///< the other one, if there is one
};

std::optional<Sums> findSums(SoftmaxOp softmax) {
  Sums sums;
  DenseSet<Value> skewed;
  bool fails = worklist(Values{softmax.getResult()}, [&](Value next, Values &list) {
    for (OpOperand &use : next.getUses()) {
      Operation *user = use.getOwner();
      auto insert = dyn_cast<tensor::InsertSliceOp>(user);
      if (isContraction(user)) {
        OpOperand *&sum = skewed.contains(next) ? sums.skewed : sums.front;
        if (sum && sum != &use)
          return true;
        sum = &use;
      } else if ((insert && insert.getSource() == next) || isView(user) || isPointwise(user) ||
                 isa<tensor::ExtractSliceOp>(user)) {
        list.push_back(user->getResult(0));
        if (insert || skewed.contains(next))
          skewed.insert(user->getResult(0));
      } else if (!isa<tensor::DimOp>(user)) {
        return true;
      }
    }
    return false;
  });
  return fails || !sums.skewed ? std::nullopt : std::optional(sums);
}

/// The sum, and what are views of it alone, or what it is rounded to.
SmallVector<Value> findResults(Operation *sum) {
  SmallVector<Value> results = {sum->getResult(0)};
  auto follows = [](Operation *user) {
    return isView(user) || getConversion<arith::TruncFOp>(user) || getConversion<arith::ExtFOp>(user);
  };
  while (results.back().hasOneUse() && follows(*results.back().user_begin()))
    results.push_back((*results.back().user_begin())->getResult(0));
  return results;
}

/// Of scores that are put together from two tensors along `dim`: how many are in front. Null for others.
OpFoldResult countFront(Value scores, unsigned dim) {
  while (linalg::GenericOp widened = getConversion<arith::ExtFOp>(scores.getDefiningOp()))
    scores = widened.getDpsInputOperand(0)->get();
  auto last = scores.getDefiningOp<tensor::InsertSliceOp>();
  auto first = last ? last.getDest().getDefiningOp<tensor::InsertSliceOp>() : tensor::InsertSliceOp();
  if (!first || first.getSourceType().getRank() != last.getSourceType().getRank() ||
      first.getSourceType().getRank() != first.getType().getRank())
    return {};
  if (isConstantIntValue(last.getMixedOffsets()[dim], 0))
    std::swap(first, last);
  OpFoldResult size = first.getMixedSizes()[dim];
  bool fits = isConstantIntValue(first.getMixedOffsets()[dim], 0) &&
              Extent::of(last.getMixedOffsets()[dim]) == Extent::of(size);
  return fits ? size : OpFoldResult();
}

/// The elementwise sum of `result` and another tensor, which is set; null where there is none.
linalg::LinalgOp findAddition(Value result, Value &other) {
  auto op = result.hasOneUse() ? dyn_cast<linalg::LinalgOp>(*result.user_begin()) : linalg::LinalgOp();
  auto [first, second] = getInputs<arith::AddFOp>(op);
  if (!first || first == second || op.getNumDpsInputs() != 2 ||
      !llvm::all_of(op.getIndexingMapsArray(), [](AffineMap map) { return map.isIdentity(); }))
    return {};
  other = (first->get() == result ? second : first)->get();
  return op;
}

/// As a tensor of `type`, whose numbers may be narrower.
Value rounded(OpBuilder &b, Location loc, Value tensor, RankedTensorType type) {
  Type element = type.getElementType();
  if (getElementTypeOrSelf(tensor) != element)
    tensor = elementwise(
        b, loc, tensor::getMixedSizes(b, loc, tensor), element, tensor, b.getMultiDimIdentityMap(type.getRank()),
        [&](OpBuilder &b, Location loc, ValueRange args) { return convertFloat(b, loc, args.front(), element); });
  return castTo(b, loc, tensor, type);
}

struct RaiseBandsPass : impl::RaiseBandsPassBase<RaiseBandsPass> {
  using RaiseBandsPassBase::RaiseBandsPassBase;
  explicit RaiseBandsPass(const WeightStore *weights) : weights(weights) {}

  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    IRRewriter b(&getContext());
    bool isRead = false;
    for (SoftmaxOp softmax : collect<SoftmaxOp>(getOperation()))
      if (std::optional<Sums> sums = softmax.getLog() ? std::nullopt : findSums(softmax)) {
        raise(b, softmax, *sums, symbols);
        isRead = true;
      }
    // The chunks, and what was written for none: no verdict is given on their softmax.
    if (isRead)
      getOperation()->walk<WalkOrder::PostOrder, ReverseIterator>([&](Operation *op) {
        if (isOpTriviallyDead(op))
          b.eraseOp(op);
      });
  }

private:
  void raise(RewriterBase &b, SoftmaxOp softmax, const Sums &sums, const SymbolTable &symbols) {
    CaseReader::Shared shared;
    shared.numSteps = kMaxSteps;
    OpFoldResult numFront = sums.front ? countFront(softmax.getInput(), softmax.getDim()) : OpFoldResult();
    if (sums.front && !numFront)
      return;
    for (Value result : findResults(sums.skewed->getOwner())) {
      std::optional<FrontSum> front;
      Value replaced = result;
      if (sums.front) {
        front.emplace();
        front->weights = sums.front;
        front->size = numFront;
        linalg::LinalgOp addition = findAddition(result, front->result);
        if (!addition)
          continue;
        replaced = addition->getResult(0);
      }
      std::optional<Band> band = matchBand(softmax, {sums.skewed, result}, front, symbols, weights, shared);
      if (!band)
        continue;
      b.setInsertionPointAfterValue(replaced);
      Value written = writeBand(b, *band);
      if (!written)
        continue;
      remark::passed(softmax.getLoc(), remark::RemarkOpts::name("Band").category("attn-raise-bands"))
          << "a softmax over keys by their distance is one over all keys in a band";
      b.replaceAllUsesWith(replaced, rounded(b, softmax.getLoc(), written, cast<RankedTensorType>(replaced.getType())));
      return;
    }
  }

  const WeightStore *weights = nullptr;
};

} // namespace

std::unique_ptr<Pass> createRaiseBandsPass(const WeightStore *weights) {
  return std::make_unique<RaiseBandsPass>(weights);
}

} // namespace attn
