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
Num angleInDouble(Code &k, Operation *op, const Num &angle) {
  auto function = [&](StringRef name) { return findDoubleFunction(name)(k, angle); };
  return isa<math::TanOp>(op) ? function("math.sin") / function("math.cos") : function(op->getName().getStringRef());
}

/// A function of an angle in any type, lane by lane: of narrower types, too, what is behind the point of a large angle
/// needs f64.
void expandAngle(Operation *op) {
  OpBuilder b(op);
  Code k(b, op->getLoc());
  Value operand = op->getOperand(0);
  auto of = [&](Value x) {
    Num angle = k.asNum(x);
    return convert(angleInDouble(k, op, convert(angle, b.getF64Type())), angle.element());
  };
  Value result = operand;
  if (auto vector = dyn_cast<VectorType>(operand.getType()))
    for (int64_t lane = 0; lane < vector.getNumElements(); ++lane) {
      SmallVector<int64_t> place = delinearize(lane, computeStrides(vector.getShape()));
      Value x = vector::ExtractOp::create(b, k.loc, operand, place);
      result = vector::InsertOp::create(b, k.loc, of(x), result, place);
    }
  else
    result = of(operand);
  op->getResult(0).replaceAllUsesWith(result);
  op->erase();
}

struct ExpandDoublesPass : attn::impl::ExpandDoublesPassBase<ExpandDoublesPass> {
  void runOnOperation() override {
    SmallVector<Operation *> ops, angles;
    getOperation().walk([&](Operation *op) {
      if (isa<math::SinOp, math::CosOp, math::TanOp>(op))
        angles.push_back(op);
      else if (op->getNumResults() == 1 && op->getResult(0).getType().isF64() &&
               findDoubleFunction(op->getName().getStringRef()))
        ops.push_back(op);
    });
    for (Operation *op : angles)
      expandAngle(op);
    for (Operation *op : ops) {
      OpBuilder b(op);
      Code k(b, op->getLoc());
      SmallVector<Num> operands = llvm::map_to_vector(op->getOperands(), [&](Value value) { return k.asNum(value); });
      op->getResult(0).replaceAllUsesWith(findDoubleFunction(op->getName().getStringRef())(k, operands));
      op->erase();
    }
  }
};
} // namespace
