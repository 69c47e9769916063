#include "dialects/attn/CacheOps.h"
#include "dialects/attn/DeviceOps.h"
#include "dialects/attn/LoopOps.h"
#include "dialects/attn/SearchOp.h"
#include "passes/Passes.h"
#include "passes/lowering/buffers/KernelParameters.h"
#include "passes/lowering/buffers/RuntimeFunction.h"
#include "runtime/include/attnrt/abi.h"

#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/ADT/TypeSwitch.h"
#include <cstddef>
static_assert(sizeof(attnrt_product) == 104, "lower(ProductOp) writes it field by field");

namespace attn {
#define GEN_PASS_DEF_LOWERRUNTIMEPASS
#include "passes/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {
/// The texts of the module, each once; the runtime is told their positions.
class Messages {
public:
  int32_t add(StringRef text) { return texts.try_emplace(text.str(), texts.size()).first->second; }
  SmallVector<StringRef> list() const {
    return llvm::map_to_vector(texts, [](auto &entry) { return StringRef(entry.first); });
  }

private:
  llvm::MapVector<std::string, int32_t, std::map<std::string, unsigned>> texts;
};

/// Lowers one entry, kernel or task.
class FunctionLowering : RuntimeFunction {
public:
  FunctionLowering(func::FuncOp function, LLVMTypeConverter &types, SymbolTable &symbols, Messages &messages,
                   const llvm::StringSet<> &polling)
      : RuntimeFunction(function, types), symbols(symbols), messages(messages), polling(polling) {}

  LogicalResult run() {
    SmallVector<Operation *> ops;
    function.walk([&](Operation *op) {
      if (isa<AttnDialect>(op->getDialect()) || isa<gpu::LaunchFuncOp>(op))
        ops.push_back(op);
    });
    b.setInsertionPointToStart(&function.getBody().front());
    if (function->hasAttr(AttnDialect::kTaskAttr))
      takeCaptures();
    else if (function->hasAttr(AttnDialect::kEntryAttr))
      takeInputs();
    else
      takeRun();
    for (Operation *op : ops)
      if (failed(lower(op)))
        return failure();
    return success();
  }

private:
  //===--------------------------------------------------------------------===//
  // Ops
  //===--------------------------------------------------------------------===//

  LogicalResult lower(Operation *op) {
    current = op;
    b.setInsertionPoint(op);
    bool stops = isa<OutputOp, CacheOp, WorkspaceOp, ParallelForOp, RequireOp, KernelOp, FetchOp, ProductOp,
                     HostWorkspaceOp, DownloadOp, UploadOp, BeginLoopOp, EndLoopOp, TellOp, gpu::LaunchFuncOp>(op);
    if (stops && function->hasAttr(AttnDialect::kTaskAttr))
      return op->emitOpError("cannot stand in a parallel loop");
    auto result =
        llvm::TypeSwitch<Operation *, LogicalResult>(op)
            .Case<OutputOp, CacheOp, WorkspaceOp, ParallelForOp, RequireOp, KernelOp, CheckIndexOp, WeightOp, PollOp,
                  FetchOp, DeviceErrorOp, ExactArchOp, DeviceLimitsOp, MarkOp, NumThreadsOp, HasTilesOp, ProductOp,
                  HostWorkspaceOp, DownloadOp, UploadOp, BeginLoopOp, EndLoopOp, TellOp, gpu::LaunchFuncOp>(
                [&](auto each) { return lower(each); })
            .Default([](Operation *other) { return other->emitOpError("has no lowering to the runtime"); });
    if (succeeded(result))
      op->erase();
    current = nullptr;
    return result;
  }

  LogicalResult lower(OutputOp op) {
    auto type = ::cast<MemRefType>(op.getType());
    SmallVector<Value> shape, sizes;
    size_t dynamic = 0;
    for (int64_t dim = 0; dim < type.getRank(); ++dim)
      shape.push_back(type.isDynamicDim(dim)
                          ? op.getSizes()[dynamic++]
                          : arith::ConstantIndexOp::create(b, loc(), type.getDimSize(dim)).getResult());
    Value array = storeSizes(shape);
    Value data = callRuntime(offsetof(attnrt_run, output), ptr,
                             {constant(i32, op.getIndex()), constant(i32, type.getRank()), array});
    stopIf(LLVM::ICmpOp::create(b, loc(), LLVM::ICmpPredicate::eq, data, LLVM::ZeroOp::create(b, loc(), ptr)));
    for (Value size : op.getSizes())
      sizes.push_back(asI64(size));
    op.replaceAllUsesWith(describe(type, data, sizes));
    return success();
  }

