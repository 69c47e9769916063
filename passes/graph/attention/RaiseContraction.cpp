#include "passes/graph/attention/RaiseContraction.h"

#include "passes/Passes.h"
#include "passes/graph/Collect.h"
#include "passes/graph/Structured.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Tensor/Utils/Utils.h"
#include "mlir/IR/Remarks.h"

using namespace mlir;

namespace attn {
#define GEN_PASS_DEF_RAISECONTRACTIONPASS
#include "passes/Passes.h.inc"

namespace {

/// The inputs of a quotient that an elementwise op is; null for another op.
std::pair<OpOperand *, OpOperand *> readDivision(Operation *op) {
  return getInputs<arith::DivFOp>(dyn_cast_or_null<linalg::LinalgOp>(op));
}

/// Whether `op` divides something by its own sum: that gives weights as a softmax does.
bool dividesBySum(Operation *op) {
  auto [dividend, divisor] = readDivision(op);
  for (Operation *from = divisor ? divisor->get().getDefiningOp() : nullptr; from;) {
    if (getReduction(from) == Combiner::sum)
      return from->getOperand(0) == dividend->get();
    if (!isPerElement(from))
      return false;
    Value viewed = getViewed(from);
    from = (viewed ? viewed : from->getOperand(0)).getDefiningOp();
  }
  return false;
}

/// Whether what `sum` adds up is divided by what is computed from the sum.
bool dividesItsTerms(linalg::LinalgOp sum) {
  auto divides = [&](OpOperand &use) {
    auto [dividend, divisor] = readDivision(use.getOwner());
    return divisor && divisor->get() == use.get() && dividend->get() == sum->getOperand(0);
  };
  return hasUse(sum->getResult(0), divides, isPerElement);
}

/// Whether `value` is computed from weights by elementwise ops and views.
bool comesFromSoftmax(Value value) {
  return isMadeOf(value, [](Value source) {
    return isa_and_nonnull<SoftmaxOp>(source.getDefiningOp()) || dividesBySum(source.getDefiningOp());
  });
}

/// Whether weights are computed from `value` by elementwise ops and views.
bool reachesSoftmax(Value value) {
  return hasUse(
      value, [](OpOperand &use) { return isa<SoftmaxOp>(use.getOwner()) || dividesBySum(use.getOwner()); },
      isPerElement);
}

struct RaiseContractionPass : impl::RaiseContractionPassBase<RaiseContractionPass> {
  void runOnOperation() override {
    IRRewriter rewriter(&getContext());
    for (linalg::LinalgOp sum : collect<linalg::LinalgOp>(
             getOperation(), [](linalg::LinalgOp op) { return getReduction(op) == Combiner::sum; }))
      if (dividesItsTerms(sum))
        (void)sumWeights(rewriter, sum);
      else if (!raise(sum))
        dropUnitSum(sum);
    SmallVector<linalg::LinalgOp> totals = collect<linalg::LinalgOp>(getOperation(), isPointwise);
    for (linalg::LinalgOp total : llvm::reverse(totals)) // the whole sum before a part of it
      if (!raiseRunningSoftmax(rewriter, total))
        joinSums(rewriter, total);
    for (SoftmaxOp softmax : collect<SoftmaxOp>(getOperation()))
      joinScores(rewriter, softmax);
    SmallVector<linalg::ContractOp> contractions = collect<linalg::ContractOp>(getOperation());
    for (linalg::ContractOp op : llvm::reverse(contractions))
      distribute(rewriter, op);
  }

private:
  /// Distributes `op`, and what is made of it.
  static void distribute(RewriterBase &rewriter, linalg::ContractOp op) {
    Operation *before = op->getPrevNode(), *end = op->getNextNode();
    if (!distributeSum(rewriter, op))
      return;
    SmallVector<linalg::ContractOp> contractions;
    for (Operation *made = before ? before->getNextNode() : nullptr; made && made != end; made = made->getNextNode())
      if (auto contraction = dyn_cast<linalg::ContractOp>(made))
        contractions.push_back(contraction);
    for (linalg::ContractOp made : llvm::reverse(contractions))
      distribute(rewriter, made);
  }

