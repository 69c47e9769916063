#include "dialects/attn/AttnOps.h"
#include "passes/Passes.h"
#include "passes/graph/Structured.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/IR/Remarks.h"

using namespace mlir;

namespace attn {
#define GEN_PASS_DEF_RAISECONTRACTIONPASS
#include "passes/Passes.h.inc"

namespace {

bool isStep(Operation *op) { return op && (isView(op) || isPointwise(op)); }

/// Whether `value` is computed from a softmax by elementwise ops and views.
bool comesFromSoftmax(Value value, DenseMap<Value, bool> &known) {
  auto [it, fresh] = known.try_emplace(value, false);
  if (!fresh)
    return it->second;
  Operation *op = value.getDefiningOp();
  bool comes = isa_and_nonnull<SoftmaxOp>(op);
  if (!comes && isStep(op))
    for (Value operand : op->getOperands())
      comes |= isa<RankedTensorType>(operand.getType()) && comesFromSoftmax(operand, known);
  return known[value] = comes;
}

/// Whether a softmax is computed from `value` by elementwise ops and views.
bool reachesSoftmax(Value value, DenseMap<Value, bool> &known) {
  auto [it, fresh] = known.try_emplace(value, false);
  if (!fresh)
    return it->second;
  bool reaches = false;
  for (Operation *user : value.getUsers())
    reaches |= isa<SoftmaxOp>(user) || (isStep(user) && reachesSoftmax(user->getResult(0), known));
  return known[value] = reaches;
}

struct RaiseContractionPass : impl::RaiseContractionPassBase<RaiseContractionPass> {
  void runOnOperation() override {
    SmallVector<linalg::LinalgOp> sums;
    getOperation()->walk([&](linalg::LinalgOp op) {
      if (getReduction(op) == Combiner::sum)
        sums.push_back(op);
    });
    for (linalg::LinalgOp sum : sums)
      visit(sum);
  }

private:
  void visit(linalg::LinalgOp sum) {
    auto product = sum->getOperand(0).getDefiningOp<linalg::LinalgOp>();
    if (!product || !isPointwise(product) || product.getNumDpsInputs() != 2)
      return;
    Type element = getElementTypeOrSelf(sum->getResult(0));
    auto multiply = product.getBlock()->getTerminator()->getOperand(0).getDefiningOp<arith::MulFOp>();
    if (!multiply || getElementTypeOrSelf(product->getResult(0)) != element)
      return;
    Value factors[2];
    AffineMap maps[2];
    AffineMap written = product.getMatchingIndexingMap(product.getDpsInitOperand(0));
    AffineMap read = sum.getMatchingIndexingMap(sum.getDpsInputOperand(0));
    // Loops of the sum for each loop of the product.
    AffineMap loops = inversePermutation(written).compose(read);
    for (unsigned n : {0, 1}) {
      auto argument = dyn_cast<BlockArgument>(multiply->getOperand(n));
      if (!argument || argument.getOwner() != product.getBlock())
        return;
      OpOperand *operand = product.getMatchingOpOperand(argument);
      if (!product.isDpsInput(operand) || getElementTypeOrSelf(operand->get()) != element)
        return;
      factors[n] = operand->get();
      maps[n] = product.getMatchingIndexingMap(operand).compose(loops);
      if (!maps[n].isProjectedPermutation())
        return;
    }
    // A summed dimension must be one of an operand, or its size is lost.
    for (unsigned loop = 0; loop != sum.getNumLoops(); ++loop)
      if (!maps[0].isFunctionOfDim(loop) && !maps[1].isFunctionOfDim(loop))
        return;
    if (!comesFromSoftmax(factors[0], sources) && !comesFromSoftmax(factors[1], sources) &&
        !reachesSoftmax(sum->getResult(0), targets))
      return;
    // The result dies, and another one may get its address.
    sources.erase(sum->getResult(0));
    targets.erase(sum->getResult(0));
    IRRewriter rewriter(sum);
    remark::passed(sum.getLoc(), remark::RemarkOpts::name("Contraction").category("attn-raise-contraction"))
        << "a sum of products is a contraction";
    rewriter.replaceOpWithNewOp<linalg::ContractOp>(
        sum, sum->getResultTypes(), ValueRange(factors), sum.getDpsInits(),
        rewriter.getAffineMapArrayAttr({maps[0], maps[1], sum.getMatchingIndexingMap(sum.getDpsInitOperand(0))}));
  }

  DenseMap<Value, bool> sources, targets;
};

} // namespace
} // namespace attn