  LogicalResult lower(CacheOp op) {
    auto type = ::cast<MemRefType>(op.getType());
    SmallVector<Value> shape, sizes;
    size_t dynamic = 0;
    for (int64_t dim = 0; dim < type.getRank(); ++dim)
      shape.push_back(type.isDynamicDim(dim)
                          ? op.getSizes()[dynamic++]
                          : arith::ConstantIndexOp::create(b, loc(), type.getDimSize(dim)).getResult());
    Value array = storeSizes(shape), capacity = stack(i64, 1);
    Value data = callRuntime(offsetof(attnrt_run, cache), ptr,
                             {constant(i32, op.getState()), constant(i32, type.getRank()), array, capacity});
    stopIf(LLVM::ICmpOp::create(b, loc(), LLVM::ICmpPredicate::eq, data, LLVM::ZeroOp::create(b, loc(), ptr)));
    for (int64_t dim = 0; dim < type.getRank(); ++dim)
      if (op.getDim() && dim == static_cast<int64_t>(*op.getDim()))
        sizes.push_back(load(i64, capacity, 0, /*invariant=*/false));
      else if (type.isDynamicDim(dim))
        sizes.push_back(asI64(shape[dim]));
    op.replaceAllUsesWith(describe(type, data, sizes));
    return success();
  }

  /// Memory that the function has from an earlier execution, unless it is too
  /// small; then twice as much.
  template <typename OpTy> LogicalResult lowerReused(OpTy op, bool onDevice) {
    Value bytes = asI64(op.getBytes());
    Value slot = stack(i64, 2); // bytes, address
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointAfterValue(slot);
      LLVM::StoreOp::create(b, loc(), constant(i64, 0), slot);
    }
    Value have = load(i64, slot, 0, /*invariant=*/false);
    // An empty buffer needs an address, too.
    Value small = LLVM::ICmpOp::create(b, loc(), LLVM::ICmpPredicate::uge, bytes, have);
    Block *block = b.getInsertionBlock();
    Block *rest = block->splitBlock(b.getInsertionPoint());
    Block *more = b.createBlock(rest);
    // Beyond 2^61 there is no memory anyway: no overflow.
    Value doubled = LLVM::ShlOp::create(b, loc(), bytes, constant(i64, 1));
    Value huge = LLVM::ICmpOp::create(b, loc(), LLVM::ICmpPredicate::ugt, bytes, constant(i64, int64_t(1) << 40));
    Value first = LLVM::ICmpOp::create(b, loc(), LLVM::ICmpPredicate::eq, have, constant(i64, 0));
    Value exact = LLVM::AddOp::create(b, loc(), bytes, constant(i64, 1));
    Value wanted = arith::SelectOp::create(b, loc(), first, exact, doubled);
    wanted = arith::SelectOp::create(b, loc(), huge, bytes, wanted);
    Value fresh = onDevice ? callDevice(offsetof(attnrt_device, host_workspace), ptr, {wanted})
                           : callRuntime(offsetof(attnrt_run, workspace), ptr, {wanted});
    stopIf(LLVM::ICmpOp::create(b, loc(), LLVM::ICmpPredicate::eq, fresh, LLVM::ZeroOp::create(b, loc(), ptr)));
    LLVM::StoreOp::create(b, loc(), wanted, slot);
    LLVM::StoreOp::create(b, loc(), fresh, field(slot, 8));
    cf::BranchOp::create(b, loc(), rest);
    b.setInsertionPointToEnd(block);
    cf::CondBranchOp::create(b, loc(), small, more, rest);
    b.setInsertionPointToStart(rest);
    Value data = load(ptr, slot, 8, /*invariant=*/false);
    op.replaceAllUsesWith(describe(::cast<MemRefType>(op.getType()), data, {bytes}));
    return success();
  }

  LogicalResult lower(PollOp) {
    stopIf(isNonzero(poll()));
    return success();
  }

