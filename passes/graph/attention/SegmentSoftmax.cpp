#include "passes/graph/attention/Unfused.h"

#include "passes/graph/Structured.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/DenseSet.h"

using namespace mlir;

namespace attn {
namespace {

bool isExponential(Value tensor) {
  auto op = tensor.getDefiningOp<linalg::LinalgOp>();
  return op && isPointwise(op) && !op.getBlock()->getOps<math::ExpOp>().empty();
}

/// What `tensor` is made of by views and elementwise ops, itself first, up to exponentials; of ops that read others at
/// computed places, these too. A quotient of exponentials and sums is made of few.
Values sourcesOf(Value tensor) {
  constexpr size_t kMost = 32;
  Values sources;
  worklist(Values{tensor}, [&](Value next, Values &list) {
    sources.push_back(next);
    auto op = next.getDefiningOp<linalg::LinalgOp>();
    if (!isExponential(next) && followTensors(next.getDefiningOp(), list) && op)
      for (auto extract : op.getBlock()->getOps<tensor::ExtractOp>())
        list.push_back(extract.getTensor());
    return sources.size() == kMost;
  });
  return sources;
}

/// The tensor whose elements a loop nest adds to what stands at places of its result, or null.
Value addedByLoops(Value value) {
  while (auto loop = value.getDefiningOp<scf::ForOp>()) {
    if (loop.getNumResults() != 1)
      return {};
    value = loop.getBody()->getTerminator()->getOperand(0);
  }
  auto insert = value.getDefiningOp<tensor::InsertOp>();
  auto sum = insert ? insert.getScalar().getDefiningOp<arith::AddFOp>() : arith::AddFOp();
  if (!sum)
    return {};
  auto lhs = sum.getLhs().getDefiningOp<tensor::ExtractOp>(), rhs = sum.getRhs().getDefiningOp<tensor::ExtractOp>();
  if (!lhs || !rhs)
    return {};
  if (lhs.getTensor() == insert.getDest())
    return rhs.getTensor();
  return rhs.getTensor() == insert.getDest() ? lhs.getTensor() : Value();
}

} // namespace

bool isSegmentSoftmax(linalg::LinalgOp op) {
  auto divides = [](Value tensor) {
    auto quotient = tensor.getDefiningOp<linalg::LinalgOp>();
    return quotient && isPointwise(quotient) && !quotient.getBlock()->getOps<arith::DivFOp>().empty();
  };
  if (op->getNumResults() != 1 || !divides(op->getResult(0)))
    return false;
  // What is divided again, by a share of edges that are kept for instance, is no second softmax.
  SmallVector<Value> sources = sourcesOf(op->getResult(0));
  if (llvm::any_of(llvm::drop_begin(sources), divides))
    return false;
  return llvm::any_of(sources, [&](Value source) {
    Value added = isa_and_nonnull<scf::ForOp>(source.getDefiningOp()) ? addedByLoops(source) : Value();
    while (added && !isExponential(added) && isView(added.getDefiningOp()))
      added = getViewed(added.getDefiningOp());
    return added && isExponential(added) && llvm::is_contained(sources, added);
  });
}

} // namespace attn
