#include "passes/Passes.h"
#include "passes/graph/Structured.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/LinalgInterfaces.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Remarks.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

using namespace mlir;

namespace attn {
#define GEN_PASS_DEF_FUSEELEMENTWISEPASS
#include "passes/Passes.h.inc"

namespace {

/// More inputs than this and the pointers of the fused loop no longer fit into
/// registers.
constexpr unsigned kMaxInputs = 12;

/// Body operations that take tens of cycles an element.
bool isExpensive(Operation &op) {
  return isa<math::MathDialect>(op.getDialect()) || isa<arith::DivFOp, arith::RemFOp, arith::DivSIOp, arith::DivUIOp,
                                                        arith::RemSIOp, arith::RemUIOp, tensor::ExtractOp>(op);
}

/// At most `limit` cheap operations, constants not counted.
bool isCheap(linalg::LinalgOp op, unsigned limit) {
  unsigned count = 0;
  for (Operation &inner : op.getBlock()->without_terminator()) {
    if (isExpensive(inner) || inner.getNumRegions() != 0)
      return false;
    count += !isa<arith::ConstantOp, linalg::IndexOp>(inner);
  }
  return count <= limit;
}

bool readsContraction(linalg::LinalgOp op) {
  return llvm::any_of(op.getDpsInputs(), [](Value input) {
    auto producer = input.getDefiningOp<linalg::LinalgOp>();
    return producer && linalg::isaContractionOpInterface(producer);
  });
}

/// Whether `contraction` multiplies rows by rows, each read once, which no product of matrices does better, and
/// `producer` gathers them: stored, they take more time than the sums. Where both are gathered the latter stay stored,
/// since an operand says how long rows are.
bool sumsGatheredRows(linalg::GenericOp contraction, linalg::GenericOp producer) {
  return llvm::any_of(*producer.getBody(), llvm::IsaPred<tensor::ExtractOp>) &&
         llvm::all_of(contraction.getDpsInputOperands(), [&](OpOperand *input) {
           bool isIndex = isa<IntegerType>(getElementTypeOrSelf(input->get())); // of rows gathered in its body
           return isIndex || contraction.getMatchingIndexingMap(input).isPermutation();
         });
}

/// Whether the producer behind `operand` is computed inside its consumer. Each
/// point of the producer is then computed once a read, so it either is read
/// once or costs next to nothing.
bool shouldFuse(OpOperand *operand) {
  auto producer = operand->get().getDefiningOp<linalg::GenericOp>();
  auto consumer = dyn_cast<linalg::GenericOp>(operand->getOwner());
  if (!producer || !consumer || !isPointwise(producer) || consumer.getNumDpsInits() != 1)
    return false;
  if (producer.getNumDpsInputs() + consumer.getNumDpsInputs() > kMaxInputs)
    return false;
  // A sum of products stays one: nothing is computed inside it once a product.
  if (linalg::isaContractionOpInterface(consumer) && !sumsGatheredRows(consumer, producer))
    return false;
  bool reduces = consumer.getNumReductionLoops() != 0;
  if (!reduces && !isPointwise(consumer))
    return false;
  // Elements that are only moved, or come from the indices alone.
  if (getMovedInput(producer) || (producer.getNumDpsInputs() == 0 && isCheap(producer, 8)))
    return true;
  if (!operand->get().hasOneUse())
    return false;
  if (producer.getNumLoops() == consumer.getNumLoops())
    // A GEMM takes its elementwise user as epilogue, but no reduction.
    return !reduces || !readsContraction(producer);
  return producer.getNumLoops() < consumer.getNumLoops() && isCheap(producer, 1);
}

/// A transpose of what an op reads at computed places for it alone becomes part of that op, where its rows stay rows.
struct OpenTranspose : OpRewritePattern<linalg::TransposeOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(linalg::TransposeOp op, PatternRewriter &rewriter) const override {
    auto producer = op.getInput().getDefiningOp<linalg::GenericOp>();
    if (!op.hasPureTensorSemantics() || !producer || !isPointwise(producer) || !producer->hasOneUse() ||
        llvm::none_of(*producer.getBody(), llvm::IsaPred<tensor::ExtractOp>))
      return rewriter.notifyMatchFailure(op, "not of a gather of its own");
    ArrayRef<int64_t> permutation = op.getPermutation();
    if (permutation.back() + 1 != static_cast<int64_t>(permutation.size()))
      return rewriter.notifyMatchFailure(op, "turns rows");
    return linalg::generalizeNamedOp(rewriter, op);
  }
};

struct FuseElementwisePass : impl::FuseElementwisePassBase<FuseElementwisePass> {
  void runOnOperation() override {
    MLIRContext *context = &getContext();
    RewritePatternSet patterns(context);
    patterns.add<OpenTranspose>(context);
    linalg::populateElementwiseOpsFusionPatterns(patterns, shouldFuse);
    linalg::populateEraseUnusedOperandsAndResultsPatterns(patterns);
    linalg::populateInlineConstantOperandsPatterns(patterns);
    linalg::GenericOp::getCanonicalizationPatterns(patterns, context);
    tensor::EmptyOp::getCanonicalizationPatterns(patterns, context);
    // Long chains of sums that share terms are not at an end after ten rounds: what is fused by then is.
    (void)applyPatternsGreedily(getOperation(), std::move(patterns));
    getOperation()->walk([&](linalg::GenericOp op) {
      for (OpOperand *input : op.getDpsInputOperands()) {
        auto producer = input->get().getDefiningOp<linalg::GenericOp>();
        if (producer && isPointwise(producer) && isPointwise(op))
          remark::missed(op.getLoc(), remark::RemarkOpts::name("Elementwise").category("attn-fuse-elementwise"))
              << (input->get().hasOneUse() ? "operand not fused: it would be computed once a broadcast element"
                                           : "operand not fused: it is used elsewhere too");
      }
    });
  }
};

} // namespace
} // namespace attn