  /// Nonzero: the run is to end. A region of no iterations does nothing but look.
  Value poll() {
    Value none = LLVM::ZeroOp::create(b, loc(), ptr);
    return callRuntime(offsetof(attnrt_run, parallel_for), i32, {none, none, constant(i64, 0)});
  }

  LogicalResult lower(TellOp op) {
    // The first runtimes of this version do not have the field.
    Value size = load(i32, runContext, offsetof(attnrt_run, struct_size));
    Value isThere =
        LLVM::ICmpOp::create(b, loc(), LLVM::ICmpPredicate::ugt, size, constant(i32, offsetof(attnrt_run, token)));
    Block *block = b.getInsertionBlock();
    Block *rest = block->splitBlock(b.getInsertionPoint());
    b.createBlock(rest);
    Block *there = b.getInsertionBlock();
    stopIf(isNonzero(
        callRuntime(offsetof(attnrt_run, token), i32, {asI64(op.getRow()), asI64(op.getStep()), op.getToken()})));
    cf::BranchOp::create(b, loc(), rest);
    b.setInsertionPointToEnd(block);
    cf::CondBranchOp::create(b, loc(), isThere, there, rest);
    return success();
  }

  LogicalResult lower(MarkOp op) {
    callRuntime(offsetof(attnrt_run, mark), LLVM::LLVMVoidType::get(b.getContext()),
                {constant(i32, op.getRegion()), asI64(op.getFlops()), asI64(op.getBytes())});
    return success();
  }

  LogicalResult lower(NumThreadsOp op) {
    Value count = load(i32, runContext, offsetof(attnrt_run, num_threads));
    op.replaceAllUsesWith(arith::IndexCastOp::create(b, loc(), b.getIndexType(), count).getResult());
    return success();
  }

  LogicalResult lower(ExactArchOp op) {
    Value arch = load(i32, deviceTable(), offsetof(attnrt_device, exact_arch));
    op.replaceAllUsesWith(arith::IndexCastOp::create(b, loc(), b.getIndexType(), arch).getResult());
    return success();
  }

  LogicalResult lower(DeviceLimitsOp op) {
    Value device = deviceTable();
    for (auto [result, offset] : {std::pair(op.getProcessors(), offsetof(attnrt_device, processors)),
                                  std::pair(op.getSharedBytes(), offsetof(attnrt_device, shared_bytes))}) {
      Value number = load(i32, device, offset);
      result.replaceAllUsesWith(arith::IndexCastOp::create(b, loc(), b.getIndexType(), number));
    }
    return success();
  }

  LogicalResult lower(HasTilesOp op) {
    op.replaceAllUsesWith(isNonzero(load(i32, runContext, offsetof(attnrt_run, has_tiles))));
    return success();
  }

  LogicalResult lower(HostWorkspaceOp op) { return lowerReused(op, /*onDevice=*/true); }
  LogicalResult lower(WorkspaceOp op) {
    if (op->hasAttr(kReusedAttr))
      return lowerReused(op, /*onDevice=*/false);
    Value bytes = asI64(op.getBytes());
    Value data = callRuntime(offsetof(attnrt_run, workspace), ptr, {bytes});
    stopIf(LLVM::ICmpOp::create(b, loc(), LLVM::ICmpPredicate::eq, data, LLVM::ZeroOp::create(b, loc(), ptr)));
    op.replaceAllUsesWith(describe(::cast<MemRefType>(op.getType()), data, {bytes}));
    return success();
  }

  LogicalResult lower(RequireOp op) {
    // Most hold: the values are stored only where one does not.
    Block *block = b.getInsertionBlock();
    Block *rest = block->splitBlock(b.getInsertionPoint());
    Block *bad = b.createBlock(&function.getBody(), function.getBody().end());
    Value array = storeSizes(op.getValues());
    callRuntime(offsetof(attnrt_run, fail), LLVM::LLVMVoidType::get(b.getContext()),
                {constant(i32, messages.add(op.getMessage()) | (op.getUnsupported() ? ATTNRT_FAIL_UNSUPPORTED : 0)),
                 constant(i32, op.getValues().size()), array});
    cf::BranchOp::create(b, loc(), stopBlock());
    b.setInsertionPointToEnd(block);
    cf::CondBranchOp::create(b, loc(), op.getCondition(), rest, bad);
    return success();
  }

