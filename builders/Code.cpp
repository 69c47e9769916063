#include "builders/Code.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;

namespace attn {

Index Code::index(int64_t value) { return asIndex(arith::ConstantIndexOp::create(b, loc, value)); }

Mask Code::truth(bool value) { return asMask(arith::ConstantOp::create(b, loc, b.getBoolAttr(value))); }

Vec Code::consecutive(int64_t first, int64_t lanes) {
  auto numbers = llvm::to_vector(llvm::seq(static_cast<int32_t>(first), static_cast<int32_t>(first + lanes)));
  return asVec(arith::ConstantOp::create(b, loc, b.getI32VectorAttr(numbers)));
}

Buffer Code::scratch(ArrayRef<int64_t> shape, Type element) {
  constexpr int64_t kCacheLine = 64;
  return asBuffer(memref::AllocaOp::create(b, loc, MemRefType::get(shape, element), b.getI64IntegerAttr(kCacheLine)));
}

Value Code::intrinsic(StringRef name, Type type, ArrayRef<Value> operands) {
  return LLVM::CallIntrinsicOp::create(b, loc, type, b.getStringAttr(name), operands).getResult(0);
}

ValueRange Code::emitLoop(Place lower, Place upper, Place step, Values init,
                          llvm::function_ref<Values(Index, ValueRange)> body) {
  Index near(b, loc, Value());
  auto op = scf::ForOp::create(
      b, loc, lower.at(near), upper.at(near), step.at(near), init,
      [&](OpBuilder &, Location, Value n, ValueRange now) { scf::YieldOp::create(b, loc, body(asIndex(n), now)); });
  return op.getResults();
}

ValueRange Code::emitWhile(Values init, llvm::function_ref<Mask(ValueRange)> condition,
                           llvm::function_ref<Values(ValueRange)> body) {
  auto op = scf::WhileOp::create(
      b, loc, ValueRange(init).getTypes(), init,
      [&](OpBuilder &, Location, ValueRange now) { scf::ConditionOp::create(b, loc, condition(now), now); },
      [&](OpBuilder &, Location, ValueRange now) { scf::YieldOp::create(b, loc, body(now)); });
  return op.getResults();
}

Operation *Code::parallel(const Index &count, llvm::function_ref<void(Index)> body) {
  return scf::ParallelOp::create(b, loc, ValueRange{index(0)}, ValueRange{count.value()}, ValueRange{index(1)},
                                 [&](OpBuilder &, Location, ValueRange place) { body(asIndex(place.front())); });
}

void Code::when(const Mask &condition, llvm::function_ref<void()> then, llvm::function_ref<void()> otherwise) {
  auto op = scf::IfOp::create(b, loc, condition, /*withElseRegion=*/bool(otherwise));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(&op.getThenRegion().front());
  then();
  if (otherwise) {
    b.setInsertionPointToStart(&op.getElseRegion().front());
    otherwise();
  }
}

void Code::match(const Index &number, int64_t least, int64_t most, llvm::function_ref<void(int64_t)> body) {
  if (least == most)
    return body(most);
  SmallVector<int64_t> cases = llvm::to_vector(llvm::seq(least, most));
  auto op = scf::IndexSwitchOp::create(b, loc, TypeRange(), number, cases, cases.size());
  OpBuilder::InsertionGuard guard(b);
  auto emit = [&](Region &region, int64_t n) {
    b.setInsertionPointToStart(&region.emplaceBlock());
    body(n);
    scf::YieldOp::create(b, loc);
  };
  for (auto [region, n] : llvm::zip_equal(op.getCaseRegions(), cases))
    emit(region, n);
  emit(op.getDefaultRegion(), most);
}

// What a branch gives is known once it has been emitted: one without results
// hands its regions to the one that has them.
ValueRange Code::emitChoice(const Mask &condition, llvm::function_ref<Values()> then,
                            llvm::function_ref<Values()> otherwise) {
  auto bare = scf::IfOp::create(b, loc, condition, /*withElseRegion=*/true);
  SmallVector<Type> types;
  {
    OpBuilder::InsertionGuard guard(b);
    for (auto [region, emit] : {std::pair(&bare.getThenRegion(), then), std::pair(&bare.getElseRegion(), otherwise)}) {
      region->front().getTerminator()->erase();
      b.setInsertionPointToEnd(&region->front());
      Values values = emit();
      types.assign(TypeRange(ValueRange(values)).begin(), TypeRange(ValueRange(values)).end());
      scf::YieldOp::create(b, loc, values);
    }
  }
  auto op = scf::IfOp::create(b, loc, types, condition.value(), /*withElseRegion=*/true);
  op.getThenRegion().takeBody(bare.getThenRegion());
  op.getElseRegion().takeBody(bare.getElseRegion());
  bare.erase();
  return op.getResults();
}

} // namespace attn
