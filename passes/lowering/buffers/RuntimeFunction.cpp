#include "passes/lowering/buffers/RuntimeFunction.h"

#include "dialects/attn/AttnOps.h"
#include "passes/kernels/spec/KernelAttrs.h"
#include "runtime/include/attnrt/abi.h"

#include "mlir/Conversion/LLVMCommon/MemRefBuilder.h"
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
  SmallVector<Value> parts{data};
  llvm::append_range(parts, sizes);
  return putTogether(type, parts);
}

/// Whether `type` is a buffer with a layout of strides, and which.
static std::optional<std::pair<SmallVector<int64_t>, int64_t>> stridesOf(Type type) {
  auto memref = dyn_cast<MemRefType>(type);
  SmallVector<int64_t> strides;
  int64_t offset;
  if (!memref || failed(memref.getStridesAndOffset(strides, offset)))
    return std::nullopt;
  // Those of a dense buffer follow from its sizes.
  if (memref.getLayout().isIdentity())
    strides.clear();
  return std::pair(strides, offset);
}

void RuntimeFunction::appendParts(Type type, SmallVectorImpl<Type> &parts) {
  auto layout = stridesOf(type);
  if (!layout) {
    parts.push_back(types.convertType(type));
    return;
  }
  parts.push_back(ptr);
  parts.append(::cast<MemRefType>(type).getNumDynamicDims() + llvm::count_if(layout->first, ShapedType::isDynamic) +
                   ShapedType::isDynamic(layout->second),
               i64);
}

FailureOr<SmallVector<Value>> RuntimeFunction::takeApart(Value value) {
  Type converted = types.convertType(value.getType());
  if (!converted)
    return failure();
  auto layout = stridesOf(value.getType());
  Value whole = cast(value, converted);
  if (!layout)
    return SmallVector<Value>{whole};
  auto [strides, offset] = *layout;
  MemRefDescriptor descriptor(whole);
  SmallVector<Value> parts{descriptor.alignedPtr(b, loc())};
  for (auto [dim, size] : llvm::enumerate(::cast<MemRefType>(value.getType()).getShape()))
    if (ShapedType::isDynamic(size))
      parts.push_back(descriptor.size(b, loc(), dim));
  if (ShapedType::isDynamic(offset))
    parts.push_back(descriptor.offset(b, loc()));
  for (auto [dim, stride] : llvm::enumerate(strides))
    if (ShapedType::isDynamic(stride))
      parts.push_back(descriptor.stride(b, loc(), dim));
  return parts;
}

Value RuntimeFunction::putTogether(Type type, ArrayRef<Value> parts) {
  auto layout = stridesOf(type);
  if (!layout)
    return cast(parts.front(), type);
  auto [strides, offset] = *layout;
  auto memref = ::cast<MemRefType>(type);
  auto take = [&](int64_t known) -> Value {
    if (!ShapedType::isDynamic(known))
      return constant(i64, known);
    Value part = parts.front();
    parts = parts.drop_front();
    return part;
  };
  MemRefDescriptor result = MemRefDescriptor::poison(b, loc(), types.convertType(type));
  Value data = take(ShapedType::kDynamic);
  result.setAllocatedPtr(b, loc(), data);
  result.setAlignedPtr(b, loc(), data);
  SmallVector<Value> sizes = llvm::map_to_vector(memref.getShape(), take);
  result.setOffset(b, loc(), take(offset));
  Value stride = constant(i64, 1);
  for (auto [dim, size] : llvm::enumerate(sizes)) {
    result.setSize(b, loc(), dim, size);
    if (!strides.empty())
      result.setStride(b, loc(), dim, take(strides[dim]));
  }
  for (int64_t dim = strides.empty() ? memref.getRank() - 1 : -1; dim >= 0; --dim) {
    result.setStride(b, loc(), dim, stride);
    if (dim)
      stride = LLVM::MulOp::create(b, loc(), stride, sizes[dim]);
  }
  return cast(result, type);
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
  unsigned count = entry.getNumArguments();
  runContext = entry.addArgument(ptr, loc());
  if (function->hasAttr(kScratchAttr))
    scratch = entry.addArgument(ptr, loc());
  for (unsigned i = 0; i < count; ++i) {
    SmallVector<Type> parts;
    appendParts(entry.getArgument(i).getType(), parts);
    SmallVector<Value> given =
        llvm::map_to_vector(parts, [&](Type part) -> Value { return entry.addArgument(part, loc()); });
    entry.getArgument(i).replaceAllUsesWith(putTogether(entry.getArgument(i).getType(), given));
  }
  entry.eraseArguments(0, count);
  returnStatus();
}

void RuntimeFunction::declareRun() {
  SmallVector<Type> arguments(function->hasAttr(kScratchAttr) ? 2 : 1, ptr);
  for (Type type : function.getArgumentTypes())
    appendParts(type, arguments);
  function.setFunctionType(b.getFunctionType(arguments, {i32}));
}

void RuntimeFunction::returnStatus() {
  function.walk([&](func::ReturnOp op) {
    OpBuilder at(op);
    Value done = arith::ConstantOp::create(at, op.getLoc(), at.getI32IntegerAttr(ATTNRT_RUN_DONE));
    op->setOperands(done);
  });
  function.setFunctionType(b.getFunctionType(function.getBody().front().getArgumentTypes(), {i32}));
}

LLVM::LLVMStructType RuntimeFunction::captureStruct(TypeRange captures) {
  SmallVector<Type> fields{ptr}; // attnrt_run
  for (Type type : captures)
    appendParts(type, fields);
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
    SmallVector<Type> parts;
    appendParts(type, parts);
    entry.getArgument(i + 2).replaceAllUsesWith(putTogether(type, llvm::map_to_vector(parts, take)));
  }
  entry.eraseArguments(0, count);
  function.setFunctionType(b.getFunctionType(entry.getArgumentTypes(), {}));
}

} // namespace attn