  LogicalResult lower(CheckIndexOp op) {
    Value index = op.getIndex(), size = op.getSize(), wrapped = index;
    Value zero = arith::ConstantIndexOp::create(b, loc(), 0);
    if (!op.getNonnegative()) {
      Value negative = arith::CmpIOp::create(b, loc(), arith::CmpIPredicate::slt, index, zero);
      wrapped = arith::AddIOp::create(b, loc(), index, arith::SelectOp::create(b, loc(), negative, size, zero));
    }
    Value inside = arith::CmpIOp::create(b, loc(), arith::CmpIPredicate::ult, wrapped, size);
    op.replaceAllUsesWith(arith::SelectOp::create(b, loc(), inside, wrapped, zero).getResult());
    Block *block = b.getInsertionBlock();
    Block *rest = block->splitBlock(b.getInsertionPoint());
    // Tasks race: the one that finds no message yet has the index and the size.
    // Who reads them has waited for all tasks, so that no order is needed.
    Block *bad = b.createBlock(rest);
    auto claim = LLVM::AtomicCmpXchgOp::create(b, loc(), field(runContext, offsetof(attnrt_run, error_message)),
                                               constant(i32, 0), constant(i32, 1 + messages.add(op.getRunMessage())),
                                               LLVM::AtomicOrdering::monotonic, LLVM::AtomicOrdering::monotonic);
    Value isFirst = LLVM::ExtractValueOp::create(b, loc(), claim, ArrayRef<int64_t>{1});
    Block *first = b.createBlock(rest);
    LLVM::StoreOp::create(b, loc(), asI64(index), field(runContext, offsetof(attnrt_run, error_index)));
    LLVM::StoreOp::create(b, loc(), asI64(size), field(runContext, offsetof(attnrt_run, error_size)));
    cf::BranchOp::create(b, loc(), rest);
    b.setInsertionPointToEnd(bad);
    cf::CondBranchOp::create(b, loc(), isFirst, first, rest);
    b.setInsertionPointToEnd(block);
    cf::CondBranchOp::create(b, loc(), inside, rest, bad);
    return success();
  }

  LogicalResult lower(WeightOp op) {
    auto global = symbols.lookup<GlobalOp>(op.getGlobal());
    auto offset = global ? global->getAttrOfType<IntegerAttr>(AttnDialect::kOffsetAttr) : IntegerAttr();
    if (!offset)
      return op.emitOpError("expects '") << op.getGlobal() << "' to have the attribute " << AttnDialect::kOffsetAttr;
    auto type = dyn_cast<MemRefType>(op.getType());
    if (!type)
      return op.emitOpError("expects a buffer, got ") << op.getType();
    Value base = load(ptr, runContext, offsetof(attnrt_run, weights));
    op.replaceAllUsesWith(describe(type, field(base, offset.getInt()), {}));
    return success();
  }

  LogicalResult lower(KernelOp op) {
    auto callee = symbols.lookup<func::FuncOp>(op.getCallee());
    if (!callee || !callee->hasAttr(AttnDialect::kKernelAttr))
      return op.emitOpError("expects '") << op.getCallee() << "' to name a kernel";
    // A kernel that is already lowered has the run in front.
    TypeRange expected = callee.getArgumentTypes();
    if (expected.size() == op->getNumOperands() + 1)
      expected = expected.drop_front();
    SmallVector<Value> operands{runContext};
    for (auto [operand, type] : llvm::zip(op->getOperands(), expected)) {
      if (operand.getType() == type) {
        operands.push_back(operand);
        continue;
      }
      if (!memref::CastOp::areCastCompatible(operand.getType(), type))
        return op.emitOpError("expects an operand of type ") << type << ", got " << operand.getType();
      operands.push_back(memref::CastOp::create(b, loc(), type, operand));
    }
    auto call = func::CallOp::create(b, loc(), op.getCallee(), TypeRange(i32), operands);
    stopIf(isNonzero(call.getResult(0)));
    return success();
  }

