#include "passes/Passes.h"
#include "passes/graph/PositionReader.h"
#include "passes/graph/Structured.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Affine/Utils.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/PatternMatch.h"

using namespace mlir;

namespace attn {
#define GEN_PASS_DEF_COMPUTEPOSITIONSPASS
#include "passes/Passes.h.inc"

namespace {

/// Whether `op` makes a tensor of integers from others.
bool readsIntegers(linalg::LinalgOp op) {
  if (!isPointwise(op) || !isa<IntegerType>(getElementTypeOrSelf(op->getResult(0))) ||
      !op.getMatchingIndexingMap(op.getDpsInitOperand(0)).isIdentity())
    return false;
  auto isInteger = [](Value value) { return isa<IntegerType>(getElementTypeOrSelf(value)); };
  return llvm::all_of(op.getDpsInputs(), isInteger) &&
         (op.getNumDpsInputs() != 0 || llvm::any_of(*op.getBlock(), llvm::IsaPred<tensor::ExtractOp>));
}

struct ComputePositionsPass : impl::ComputePositionsPassBase<ComputePositionsPass> {
  void runOnOperation() override {
    SmallVector<linalg::LinalgOp> ops;
    getOperation().walk([&](linalg::LinalgOp op) {
      if (readsIntegers(op))
        ops.push_back(op);
    });
    IRRewriter rewriter(&getContext());
    for (linalg::LinalgOp op : ops) { // the first of a chain is short by the time when the next one reads it
      std::optional<AffineExpr> place = PositionReader(op).read();
      if (!place)
        continue;
      rewriter.setInsertionPoint(op);
      Location loc = op.getLoc();
      Type element = getElementTypeOrSelf(op->getResult(0));
      SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(rewriter, loc, op.getDpsInitOperand(0)->get());
      Value computed =
          elementwise(rewriter, loc, sizes, element, {}, {}, [&](OpBuilder &b, Location loc, ValueRange) -> Value {
            SmallVector<Value> loops;
            for (unsigned n = 0; n != op.getNumLoops(); ++n)
              loops.push_back(linalg::IndexOp::create(b, loc, n));
            Value sum = affine::expandAffineExpr(b, loc, *place, loops, {});
            return arith::IndexCastOp::create(b, loc, element, sum);
          });
      rewriter.replaceOp(op, computed);
    }
  }
};

} // namespace
} // namespace attn
