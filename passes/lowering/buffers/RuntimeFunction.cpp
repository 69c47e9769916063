#include "passes/lowering/buffers/RuntimeFunction.h"

#include "dialects/attn/AttnOps.h"
#include "passes/kernels/spec/KernelAttrs.h"
#include "runtime/include/attnrt/abi.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include <cstddef>

using namespace mlir;

namespace attn {

RuntimeFunction::RuntimeFunction(func::FuncOp function, LLVMTypeConverter &types)
    : function(function), types(types), b(function.getContext()),
      ptr(LLVM::LLVMPointerType::get(function.getContext())), i32(b.getI32Type()), i64(b.getI64Type()) {}

//===----------------------------------------------------------------------===//
// Small pieces
//===----------------------------------------------------------------------===//

Value RuntimeFunction::constant(Type type, int64_t value) {
  return LLVM::ConstantOp::create(b, loc(), type, b.getIntegerAttr(type, value));
}

Value RuntimeFunction::isNonzero(Value status) {
  return arith::CmpIOp::create(b, loc(), arith::CmpIPredicate::ne, status, constant(i32, 0));
}

Value RuntimeFunction::asI64(Value index) { return arith::IndexCastOp::create(b, loc(), i64, index); }

Value RuntimeFunction::asIndex(Value number) { return arith::IndexCastOp::create(b, loc(), b.getIndexType(), number); }

Value RuntimeFunction::cast(Value value, Type type) {
  return UnrealizedConversionCastOp::create(b, loc(), type, value).getResult(0);
}

Value RuntimeFunction::field(Value base, int64_t offset) {
  // A constant GEP index holds 29 bits, an SSA value all.
  return LLVM::GEPOp::create(b, loc(), ptr, b.getI8Type(), base, ArrayRef<LLVM::GEPArg>{constant(i64, offset)});
}

Value RuntimeFunction::load(Type type, Value base, int64_t offset, bool invariant) {
  auto op = LLVM::LoadOp::create(b, loc(), type, field(base, offset));
  op.setInvariant(invariant);
  return op;
}

Value RuntimeFunction::stack(Type element, int64_t count) {
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(&function.getBody().front());
  return LLVM::AllocaOp::create(b, loc(), ptr, element, constant(i64, std::max<int64_t>(count, 1)));
}

Value RuntimeFunction::storeSizes(ValueRange sizes) {
  Value array = stack(i64, sizes.size());
  for (auto [i, size] : llvm::enumerate(sizes))
    LLVM::StoreOp::create(b, loc(), asI64(size), field(array, 8 * i));
  return array;
}

Value RuntimeFunction::callRuntime(int64_t offset, Type result, ValueRange arguments) {
  return callTable(runContext, offset, result, arguments);
}

Value RuntimeFunction::poll() { // a region of no iterations does nothing but look
  Value none = LLVM::ZeroOp::create(b, loc(), ptr);
  return callRuntime(offsetof(attnrt_run, parallel_for), i32, {none, none, constant(i64, 0)});
}

Value RuntimeFunction::deviceTable() { return load(ptr, runContext, offsetof(attnrt_run, device)); }

Value RuntimeFunction::callDevice(int64_t offset, Type result, ValueRange arguments) {
  return callTable(deviceTable(), offset, result, arguments);
}

Value RuntimeFunction::callTable(Value table, int64_t offset, Type result, ValueRange arguments) {
  SmallVector<Value> operands{load(ptr, table, offset), runContext};
  llvm::append_range(operands, arguments);
  auto type = LLVM::LLVMFunctionType::get(result, SmallVector<Type>(ValueRange(operands).drop_front().getTypes()));
  auto call = LLVM::CallOp::create(b, loc(), type, operands);
  return call->getNumResults() ? call.getResult() : Value();
}

void RuntimeFunction::stopIf(Value condition) {
  Block *block = b.getInsertionBlock();
  Block *rest = block->splitBlock(b.getInsertionPoint());
  b.setInsertionPointToEnd(block);
  cf::CondBranchOp::create(b, loc(), condition, stopBlock(), rest);
  b.setInsertionPointToStart(rest);
}

Block *RuntimeFunction::stopBlock() {
  if (stop)
    return stop;
  OpBuilder::InsertionGuard guard(b);
  stop = b.createBlock(&function.getBody(), function.getBody().end());
  SmallVector<Value> status; // of a task, its region has one
  if (!function->hasAttr(AttnDialect::kTaskAttr))
    status.push_back(arith::ConstantOp::create(b, loc(), b.getI32IntegerAttr(ATTNRT_RUN_STOPPED)));
  func::ReturnOp::create(b, loc(), status);
  return stop;
}

Value RuntimeFunction::describe(MemRefType type, Value data, ArrayRef<Value> sizes) {
  Type structType = types.convertType(type);
  Value result = LLVM::PoisonOp::create(b, loc(), structType);
  auto set = [&](Value value, ArrayRef<int64_t> at) {
    result = LLVM::InsertValueOp::create(b, loc(), result, value, at);
  };
  set(data, {0});
  set(data, {1});
  set(constant(i64, 0), {2});
  Value stride = constant(i64, 1);
  size_t dynamic = sizes.size();
  for (int64_t dim = type.getRank() - 1; dim >= 0; --dim) {
    Value size = type.isDynamicDim(dim) ? sizes[--dynamic] : constant(i64, type.getDimSize(dim));
    set(size, {3, dim});
    set(stride, {4, dim});
    if (dim)
      stride = LLVM::MulOp::create(b, loc(), stride, size);
  }
  return cast(result, type);
}

bool RuntimeFunction::isDense(Type type) {
  auto memref = dyn_cast<MemRefType>(type);
  return memref && memref.getLayout().isIdentity();
}

//===----------------------------------------------------------------------===//
// Signatures
//===----------------------------------------------------------------------===//

void RuntimeFunction::takeInputs() {
  Block &entry = function.getBody().front();
  unsigned count = entry.getNumArguments();
  runContext = entry.addArgument(ptr, loc());
  Value buffers = entry.addArgument(ptr, loc());
  for (unsigned i = 0; i < count; ++i) {
    BlockArgument argument = entry.getArgument(i);
    auto type = ::cast<MemRefType>(argument.getType());
    int64_t at = i * sizeof(attnrt_buffer);
    Value data = load(ptr, buffers, at + offsetof(attnrt_buffer, data));
    SmallVector<Value> sizes;
    if (type.getNumDynamicDims()) {
      Value shape = load(ptr, buffers, at + offsetof(attnrt_buffer, shape));
      for (int64_t dim = 0; dim < type.getRank(); ++dim)
        if (type.isDynamicDim(dim))
          sizes.push_back(load(i64, shape, 8 * dim));
    }
    argument.replaceAllUsesWith(describe(type, data, sizes));
  }
  entry.eraseArguments(0, count);
  returnStatus();
}

void RuntimeFunction::takeRun() {
  Block &entry = function.getBody().front();
  runContext = entry.insertArgument(0u, ptr, loc());
  if (function->hasAttr(kScratchAttr))
    scratch = entry.insertArgument(1u, ptr, loc());
  returnStatus();
}

void RuntimeFunction::returnStatus() {
  function.walk([&](func::ReturnOp op) {
    OpBuilder at(op);
    Value done = arith::ConstantOp::create(at, op.getLoc(), at.getI32IntegerAttr(ATTNRT_RUN_DONE));
    op->setOperands(done);
  });
  function.setFunctionType(b.getFunctionType(function.getBody().front().getArgumentTypes(), {i32}));
}

void RuntimeFunction::appendFields(Type type, SmallVectorImpl<Type> &fields) {
  if (!isDense(type)) {
    fields.push_back(types.convertType(type));
    return;
  }
  fields.push_back(ptr);
  fields.append(::cast<MemRefType>(type).getNumDynamicDims(), i64);
}

LLVM::LLVMStructType RuntimeFunction::captureStruct(TypeRange captures) {
  SmallVector<Type> fields{ptr}; // attnrt_run
  for (Type type : captures)
    appendFields(type, fields);
  return LLVM::LLVMStructType::getLiteral(function.getContext(), fields);
}

Value RuntimeFunction::structField(Value base, Type structType, int32_t index) {
  return LLVM::GEPOp::create(b, loc(), ptr, structType, base, ArrayRef<LLVM::GEPArg>{0, index});
}

void RuntimeFunction::takeCaptures() {
  Block &entry = function.getBody().front();
  SmallVector<Type> captures(llvm::drop_begin(entry.getArgumentTypes(), 2));
  Type structType = captureStruct(captures);
  unsigned count = entry.getNumArguments();
  Value argument = entry.addArgument(ptr, loc()), begin = entry.addArgument(i64, loc()),
        end = entry.addArgument(i64, loc());
  entry.getArgument(0).replaceAllUsesWith(asIndex(begin));
  entry.getArgument(1).replaceAllUsesWith(asIndex(end));
  int32_t next = 0;
  auto take = [&](Type type) -> Value {
    auto op = LLVM::LoadOp::create(b, loc(), type, structField(argument, structType, next++));
    op.setInvariant(true);
    return op;
  };
  runContext = take(ptr);
  for (auto [i, type] : llvm::enumerate(captures)) {
    Value value;
    if (isDense(type)) {
      auto memref = ::cast<MemRefType>(type);
      Value data = take(ptr);
      SmallVector<Value> sizes;
      for (int64_t n = memref.getNumDynamicDims(); n > 0; --n)
        sizes.push_back(take(i64));
      value = describe(memref, data, sizes);
    } else {
      value = cast(take(types.convertType(type)), type);
    }
    entry.getArgument(i + 2).replaceAllUsesWith(value);
  }
  entry.eraseArguments(0, count);
  function.setFunctionType(b.getFunctionType(entry.getArgumentTypes(), {}));
}

} // namespace attn