  LogicalResult lower(ParallelForOp op) {
    Type structType = captureStruct(op.getCaptures().getTypes());
    Value argument = stack(structType, 1);
    int32_t next = 0;
    auto put = [&](Value value) { LLVM::StoreOp::create(b, loc(), value, structField(argument, structType, next++)); };
    put(runContext);
    for (Value capture : op.getCaptures()) {
      Type converted = types.convertType(capture.getType());
      if (!converted)
        return op.emitOpError("cannot capture a value of type ") << capture.getType();
      Value value = cast(capture, converted);
      if (!isDense(capture.getType())) {
        put(value);
        continue;
      }
      auto type = ::cast<MemRefType>(capture.getType());
      put(LLVM::ExtractValueOp::create(b, loc(), value, ArrayRef<int64_t>{1}));
      for (int64_t dim = 0; dim < type.getRank(); ++dim)
        if (type.isDynamicDim(dim))
          put(LLVM::ExtractValueOp::create(b, loc(), value, ArrayRef<int64_t>{3, dim}));
    }
    auto taskType = FunctionType::get(b.getContext(), {ptr, i64, i64}, {});
    Value count = asI64(op.getIterations());
    Value few = arith::CmpIOp::create(b, loc(), arith::CmpIPredicate::slt, count, constant(i64, op.getMinIterations()));
    Block *block = b.getInsertionBlock();
    Block *rest = block->splitBlock(b.getInsertionPoint());
    Block *many = b.createBlock(rest);
    Value task = cast(func::ConstantOp::create(b, loc(), taskType, op.getTaskAttr()), ptr);
    Value status = callRuntime(offsetof(attnrt_run, parallel_for), i32, {task, argument, count});
    cf::CondBranchOp::create(b, loc(), isNonzero(status), stopBlock(), rest);
    Block *one = b.createBlock(many);
    func::CallOp::create(b, loc(), op.getTask(), TypeRange(), ValueRange{argument, constant(i64, 0), count});
    if (polling.contains(op.getTask())) // it may have stopped in the middle
      stopIf(isNonzero(poll()));
    cf::BranchOp::create(b, loc(), rest);
    b.setInsertionPointToEnd(block);
    cf::CondBranchOp::create(b, loc(), few, one, many);
    return success();
  }

  //===--------------------------------------------------------------------===//
  // GPU
  //===--------------------------------------------------------------------===//

  LogicalResult lower(DeviceErrorOp op) {
    Value data = load(ptr, deviceTable(), offsetof(attnrt_device, error));
    op.replaceAllUsesWith(describe(::cast<MemRefType>(op.getType()), data, {}));
    return success();
  }

  LogicalResult lower(FetchOp op) {
    auto type = ::cast<MemRefType>(op.getBuffer().getType());
    Type element = types.convertType(type.getElementType());
    Value descriptor = cast(op.getBuffer(), types.convertType(type));
    auto get = [&](ArrayRef<int64_t> at) { return LLVM::ExtractValueOp::create(b, loc(), descriptor, at); };
    Value at = get({2});
    for (auto [dim, index] : llvm::enumerate(op.getIndices()))
      at = LLVM::AddOp::create(b, loc(), at,
                               LLVM::MulOp::create(b, loc(), asI64(index), get({4, static_cast<int64_t>(dim)})));
    Value from = LLVM::GEPOp::create(b, loc(), ptr, element, get({1}), ArrayRef<LLVM::GEPArg>{at});
    Value to = stack(i64, 1);
    int64_t bytes = bytesOf(type.getElementType());
    Value status = callDevice(offsetof(attnrt_device, fetch), i32, {to, from, constant(i64, bytes)});
    stopIf(isNonzero(status));
    Value value = load(element, to, 0, /*invariant=*/false);
    op.replaceAllUsesWith(element == op.getType() ? value : cast(value, op.getType()));
    return success();
  }

  LogicalResult lower(DownloadOp op) { return lowerCopy(op, offsetof(attnrt_device, fetch)); }
  LogicalResult lower(UploadOp op) { return lowerCopy(op, offsetof(attnrt_device, send)); }

  /// A copy of a dense buffer by the function at `offset`.
  template <typename OpTy> LogicalResult lowerCopy(OpTy op, int64_t offset) {
    auto type = ::cast<MemRefType>(op.getFrom().getType());
    Value bytes = constant(i64, bytesOf(type.getElementType()));
    for (int64_t dim = 0; dim < type.getRank(); ++dim)
      bytes = LLVM::MulOp::create(b, loc(), bytes, sizeOf(op.getFrom(), dim));
    Value status = callDevice(offset, i32, {addressOf(op.getTo()), addressOf(op.getFrom()), bytes});
    stopIf(isNonzero(status));
    return success();
  }

