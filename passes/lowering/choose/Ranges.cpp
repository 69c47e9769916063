#include "passes/lowering/choose/Ranges.h"
#include "dialects/attn/AttnOps.h"
#include "passes/graph/Structured.h"
#include "passes/lowering/choose/KernelCall.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;

namespace attn {

/// Whether `op` combines all elements of its one input by `Op` and starts from `start`.
template <typename Op> static bool isExtreme(linalg::GenericOp op, bool startsNegative) {
  if (op.getNumDpsInputs() != 1 || op.getNumDpsInits() != 1 || !op.hasPureTensorSemantics() ||
      op.getNumReductionLoops() != op.getNumLoops() || op.getNumLoops() == 0 ||
      !op.getMatchingIndexingMap(op.getDpsInputOperand(0)).isIdentity() ||
      !getElementTypeOrSelf(op.getDpsInputs()[0]).isF32())
    return false;
  auto combine = op.getBody()->getTerminator()->getOperand(0).getDefiningOp<Op>();
  auto start = dyn_cast_or_null<FloatAttr>(splatConstant(op.getDpsInits()[0]));
  return combine && op.getBody()->getOperations().size() == 2 && combine.getLhs() != combine.getRhs() && start &&
         start.getValue().isInfinity() && start.getValue().isNegative() == startsNegative;
}

Operation *TensorRange::first() const {
  linalg::GenericOp most = greatest, low = least;
  return most->isBeforeInBlock(low) ? most : low;
}

SmallVector<TensorRange> findRanges(ModuleOp module) {
  llvm::MapVector<Value, TensorRange> ranges;
  module.walk([&](linalg::GenericOp op) {
    if (isExtreme<arith::MaximumFOp>(op, /*startsNegative=*/true))
      ranges[op.getDpsInputs()[0]].greatest = op;
    else if (isExtreme<arith::MinimumFOp>(op, /*startsNegative=*/false))
      ranges[op.getDpsInputs()[0]].least = op;
  });
  SmallVector<TensorRange> whole;
  for (auto &[tensor, range] : ranges)
    if (range.greatest && range.least && range.greatest->getBlock() == range.least->getBlock())
      whole.push_back(range);
  return whole;
}

void callRange(const TensorRange &range, func::FuncOp kernel, int64_t parts) {
  IRRewriter rewriter(range.first());
  Location loc = range.first()->getLoc();
  Type f32 = rewriter.getF32Type();
  auto empty = [&](ArrayRef<int64_t> shape) -> Value { return tensor::EmptyOp::create(rewriter, loc, shape, f32); };
  SmallVector<Value> inits = {empty({2, parts}), empty({}), empty({})};
  KernelOp call = callKernel(rewriter, loc, kernel, range.tensor(), inits);
  rewriter.replaceOp(range.greatest, call->getResult(1));
  rewriter.replaceOp(range.least, call->getResult(2));
}

} // namespace attn