  /// A sum over dimensions of size 1 is a reshape.
  void dropUnitSum(linalg::LinalgOp sum) {
    OpOperand *input = sum.getDpsInputOperand(0);
    AffineMap read = sum.getMatchingIndexingMap(input), written = sum.getMatchingIndexingMap(sum.getDpsInitOperand(0));
    auto type = dyn_cast<RankedTensorType>(input->get().getType());
    auto result = cast<RankedTensorType>(sum->getResult(0).getType());
    if (!type || type.getElementType() != result.getElementType() || !read.isPermutation() ||
        !written.isProjectedPermutation())
      return;
    SmallVector<AffineExpr> kept;
    llvm::SmallBitVector dropped(type.getRank());
    for (auto [n, expr] : llvm::enumerate(read.getResults()))
      if (written.getResultPosition(expr))
        kept.push_back(expr);
      else if (type.getDimSize(n) == 1)
        dropped.set(n);
      else
        return;
    if (ArrayRef(kept) != written.getResults()) // in another order
      return;
    IRRewriter rewriter(sum);
    Value reshaped = tensor::dropGivenUnitDims(rewriter, sum.getLoc(), input->get(), dropped);
    rewriter.replaceOp(sum, castTo(rewriter, sum.getLoc(), reshaped, result));
  }

  /// Whether `sum` is a sum of products, and a contraction now.
  bool raise(linalg::LinalgOp sum) {
    auto product = sum->getOperand(0).getDefiningOp<linalg::LinalgOp>();
    if (!product || !isPointwise(product) || product.getNumDpsInputs() != 2)
      return false;
    // The sum is in the type of the factors or, as that of half types, in a wider one; then products are rounded.
    Type element = getElementTypeOrSelf(product->getResult(0)), total = getElementTypeOrSelf(sum->getResult(0));
    auto [left, right] = getInputs<arith::MulFOp>(product);
    if (!left || (total != element && total != accumulatorType(element)))
      return false;
    SmallVector<Value> factors;
    SmallVector<AffineMap> maps;
    AffineMap read = sum.getMatchingIndexingMap(sum.getDpsInputOperand(0));
    for (OpOperand *factor : {left, right}) {
      factors.push_back(factor->get());
      maps.push_back(readThrough(*factor, read));
      if (getElementTypeOrSelf(factor->get()) != element || !maps.back().isProjectedPermutation())
        return false;
    }
    // A summed dimension must be one of an operand, or its size is lost.
    for (unsigned loop = 0; loop != sum.getNumLoops(); ++loop)
      if (!maps[0].isFunctionOfDim(loop) && !maps[1].isFunctionOfDim(loop))
        return false;
    // What one factor alone is summed over is no product's dimension.
    SmallVector<unsigned> reduced;
    sum.getReductionDims(reduced);
    if (llvm::any_of(reduced,
                     [&](unsigned loop) { return !maps[0].isFunctionOfDim(loop) || !maps[1].isFunctionOfDim(loop); }))
      return false;
    if (!comesFromSoftmax(factors[0]) && !comesFromSoftmax(factors[1]) && !reachesSoftmax(sum->getResult(0)))
      return false;
    IRRewriter rewriter(sum);
    remark::passed(sum.getLoc(), remark::RemarkOpts::name("Contraction").category("attn-raise-contraction"))
        << "a sum of products is a contraction";
    rewriter.replaceOpWithNewOp<linalg::ContractOp>(
        sum, sum->getResultTypes(), ValueRange(factors), sum.getDpsInits(),
        rewriter.getAffineMapArrayAttr({maps[0], maps[1], sum.getMatchingIndexingMap(sum.getDpsInitOperand(0))}));
    return true;
  }
};

} // namespace
} // namespace attn