  static int64_t bytesOf(Type element) { return element.isIndex() ? 8 : (element.getIntOrFloatBitWidth() + 7) / 8; }
  Value descriptorField(Value buffer, ArrayRef<int64_t> field) {
    return LLVM::ExtractValueOp::create(b, loc(), cast(buffer, types.convertType(buffer.getType())), field);
  }
  Value addressOf(Value buffer) { return descriptorField(buffer, {1}); } // dense: no offset
  Value sizeOf(Value buffer, int64_t dim) { return descriptorField(buffer, {3, dim}); }

  LogicalResult lower(ProductOp op) {
    auto structType =
        LLVM::LLVMStructType::getLiteral(b.getContext(), {i32, i32, ptr, ptr, ptr, ptr, ptr, i64, i64, i64, i64,
                                                          b.getF32Type(), i32, i32, i32, i32, i32});
    Value none = LLVM::ZeroOp::create(b, loc(), ptr);
    Value product = stack(structType, 1);
    int32_t next = 0;
    auto put = [&](Value value) { LLVM::StoreOp::create(b, loc(), value, structField(product, structType, next++)); };
    bool hasNarrowResult = !getElementTypeOrSelf(op.getResult()).isF32();
    int64_t flags = (op.getNarrow() ? ATTNRT_PRODUCT_NARROW : 0) | (op.getAsk() ? ATTNRT_PRODUCT_ASK : 0) |
                    (hasNarrowResult ? ATTNRT_PRODUCT_NARROW_RESULT : 0);
    put(constant(i32, sizeof(attnrt_product)));
    put(constant(i32, flags));
    for (Value buffer : {op.getLeft(), op.getRight(), op.getResult(), op.getBias(), op.getAddend()})
      put(buffer ? addressOf(buffer) : none);
    for (Value size : {op.getBatch(), op.getRows(), op.getColumns(), op.getSums()})
      put(asI64(size));
    put(LLVM::ConstantOp::create(b, loc(), b.getF32Type(), op.getScaleAttr()));
    for (int64_t number : {int64_t(op.getPrecision()), int64_t(op.getActivation()), int64_t(op.getLeftTransposed()),
                           int64_t(op.getRightTransposed()), int64_t(0)})
      put(constant(i32, number));
    Value status = callDevice(offsetof(attnrt_device, product), i32, {product});
    Value zero = constant(i32, 0);
    stopIf(LLVM::ICmpOp::create(b, loc(), LLVM::ICmpPredicate::slt, status, zero));
    op.replaceAllUsesWith(LLVM::ICmpOp::create(b, loc(), LLVM::ICmpPredicate::ne, status, zero).getResult());
    return success();
  }

  LogicalResult lower(BeginLoopOp) {
    stopIf(isNonzero(callDevice(offsetof(attnrt_device, begin_loop), i32, {})));
    return success();
  }
  LogicalResult lower(EndLoopOp op) {
    Value condition = field(addressOf(op.getState()), 8 * static_cast<int64_t>(op.getWord()));
    stopIf(isNonzero(callDevice(offsetof(attnrt_device, end_loop), i32, {condition})));
    return success();
  }

  /// The parts of a kernel's argument as its PTX parameters take them: of a buffer its address and `openFields`.
  LogicalResult appendParameters(Operation *op, Value operand, SmallVectorImpl<Value> &parts) {
    Type converted = types.convertType(operand.getType());
    if (!converted)
      return op->emitOpError("cannot pass a value of type ") << operand.getType();
    Value value = converted == operand.getType() ? operand : cast(operand, converted);
    auto memref = dyn_cast<MemRefType>(operand.getType());
    if (!memref) {
      if (!converted.isIntOrFloat() || converted.getIntOrFloatBitWidth() < 8)
        return op->emitOpError("cannot pass a value of type ") << operand.getType();
      parts.push_back(value);
      return success();
    }
    auto get = [&](ArrayRef<int64_t> at) { return LLVM::ExtractValueOp::create(b, loc(), value, at).getResult(); };
    Value data = get({1});
    if (ShapedType::isDynamic(memref.getStridesAndOffset().second))
      data = LLVM::GEPOp::create(b, loc(), ptr, types.convertType(memref.getElementType()), data,
                                 ArrayRef<LLVM::GEPArg>{get({2})});
    parts.push_back(data);
    for (std::array<int64_t, 2> at : openFields(memref))
      parts.push_back(get(at));
    return success();
  }

