#include "passes/lowering/buffers/TaskScratch.h"

#include "passes/kernels/spec/KernelAttrs.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;

namespace attn {
namespace {

/// Writes the function that takes a slot.
class SlotTaker {
public:
  SlotTaker(func::FuncOp task, func::FuncOp body, LLVM::LLVMStructType captures)
      : task(task), body(body), captures(captures), b(task.getContext()), loc(task.getLoc()), i8(b.getI8Type()),
        i64(b.getI64Type()), ptr(LLVM::LLVMPointerType::get(b.getContext())) {}

  void write(int64_t bytes, ArrayRef<int64_t> places) {
    Block *entry = task.addEntryBlock();
    b.setInsertionPointToStart(entry);
    Value argument = entry->getArgument(0), begin = entry->getArgument(1), end = entry->getArgument(2);
    int32_t fields = captures.getBody().size();
    Value part = take(ptr, argument, fields - 3), slots = take(i64, argument, fields - 2),
          piece = take(i64, argument, fields - 1);
    // The slot that the same thread had last time, as far as one can tell: its caches hold it.
    Value first = arith::MinUIOp::create(b, loc, arith::DivUIOp::create(b, loc, begin, piece),
                                         arith::SubIOp::create(b, loc, slots, constant(i64, 1)));
    Block *look = b.createBlock(&task.getBody(), task.getBody().end(), {i64}, {loc});
    Block *found = b.createBlock(&task.getBody(), task.getBody().end());
    b.setInsertionPointToEnd(entry);
    cf::BranchOp::create(b, loc, look, first);

    b.setInsertionPointToEnd(look);
    Value slot = look->getArgument(0);
    Value flag = at(part, arith::MulIOp::create(b, loc, slot, constant(i64, kSlotFlagBytes)));
    Value was = exchange(flag, 1, LLVM::AtomicOrdering::acquire);
    Value next = arith::AddIOp::create(b, loc, slot, constant(i64, 1));
    Value isEnd = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, next, slots);
    next = arith::SelectOp::create(b, loc, isEnd, constant(i64, 0), next);
    Value isFree = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, was, constant(i8, 0));
    cf::CondBranchOp::create(b, loc, isFree, found, ValueRange(), look, ValueRange(next));

    b.setInsertionPointToEnd(found);
    Value data = at(part, arith::MulIOp::create(b, loc, slots, constant(i64, kSlotFlagBytes)));
    data = at(data, arith::MulIOp::create(b, loc, slot, constant(i64, bytes)));
    SmallVector<Value> operands{argument, begin, end};
    for (int64_t place : places)
      operands.push_back(at(data, constant(i64, place)));
    func::CallOp::create(b, loc, body, operands);
    exchange(flag, 0, LLVM::AtomicOrdering::release);
    func::ReturnOp::create(b, loc);
  }

private:
  Value constant(Type type, int64_t value) {
    return LLVM::ConstantOp::create(b, loc, type, b.getIntegerAttr(type, value));
  }
  Value at(Value base, Value offset) {
    return LLVM::GEPOp::create(b, loc, ptr, i8, base, ArrayRef<LLVM::GEPArg>{offset});
  }
  Value take(Type type, Value argument, int32_t field) {
    Value address = LLVM::GEPOp::create(b, loc, ptr, captures, argument, ArrayRef<LLVM::GEPArg>{0, field});
    return LLVM::LoadOp::create(b, loc, type, address);
  }
  Value exchange(Value flag, int64_t value, LLVM::AtomicOrdering order) {
    return LLVM::AtomicRMWOp::create(b, loc, LLVM::AtomicBinOp::xchg, flag, constant(i8, value), order);
  }

  func::FuncOp task, body;
  LLVM::LLVMStructType captures;
  OpBuilder b;
  Location loc;
  Type i8, i64, ptr;
};

} // namespace

std::pair<int64_t, int64_t> scratchOf(func::FuncOp kernel) {
  auto bytes = kernel->getAttrOfType<DenseI64ArrayAttr>(kScratchAttr);
  return bytes ? std::pair(bytes[0], bytes[1]) : std::pair<int64_t, int64_t>(0, 0);
}

SmallVector<Type> taskScratchFields(MLIRContext *context) {
  Type i64 = IntegerType::get(context, 64);
  return {LLVM::LLVMPointerType::get(context), i64, i64};
}

void takeSlot(func::FuncOp task, int64_t bytes, LLVM::LLVMStructType captures, ArrayRef<int64_t> places,
              SymbolTable &symbols) {
  Builder b(task.getContext());
  auto body = func::FuncOp::create(task.getLoc(), (task.getName() + "_body").str(), task.getFunctionType());
  body.setPrivate();
  symbols.insert(body, Block::iterator(task));
  body.getBody().takeBody(task.getBody());
  for (size_t i = 0; i < places.size(); ++i) {
    body.setArgAttr(3 + i, LLVM::LLVMDialect::getNoAliasAttrName(), b.getUnitAttr());
    body.setArgAttr(3 + i, LLVM::LLVMDialect::getAlignAttrName(), b.getI64IntegerAttr(64));
  }
  task.setFunctionType(b.getFunctionType(task.getArgumentTypes().take_front(3), {}));
  SlotTaker(task, body, captures).write(bytes, places);
}

} // namespace attn
