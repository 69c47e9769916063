#include "passes/graph/attention/RaiseContraction.h"

#include "passes/graph/Structured.h"
#include "passes/graph/attention/JoinParts.h"
#include "passes/graph/element/Access.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Remarks.h"

using namespace mlir;

namespace attn {

void joinScores(RewriterBase &b, SoftmaxOp softmax) {
  if (!llvm::any_of(softmax->getUsers(), [](Operation *user) { return isContraction(user); }))
    return;
  unsigned dim = softmax.getDim();
  // Through what is done to the whole, at each score.
  (void)worklist(Values{softmax.getInput()}, [&](Value next, Values &list) {
    if (next.getDefiningOp<tensor::InsertSliceOp>()) {
      SmallVector<ConcatPart> parts = concatParts(next, dim);
      if (parts.size() < 2)
        return false;
      Value init = next; // what the parts are put into
      while (auto insert = init.getDefiningOp<tensor::InsertSliceOp>())
        init = insert.getDest();
      b.setInsertionPointAfterValue(next);
      PartsJoiner joiner(tensor::getMixedSizes(b, next.getLoc(), init), dim);
      unsigned rank = softmax.getType().getRank();
      AffineMap map = b.getMultiDimIdentityMap(rank + 1).dropResult(rank);
      std::optional<JoinedParts> joined = joiner.match(
          llvm::map_to_vector(parts, [&](const ConcatPart &part) { return Part{part.source, map, part.size}; }));
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