  LogicalResult lower(gpu::LaunchFuncOp op) {
    auto names = op->getParentOfType<ModuleOp>()->getAttrOfType<ArrayAttr>(AttnDialect::kGpuKernelsAttr);
    auto *found = names ? llvm::find(names, op.getKernelName()) : nullptr;
    if (!names || found == names.end())
      return op.emitOpError("expects '") << op.getKernelName() << "' among " << AttnDialect::kGpuKernelsAttr;
    SmallVector<Value> parts;
    for (Value operand : op.getKernelOperands())
      if (failed(appendParameters(op, operand, parts)))
        return failure();
    auto structType = LLVM::LLVMStructType::getLiteral(b.getContext(), SmallVector<Type>(ValueRange(parts).getTypes()));
    Value parameters = stack(structType, 1);
    int64_t bytes = 0;
    for (auto [i, part] : llvm::enumerate(parts)) {
      int64_t size = isa<LLVM::LLVMPointerType>(part.getType()) ? 8 : part.getType().getIntOrFloatBitWidth() / 8;
      bytes = llvm::alignTo(bytes, size) + size;
      LLVM::StoreOp::create(b, loc(), part, structField(parameters, structType, i));
    }
    Value grid = storeSizes({op.getGridSizeX(), op.getGridSizeY(), op.getGridSizeZ()});
    Value block = storeSizes({op.getBlockSizeX(), op.getBlockSizeY(), op.getBlockSizeZ()});
    Value shared = constant(i64, 0);
    if (Value size = op.getDynamicSharedMemorySize())
      shared = LLVM::ZExtOp::create(b, loc(), i64, size);
    if (op->hasAttr(kCooperativeAttr))
      shared = LLVM::OrOp::create(b, loc(), shared, constant(i64, ATTNRT_LAUNCH_COOPERATIVE));
    Value status =
        callDevice(offsetof(attnrt_device, launch), i32,
                   {constant(i32, found - names.begin()), grid, block, shared, parameters, constant(i64, bytes)});
    stopIf(isNonzero(status));
    return success();
  }

  SymbolTable &symbols;
  Messages &messages;
  const llvm::StringSet<> &polling;
};

struct LowerRuntimePass : attn::impl::LowerRuntimePassBase<LowerRuntimePass> {
  void runOnOperation() override {
    LLVMTypeConverter types(&getContext());
    SymbolTable symbols(getOperation());
    Messages messages;
    // Kernels on a GPU know the positions of theirs already.
    if (auto known = getOperation()->getAttrOfType<ArrayAttr>(AttnDialect::kMessagesAttr))
      for (auto text : known.getAsRange<StringAttr>())
        messages.add(text);
    llvm::StringSet<> polling; // tasks that may stop in the middle
    getOperation().walk([&](PollOp op) {
      auto function = op->getParentOfType<func::FuncOp>();
      if (function->hasAttr(AttnDialect::kTaskAttr))
        polling.insert(function.getName());
    });
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      bool ours = function->hasAttr(AttnDialect::kEntryAttr) || function->hasAttr(AttnDialect::kKernelAttr) ||
                  function->hasAttr(AttnDialect::kTaskAttr);
      if (!ours)
        continue;
      if (function.isExternal()) { // a kernel of another object
        SmallVector<Type> arguments{LLVM::LLVMPointerType::get(&getContext())};
        llvm::append_range(arguments, function.getArgumentTypes());
        function.setFunctionType(FunctionType::get(&getContext(), arguments, IntegerType::get(&getContext(), 32)));
        continue;
      }
      if (failed(FunctionLowering(function, types, symbols, messages, polling).run()))
        return signalPassFailure();
    }
    for (auto kernels : llvm::make_early_inc_range(getOperation().getOps<gpu::GPUModuleOp>()))
      kernels.erase();
    getOperation()->removeAttr(gpu::GPUDialect::getContainerModuleAttrName());
    OpBuilder b(&getContext());
    getOperation()->setAttr(AttnDialect::kMessagesAttr, b.getStrArrayAttr(messages.list()));
  }
};
} // namespace
