#include "passes/lowering/buffers/LowerArithmetic.h"

#include "mlir/Conversion/ArithCommon/AttrToLLVMConverter.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace attn {
namespace {

/// Whether LLVM has values of `type` as they are: no indices, and no vectors of rows.
bool isPlain(Type type) {
  Type element = type;
  if (auto vector = dyn_cast<VectorType>(type)) {
    if (vector.getRank() != 1 || vector.isScalable())
      return false;
    element = vector.getElementType();
  }
  return element.isF16() || element.isBF16() || element.isF32() || element.isF64() || element.isSignlessInteger();
}

/// What LLVM makes of an op whose values are plain; null if that is left to convert-to-llvm.
class Lowering {
public:
  explicit Lowering(Operation *op) : b(op), loc(op->getLoc()) {}

  Value of(Operation *op) {
    return llvm::TypeSwitch<Operation *, Value>(op)
        .Case([&](arith::AddFOp op) { return floats<LLVM::FAddOp>(op); })
        .Case([&](arith::SubFOp op) { return floats<LLVM::FSubOp>(op); })
        .Case([&](arith::MulFOp op) { return floats<LLVM::FMulOp>(op); })
        .Case([&](arith::DivFOp op) { return floats<LLVM::FDivOp>(op); })
        .Case([&](arith::AddIOp op) { return integers<LLVM::AddOp>(op); })
        .Case([&](arith::SubIOp op) { return integers<LLVM::SubOp>(op); })
        .Case([&](arith::MulIOp op) { return integers<LLVM::MulOp>(op); })
        .Case([&](arith::AndIOp op) { return bits<LLVM::AndOp>(op); })
        .Case([&](arith::OrIOp op) { return bits<LLVM::OrOp>(op); })
        .Case([&](arith::XOrIOp op) { return bits<LLVM::XOrOp>(op); })
        .Case<arith::ConstantOp, arith::CmpFOp, arith::CmpIOp, arith::SelectOp, arith::BitcastOp, vector::BitCastOp,
              vector::FMAOp, vector::BroadcastOp, vector::ShuffleOp>([&](auto op) { return make(op); })
        .Default([](Operation *) { return Value(); });
  }

private:
  template <typename To, typename From> Value floats(From op) {
    return To::create(b, loc, op.getType(), op.getLhs(), op.getRhs(),
                      arith::convertArithFastMathFlagsToLLVM(op.getFastmath()));
  }

  template <typename To, typename From> Value integers(From op) {
    return To::create(b, loc, op.getType(), op.getLhs(), op.getRhs(),
                      arith::convertArithOverflowFlagsToLLVM(op.getOverflowFlags()));
  }

  template <typename To, typename From> Value bits(From op) {
    return To::create(b, loc, op.getType(), op.getLhs(), op.getRhs());
  }

  Value make(arith::ConstantOp op) { return LLVM::ConstantOp::create(b, loc, op.getType(), op.getValue()); }

  // Predicates have the same numbers.
  Value make(arith::CmpFOp op) {
    return LLVM::FCmpOp::create(b, loc, op.getType(), static_cast<LLVM::FCmpPredicate>(op.getPredicate()), op.getLhs(),
                                op.getRhs(), arith::convertArithFastMathFlagsToLLVM(op.getFastmath()));
  }
  Value make(arith::CmpIOp op) {
    return LLVM::ICmpOp::create(b, loc, op.getType(), static_cast<LLVM::ICmpPredicate>(op.getPredicate()), op.getLhs(),
                                op.getRhs());
  }

  Value make(arith::SelectOp op) {
    return LLVM::SelectOp::create(b, loc, op.getType(), op.getCondition(), op.getTrueValue(), op.getFalseValue());
  }
  Value make(arith::BitcastOp op) { return LLVM::BitcastOp::create(b, loc, op.getType(), op.getIn()); }
  Value make(vector::BitCastOp op) { return LLVM::BitcastOp::create(b, loc, op.getType(), op.getSource()); }
  Value make(vector::FMAOp op) {
    return LLVM::FMulAddOp::create(b, loc, op.getType(), op.getLhs(), op.getRhs(), op.getAcc());
  }

  Value make(vector::BroadcastOp op) {
    if (isa<VectorType>(op.getSourceType()))
      return {};
    auto type = cast<VectorType>(op.getType());
    Value zero = LLVM::ConstantOp::create(b, loc, b.getI32Type(), b.getI32IntegerAttr(0));
    Value none = LLVM::PoisonOp::create(b, loc, type);
    Value first = LLVM::InsertElementOp::create(b, loc, type, none, op.getSource(), zero);
    return LLVM::ShuffleVectorOp::create(b, loc, first, none, SmallVector<int32_t>(type.getDimSize(0), 0));
  }

  Value make(vector::ShuffleOp op) {
    if (op.getV1().getType() != op.getV2().getType())
      return {};
    return LLVM::ShuffleVectorOp::create(b, loc, op.getV1(), op.getV2(),
                                         SmallVector<int32_t>(op.getMask().begin(), op.getMask().end()));
  }

  OpBuilder b;
  Location loc;
};

} // namespace

void lowerArithmetic(func::FuncOp function) {
  function.walk([](Operation *op) {
    if (op->getNumResults() != 1 || !llvm::all_of(op->getResultTypes(), isPlain) ||
        !llvm::all_of(op->getOperandTypes(), isPlain))
      return;
    if (Value lowered = Lowering(op).of(op)) {
      op->getResult(0).replaceAllUsesWith(lowered);
      op->erase();
    }
  });
}

} // namespace attn
