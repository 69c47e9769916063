#include "passes/Passes.h"
#include "passes/graph/Pipeline.h"
#include "passes/graph/Structured.h"
#include "passes/graph/element/Affine.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Affine/Utils.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/IR/SymbolTable.h"

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

bool isIntegerTensor(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type && isa<IntegerType>(type.getElementType());
}

/// The tensor of the same sizes into which `tensor` is written.
Value madeIn(Value tensor) {
  unsigned number = cast<OpResult>(tensor).getResultNumber();
  if (auto loop = tensor.getDefiningOp<scf::ForOp>())
    return loop.getInitArgs()[number];
  return cast<linalg::LinalgOp>(tensor.getDefiningOp()).getDpsInitOperand(number)->get();
}

struct ComputePositionsPass : impl::ComputePositionsPassBase<ComputePositionsPass> {
  using ComputePositionsPassBase::ComputePositionsPassBase;
  explicit ComputePositionsPass(const WeightStore *weights) : weights(weights) {}

  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    SmallVector<Value> tensors;
    getOperation().walk([&](Operation *op) {
      if (auto linalgOp = dyn_cast<linalg::LinalgOp>(op); linalgOp && readsIntegers(linalgOp))
        tensors.push_back(op->getResult(0));
      if (auto loop = dyn_cast<scf::ForOp>(op)) // a running sum; what it carries besides is no place of it
        llvm::append_range(tensors, llvm::make_filter_range(loop.getResults(), isIntegerTensor));
    });
    IRRewriter rewriter(&getContext());
    for (Value tensor : tensors) { // the first of a chain is short by the time when the next one reads it
      if (splatConstant(tensor))
        continue; // as short as it can be
      std::optional<AffineExpr> place = Affine(tensor, symbols, weights).read();
      if (!place)
        continue;
      rewriter.setInsertionPointAfterValue(tensor);
      Location loc = tensor.getLoc();
      Type element = getElementTypeOrSelf(tensor);
      SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(rewriter, loc, madeIn(tensor));
      Value computed =
          elementwise(rewriter, loc, sizes, element, {}, {}, [&](OpBuilder &b, Location loc, ValueRange) -> Value {
            SmallVector<Value> loops;
            for (unsigned n = 0; n != sizes.size(); ++n)
              loops.push_back(linalg::IndexOp::create(b, loc, n));
            Value sum = affine::expandAffineExpr(b, loc, *place, loops, {});
            return arith::IndexCastOp::create(b, loc, element, sum);
          });
      rewriter.replaceAllUsesWith(tensor, computed);
    }
    dropChecks(symbols);
  }

private:
  /// Checks of indices that can't fail go, also of those at which other tensors are read.
  void dropChecks(const SymbolTable &symbols) {
    SmallVector<CheckIndexOp> checks;
    getOperation().walk([&](CheckIndexOp check) { checks.push_back(check); });
    for (CheckIndexOp check : checks) {
      auto op = dyn_cast<linalg::LinalgOp>(check->getParentOp());
      if (!op || !isPointwise(op) || !op.getMatchingIndexingMap(op.getDpsInitOperand(0)).isIdentity() ||
          !Affine(op->getResult(0), symbols, weights).neverFails(check))
        continue;
      check.getResult().replaceAllUsesWith(check.getIndex());
      check.erase();
    }
  }

  const WeightStore *weights = nullptr;
};

} // namespace

std::unique_ptr<Pass> createComputePositionsPass(const WeightStore *weights) {
  return std::make_unique<ComputePositionsPass>(weights);
}
} // namespace attn
