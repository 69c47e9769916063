#include "dialects/attn/AttnOps.h"
#include "passes/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "llvm/ADT/MapVector.h"

namespace attn {
#define GEN_PASS_DEF_GUARDINDICESPASS
#include "passes/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {

/// Where the requirement can stand: before the linalg op around `check`, else
/// before the check itself. Null where `size` is not known there.
Operation *guardedOp(CheckIndexOp check) {
  Operation *op = check;
  if (auto around = check->getParentOfType<linalg::LinalgOp>())
    op = around;
  Region *home = check.getSize().getParentRegion();
  return home->isAncestor(op->getParentRegion()) ? op : nullptr;
}

Value isZero(OpBuilder &b, Location loc, Value size) {
  return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, size, arith::ConstantIndexOp::create(b, loc, 0));
}

/// True where the op has no iterations: each of its loops is a dimension of some
/// operand. A static 0 makes it constant.
Value hasNoIterations(OpBuilder &b, Operation *op) {
  Location loc = op->getLoc();
  Value none = arith::ConstantIntOp::create(b, loc, 0, 1);
  for (Value operand : op->getOperands()) {
    auto type = dyn_cast<RankedTensorType>(operand.getType());
    for (int64_t dim = 0; type && dim < type.getRank(); ++dim) {
      if (type.getDimSize(dim) == 0)
        return arith::ConstantIntOp::create(b, loc, 1, 1);
      if (type.isDynamicDim(dim))
        none = arith::OrIOp::create(b, loc, none, isZero(b, loc, tensor::DimOp::create(b, loc, operand, dim)));
    }
  }
  return none;
}

struct GuardIndicesPass : attn::impl::GuardIndicesPassBase<GuardIndicesPass> {
  void runOnOperation() override {
    llvm::MapVector<std::pair<Operation *, Value>, CheckIndexOp> guards;
    getOperation().walk([&](CheckIndexOp check) {
      std::optional<int64_t> size = getConstantIntValue(check.getSize());
      if (size && *size > 0)
        return;
      if (Operation *op = guardedOp(check))
        guards.try_emplace({op, check.getSize()}, check);
    });
    for (auto &[key, check] : guards) {
      auto [op, size] = key;
      OpBuilder b(op);
      Location loc = check.getLoc();
      Value positive =
          arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sgt, size, arith::ConstantIndexOp::create(b, loc, 0));
      Value holds = arith::OrIOp::create(b, loc, positive, hasNoIterations(b, op));
      RequireOp::create(b, loc, holds, (check.getMessage() + ": an index into a dimension of size {0}").str(), size);
    }
  }
};

} // namespace
