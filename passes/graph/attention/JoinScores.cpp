#include "passes/graph/attention/RaiseContraction.h"

#include "passes/graph/Structured.h"
#include "passes/graph/attention/JoinParts.h"
#include "passes/graph/element/Access.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Remarks.h"

using namespace mlir;

namespace attn {
namespace {

/// The tensors that `whole` is, one behind the other along `dim`; none where it is another thing. `init`: what they are
/// put into.
SmallVector<Part> readParts(Value whole, unsigned dim, Value &init) {
  SmallVector<std::pair<int64_t, Value>> found;
  for (init = whole; auto insert = init.getDefiningOp<tensor::InsertSliceOp>(); init = insert.getDest()) {
    if (insert.getSourceType().getRank() != insert.getType().getRank() || !insert.hasUnitStride())
      return {};
    std::optional<int64_t> offset = getConstantIntValue(insert.getMixedOffsets()[dim]);
    if (!offset || insert.getSourceType().isDynamicDim(dim))
      return {};
    for (int64_t n = 0; n != insert.getType().getRank(); ++n)
      if (n != dim && !(isConstantIntValue(insert.getMixedOffsets()[n], 0) &&
                        Extent::of(insert.getMixedSizes()[n]) == Extent::of(whole, n)))
        return {};
    found.emplace_back(*offset, insert.getSource());
  }
  llvm::sort(found, llvm::less_first());
  int64_t end = 0;
  SmallVector<Part> parts;
  unsigned rank = cast<RankedTensorType>(whole.getType()).getRank();
  MLIRContext *context = whole.getContext();
  AffineMap map = AffineMap::get(rank + 1, 0, AffineMap::getMultiDimIdentityMap(rank, context).getResults(), context);
  for (auto [offset, part] : found) {
    if (offset != end)
      return {};
    parts.push_back({part, map, cast<RankedTensorType>(part.getType()).getDimSize(dim)});
    end += parts.back().size;
  }
  return parts.size() > 1 && end == cast<RankedTensorType>(whole.getType()).getDimSize(dim) ? parts
                                                                                            : SmallVector<Part>();
}

} // namespace

void joinScores(RewriterBase &b, SoftmaxOp softmax) {
  if (!llvm::any_of(softmax->getUsers(), [](Operation *user) { return isContraction(user); }))
    return;
  unsigned dim = softmax.getDim();
  // Through what is done to the whole, at each score.
  (void)worklist(Values{softmax.getInput()}, [&](Value next, Values &list) {
    if (next.getDefiningOp<tensor::InsertSliceOp>()) {
      Value init;
      SmallVector<Part> parts = readParts(next, dim, init);
      if (parts.empty())
        return false;
      b.setInsertionPointAfterValue(next);
      PartsJoiner joiner(tensor::getMixedSizes(b, next.getLoc(), init), dim);
      std::optional<JoinedParts> joined = joiner.match(parts);
      if (!joined || !joined->hasProduct())
        return false;
      Value whole = joiner.write(b, next.getLoc(), *joined).value;
      remark::passed(softmax.getLoc(), remark::RemarkOpts::name("Scores").category("attn-raise-contraction"))
          << "scores of several tensors of keys are those of one";
      b.replaceAllUsesWith(next, castTo(b, next.getLoc(), whole, next.getType()));
      return false;
    }
    auto op = next.getDefiningOp<linalg::LinalgOp>();
    if (op && isPointwise(op) && op.getIndexingMapsArray().back().isIdentity())
      for (OpOperand *input : op.getDpsInputOperands())
        if (op.getMatchingIndexingMap(input).isIdentity())
          list.push_back(input->get());
    return false;
  });
}

} // namespace attn
