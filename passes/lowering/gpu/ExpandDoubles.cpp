#include "passes/Passes.h"
#include "passes/kernels/gpu/DoubleFunctions.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Utils/IndexingUtils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace attn {
#define GEN_PASS_DEF_EXPANDDOUBLESPASS
#include "passes/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {
/// The tangent is a quotient.
Num functionInDouble(Code &k, Operation *op, ArrayRef<Num> operands) {
  auto function = [&](StringRef name) { return findDoubleFunction(name)(k, operands); };
  return isa<math::TanOp>(op) ? function("math.sin") / function("math.cos") : function(op->getName().getStringRef());
}

/// A function of any type, lane by lane. Those of an angle, and powers, need f64 in narrower types, too: for what is
/// behind the point of a large angle, and for the digits of a logarithm that a large exponent leaves.
void expandInDouble(Operation *op) {
  OpBuilder b(op);
  Code k(b, op->getLoc());
  auto of = [&](ArrayRef<Value> operands) {
    SmallVector<Num> wide = llvm::map_to_vector(operands, [&](Value x) { return convert(k.asNum(x), b.getF64Type()); });
    return convert(functionInDouble(k, op, wide), operands[0].getType());
  };
  Value result = op->getOperand(0);
  if (auto vector = dyn_cast<VectorType>(result.getType()))
    for (int64_t lane = 0; lane < vector.getNumElements(); ++lane) {
      SmallVector<int64_t> place = delinearize(lane, computeStrides(vector.getShape()));
      SmallVector<Value> lanes = llvm::map_to_vector(
          op->getOperands(), [&](Value x) -> Value { return vector::ExtractOp::create(b, k.loc, x, place); });
      result = vector::InsertOp::create(b, k.loc, of(lanes), result, place);
    }
  else
    result = of(llvm::to_vector(op->getOperands()));
  op->getResult(0).replaceAllUsesWith(result);
  op->erase();
}

struct ExpandDoublesPass : attn::impl::ExpandDoublesPassBase<ExpandDoublesPass> {
  void runOnOperation() override {
    SmallVector<Operation *> ops;
    getOperation().walk([&](Operation *op) {
      bool isDouble = op->getNumResults() == 1 && getElementTypeOrSelf(op->getResult(0)).isF64();
      if (isa<math::SinOp, math::CosOp, math::TanOp, math::PowFOp>(op) ||
          (isDouble && findDoubleFunction(op->getName().getStringRef())))
        ops.push_back(op);
    });
    for (Operation *op : ops)
      expandInDouble(op);
  }
};
} // namespace
