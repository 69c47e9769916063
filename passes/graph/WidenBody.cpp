#include "passes/graph/WidenBody.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StructuredOpsUtils.h"

using namespace mlir;

namespace attn {

bool isHalf(Type type) {
  Type element = getElementTypeOrSelf(type);
  return element.isF16() || element.isBF16();
}

Type widenType(Type type) {
  if (!isHalf(type))
    return type;
  Type f32 = Float32Type::get(type.getContext());
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor ? Type(tensor.clone(f32)) : f32;
}

static bool touchesHalf(Operation &op) {
  return llvm::any_of(op.getOperandTypes(), isHalf) || llvm::any_of(op.getResultTypes(), isHalf);
}

bool canWidenBody(Block &body) {
  return llvm::all_of(body, [](Operation &op) {
    if (op.getNumRegions()) {
      bool touches = false;
      op.walk([&](Operation *inner) { touches |= touchesHalf(*inner); });
      return !touches;
    }
    // By way of f32 a number of f64 would be rounded twice.
    bool isTwice = isa<arith::TruncFOp>(op) && op.getOperand(0).getType().isF64();
    bool isArithmetic =
        isa<arith::ArithDialect, math::MathDialect>(op.getDialect()) && !isa<arith::BitcastOp>(op) && !isTwice;
    return !touchesHalf(op) || isArithmetic || isa<tensor::ExtractOp, linalg::YieldOp>(op);
  });
}

bool onlyMoves(Block &body) {
  return llvm::all_of(body, [](Operation &op) {
    return !touchesHalf(op) || isa<tensor::ExtractOp, linalg::YieldOp, arith::SelectOp, arith::ConstantOp>(op);
  });
}

bool onlyChooses(Block &body) {
  auto isFloat = [](Value value) { return isa<FloatType>(value.getType()); };
  return llvm::all_of(body, [&](Operation &op) {
    // A number from outside is none of them.
    auto isOwn = [&](Value operand) { return !isFloat(operand) || operand.getParentBlock() == &body; };
    bool chooses = isa<tensor::ExtractOp, arith::SelectOp, arith::MaximumFOp, arith::MinimumFOp, arith::MaxNumFOp,
                       arith::MinNumFOp>(op);
    return (chooses || llvm::none_of(op.getResults(), isFloat)) && llvm::all_of(op.getOperands(), isOwn);
  });
}

/// The twin of `value`; of a scalar from outside the body, made here.
static Value getTwin(OpBuilder &b, Value value, IRMapping &twins) {
  if (!twins.contains(value) && isHalf(value.getType()))
    twins.map(value, arith::ExtFOp::create(b, value.getLoc(), b.getF32Type(), value));
  return twins.lookupOrDefault(value);
}

void widenBody(OpBuilder &b, Block &body, IRMapping &twins, llvm::function_ref<Value(Value)> readWide) {
  for (Operation &op : body) {
    Location loc = op.getLoc();
    if (!touchesHalf(op)) {
      b.clone(op, twins);
      continue;
    }
    Value twin;
    if (auto constant = dyn_cast<arith::ConstantOp>(op)) {
      double value = cast<FloatAttr>(constant.getValue()).getValueAsDouble();
      twin = arith::ConstantOp::create(b, loc, b.getF32FloatAttr(value));
    } else if (isa<arith::ExtFOp>(op) && op.getResult(0).getType().isF32()) {
      twin = getTwin(b, op.getOperand(0), twins);
    } else if (isa<arith::TruncFOp>(op) && op.getOperand(0).getType().isF32()) {
      twin = getTwin(b, op.getOperand(0), twins);
    } else if (auto extract = dyn_cast<tensor::ExtractOp>(op)) {
      auto indices = llvm::map_to_vector(extract.getIndices(), [&](Value v) { return twins.lookupOrDefault(v); });
      Value wide = readWide(extract.getTensor());
      twin = tensor::ExtractOp::create(b, loc, wide ? wide : extract.getTensor(), indices);
      if (!wide)
        twin = arith::ExtFOp::create(b, loc, b.getF32Type(), twin);
    } else {
      auto operands = llvm::map_to_vector(op.getOperands(), [&](Value v) { return getTwin(b, v, twins); });
      Operation *made = mlir::clone(b, &op, llvm::map_to_vector(op.getResultTypes(), widenType), operands);
      twins.map(op.getResults(), made->getResults());
      continue;
    }
    twins.map(op.getResult(0), twin);
  }
}

} // namespace attn
