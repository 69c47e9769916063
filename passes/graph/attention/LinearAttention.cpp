#include "passes/graph/attention/Unfused.h"

#include "passes/graph/Structured.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;

namespace attn {
namespace {

/// The softmax that makes `value` by elementwise ops and views, or null.
SoftmaxOp findSoftmax(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    if (auto softmax = dyn_cast<SoftmaxOp>(op))
      return softmax;
    Value viewed = getViewed(op);
    if (!viewed && (!isPointwise(op) || cast<linalg::LinalgOp>(op).getNumDpsInputs() != 1))
      break;
    value = viewed ? viewed : op->getOperand(0);
  }
  return {};
}

/// Whether the places along dimension `dim` of `value` are features: columns of a weight, or a dimension of known size
/// of an input of which another size is open.
bool isOfFeatures(Value value, int64_t dim) {
  using Dim = std::pair<Value, int64_t>;
  bool isKnown = false; // an input of known sizes alone says nothing
  bool hasPlaces = worklist(SmallVector<Dim>{{value, dim}}, [&](Dim read, SmallVector<Dim> &list) {
    auto [next, at] = read;
    auto type = cast<RankedTensorType>(next.getType());
    Operation *op = next.getDefiningOp();
    if (!op) {
      isKnown |= !type.hasStaticShape();
      return type.isDynamicDim(at);
    } else if (auto same = dyn_cast<tensor::CastOp>(op); same && isa<RankedTensorType>(same.getSource().getType())) {
      list.push_back({same.getSource(), at});
    } else if (auto softmax = dyn_cast<SoftmaxOp>(op)) {
      list.push_back({softmax.getInput(), at});
    } else if (auto slice = dyn_cast<tensor::ExtractSliceOp>(op);
               slice && slice.getSourceType().getRank() == type.getRank()) {
      list.push_back({slice.getSource(), at});
    } else if (isa<tensor::ConcatOp>(op)) {
      for (Value part : op->getOperands())
        list.push_back({part, at});
    } else if (auto expand = dyn_cast<tensor::ExpandShapeOp>(op)) {
      for (auto [n, group] : llvm::enumerate(expand.getReassociationIndices()))
        if (llvm::is_contained(group, at))
          list.push_back({expand.getSrc(), n});
    } else if (auto collapse = dyn_cast<tensor::CollapseShapeOp>(op)) {
      ReassociationIndices group = collapse.getReassociationIndices()[at];
      for (int64_t n : group)
        if (collapse.getSrcType().getDimSize(n) != 1)
          list.push_back({collapse.getSrc(), n});
    } else if (auto linalgOp = dyn_cast<linalg::LinalgOp>(op); linalgOp && linalgOp.getNumDpsInits() == 1) {
      AffineExpr loop = linalgOp.getMatchingIndexingMap(linalgOp.getDpsInitOperand(0)).getResult(at);
      bool isWeight = false;
      SmallVector<Dim> made;
      for (OpOperand *input : linalgOp.getDpsInputOperands()) {
        std::optional<unsigned> place = linalgOp.getMatchingIndexingMap(input).getResultPosition(loop);
        if (!place)
          continue;
        if (!isStatic(input->get()))
          made.push_back({input->get(), *place});
        else
          isWeight |= linalgOp.getNumReductionLoops() != 0;
      }
      if (!isWeight && made.empty())
        return true;
      isKnown |= isWeight;
      if (!isWeight)
        list.append(made);
    } else {
      return true;
    }
    return false;
  });
  return isKnown && !hasPlaces;
}

/// Whether the sum that `weights` weigh has for values the sum of other weights, on which the scores of `softmax`,
/// which makes `weights`, do not depend, and `softmax` normalises features.
bool isOverFeatures(OpOperand &weights, SoftmaxOp softmax) {
  Value values = stripViews(weights.getOwner()->getOperand(1 - weights.getOperandNumber()));
  Operation *inner = values.getDefiningOp();
  if (!isContraction(inner) || isComputedFrom(softmax.getInput(), values))
    return false;
  return (findSoftmax(inner->getOperand(0)) || findSoftmax(inner->getOperand(1))) &&
         isOfFeatures(softmax.getInput(), softmax.getDim());
}

} // namespace

LinearPart findLinearPart(OpOperand &weights, SoftmaxOp softmax) {
  if (isOverFeatures(weights, softmax))
    return LinearPart::overFeatures;
  auto isOuter = [](OpOperand &use) {
    if (!isContraction(use.getOwner()) || use.getOperandNumber() >= 2)
      return false;
    OpOperand &outer = use.getOwner()->getOpOperand(1 - use.getOperandNumber());
    SoftmaxOp other = findSoftmax(outer.get());
    return other && isOverFeatures(outer, other);
  };
  return hasUse(weights.getOwner()->getResult(0), isOuter, isView) ? LinearPart::gathers : LinearPart::none;
}

StringRef whyNoScores(LinearPart part, const ScoreSource &source) {
  bool ofWeight =
      source.product && (isStatic(source.product->getOperand(0)) || isStatic(source.product->getOperand(1)));
  if (part == LinearPart::overFeatures && (ofWeight || !source.product))
    return "no contraction: it normalises features (linear attention)";
  // The scores of all features at a position are a row of one product, which queries would take apart.
  return part == LinearPart::gathers && ofWeight ? "the query of each feature is a weight (linear attention)" : "";
}

} // namespace attn
