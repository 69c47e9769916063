#include "dialects/attn/BroadcastForm.h"
#include "dialects/attn/CacheOps.h"
#include "dialects/attn/LoopOps.h"
#include "dialects/attn/SearchOp.h"
#include "passes/Passes.h"
#include "passes/kernels/spec/KernelAttrs.h"
#include "passes/lowering/buffers/DeviceFunction.h"
#include "passes/lowering/buffers/Messages.h"
#include "passes/lowering/buffers/TaskScratch.h"
#include "runtime/include/attnrt/abi.h"

#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/ADT/TypeSwitch.h"
#include <cstddef>

namespace attn {
#define GEN_PASS_DEF_LOWERRUNTIMEPASS
#include "passes/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {
/// What callers of tasks and kernels know of them.
struct Callees {
  explicit Callees(ModuleOp module) {
    for (auto function : module.getOps<func::FuncOp>())
      if (function->hasAttr(AttnDialect::kKernelAttr))
        arguments[function.getName()] = llvm::to_vector(function.getArgumentTypes());
    module.walk([&](Operation *op) {
      auto function = op->getParentOfType<func::FuncOp>();
      if (!function || !function->hasAttr(AttnDialect::kTaskAttr))
        return;
      if (isa<PollOp, IsEndingOp>(op))
        polling.insert(function.getName());
      if (auto place = op->getAttrOfType<DenseI64ArrayAttr>(kTaskScratchAttr))
        scratch[function.getName()] = place[1];
    });
  }
  llvm::StringMap<SmallVector<Type>> arguments; ///< of kernels, before they are taken apart
  llvm::StringSet<> polling;                    ///< tasks that may stop in the middle
  llvm::StringMap<int64_t> scratch;             ///< of tasks, bytes
};

/// Lowers one entry, kernel or task.
class FunctionLowering : DeviceFunction {
public:
  FunctionLowering(func::FuncOp function, LLVMTypeConverter &types, SymbolTable &symbols, Messages &messages,
                   const Callees &callees)
      : DeviceFunction(function, types), symbols(symbols), messages(messages), callees(callees) {}

  LogicalResult run() {
    if (function.isExternal()) // a kernel of another object
      return declareRun(), success();
    SmallVector<Operation *> ops;
    function.walk([&](Operation *op) {
      if (isa<AttnDialect>(op->getDialect()) || isa<gpu::LaunchFuncOp>(op))
        ops.push_back(op);
    });
    sharesStack = function.getBody().hasOneBlock();
    b.setInsertionPointToStart(&function.getBody().front());
    bool isTask = function->hasAttr(AttnDialect::kTaskAttr);
    LLVM::LLVMStructType captures;
    if (isTask) {
      captures = structOf(function.getName(), function.getArgumentTypes().drop_front(2));
      takeCaptures();
    } else if (function->hasAttr(AttnDialect::kEntryAttr)) {
      takeInputs();
      requestScratch();
    } else {
      takeRun();
    }
    bool leavesLoops = llvm::any_of(ops, llvm::IsaPred<IsEndingOp>);
    SmallVector<func::ReturnOp> ends;
    if (leavesLoops && !isTask) // whoever calls a task looks behind it
      function.walk([&](func::ReturnOp op) { ends.push_back(op); });
    for (Operation *op : ops)
      if (failed(lower(op)))
        return failure();
    for (func::ReturnOp end : ends) {
      b.setInsertionPoint(end);
      stopIf(isNonzero(poll()));
    }
    return isTask ? placeTaskScratch(captures) : placeScratch();
  }

private:
  using DeviceFunction::lower;

  LogicalResult lower(Operation *op) {
    current = op;
    b.setInsertionPoint(op);
    bool stops = isa<OutputOp, CacheOp, WorkspaceOp, ParallelForOp, RequireOp, KernelOp, FetchOp, ProductOp, MapTilesOp,
                     HostWorkspaceOp, DownloadOp, UploadOp, BeginLoopOp, EndLoopOp, TellOp, gpu::LaunchFuncOp>(op);
    if (stops && function->hasAttr(AttnDialect::kTaskAttr))
      return op->emitOpError("cannot stand in a parallel loop");
    auto result = llvm::TypeSwitch<Operation *, LogicalResult>(op)
                      .Case<OutputOp, CacheOp, WorkspaceOp, ParallelForOp, RequireOp, KernelOp, CheckIndexOp, WeightOp,
                            PollOp, IsEndingOp, FetchOp, DeviceErrorOp, ExactArchOp, DeviceLimitsOp, MarkOp,
                            NumThreadsOp, HasTilesOp, ProductOp, MapTilesOp, HostWorkspaceOp, DownloadOp, UploadOp,
                            BeginLoopOp, EndLoopOp, TellOp, gpu::LaunchFuncOp>([&](auto each) { return lower(each); })
                      .Default([](Operation *other) { return other->emitOpError("has no lowering to the runtime"); });
    if (succeeded(result))
      op->erase();
    current = nullptr;
    return result;
  }

  /// Of an entry, as much as the kernels that it calls need at most.
  void requestScratch() {
    int64_t bytes = 0, taskBytes = 0;
    function.walk([&](KernelOp op) {
      auto [ofCall, ofTask] = scratchOf(symbols.lookup<func::FuncOp>(op.getCallee()));
      bytes = std::max(bytes, ofCall);
      taskBytes = std::max(taskBytes, ofTask);
    });
    if (!bytes && !taskBytes)
      return;
    Value ofTasks = LLVM::MulOp::create(b, loc(), numThreads(), constant(i64, taskBytes + kSlotFlagBytes));
    scratch = callRuntime(offsetof(attnrt_run, workspace), ptr,
                          {LLVM::AddOp::create(b, loc(), ofTasks, constant(i64, bytes))});
    stopIf(LLVM::ICmpOp::create(b, loc(), LLVM::ICmpPredicate::eq, scratch, LLVM::ZeroOp::create(b, loc(), ptr)));
  }

  Value numThreads() {
    return LLVM::SExtOp::create(b, loc(), i64, load(i32, runContext, offsetof(attnrt_run, num_threads)));
  }

  LogicalResult placeScratch() {
    b.setInsertionPointToStart(&function.getBody().front());
    for (memref::AllocaOp alloca : allocationsWith(kScratchAttr)) {
      int64_t place = alloca->getAttrOfType<IntegerAttr>(kScratchAttr).getInt();
      alloca.replaceAllUsesWith(describe(alloca.getType(), field(scratch, place), {}));
      alloca.erase();
    }
    return success();
  }

  LogicalResult placeTaskScratch(LLVM::LLVMStructType captures) {
    Block &entry = function.getBody().front();
    b.setInsertionPointToStart(&entry);
    SmallVector<int64_t> places;
    for (memref::AllocaOp alloca : allocationsWith(kTaskScratchAttr)) {
      places.push_back(alloca->getAttrOfType<DenseI64ArrayAttr>(kTaskScratchAttr)[0]);
      alloca.replaceAllUsesWith(describe(alloca.getType(), entry.addArgument(ptr, loc()), {}));
      alloca.erase();
    }
    function.setFunctionType(b.getFunctionType(entry.getArgumentTypes(), {}));
    if (int64_t bytes = callees.scratch.lookup(function.getName()))
      takeSlot(function, bytes, captures, places, symbols);
    return success();
  }

  SmallVector<memref::AllocaOp> allocationsWith(StringRef attribute) {
    SmallVector<memref::AllocaOp> found;
    function.walk([&](memref::AllocaOp alloca) {
      if (alloca->hasAttr(attribute))
        found.push_back(alloca);
    });
    return found;
  }

  /// All sizes of a buffer, of which `open` are those that its type leaves open.
  SmallVector<Value> shapeOf(MemRefType type, ValueRange open) {
    SmallVector<Value> shape;
    for (int64_t size : type.getShape())
      if (ShapedType::isDynamic(size)) {
        shape.push_back(open.front());
        open = open.drop_front();
      } else {
        shape.push_back(arith::ConstantIndexOp::create(b, loc(), size));
      }
    return shape;
  }

  LogicalResult lower(OutputOp op) {
    auto type = ::cast<MemRefType>(op.getType());
    SmallVector<Value> shape = shapeOf(type, op.getSizes()), sizes;
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
    SmallVector<Value> shape = shapeOf(type, op.getSizes()), sizes;
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

  LogicalResult lower(IsEndingOp op) {
    op.replaceAllUsesWith(isNonzero(poll()));
    return success();
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
    if (auto otherwise = op->getAttrOfType<FlatSymbolRefAttr>(kOtherwiseAttr)) {
      auto call = func::CallOp::create(b, loc(), otherwise, TypeRange(i32), function.getArguments());
      func::ReturnOp::create(b, loc(), call.getResults());
      b.setInsertionPointToEnd(block);
      cf::CondBranchOp::create(b, loc(), op.getCondition(), rest, bad);
      return success();
    }
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
    SmallVector<Value> operands{runContext};
    if (callee->hasAttr(kScratchAttr))
      operands.push_back(scratch);
    for (auto [operand, type] : llvm::zip_equal(op->getOperands(), callees.arguments.at(op.getCallee()))) {
      Value given = operand;
      if (given.getType() != type && !memref::CastOp::areCastCompatible(given.getType(), type))
        return op.emitOpError("expects an operand of type ") << type << ", got " << operand.getType();
      if (given.getType() != type)
        given = memref::CastOp::create(b, loc(), type, given);
      FailureOr<SmallVector<Value>> parts = takeApart(given);
      if (failed(parts))
        return op.emitOpError("cannot hand over a value of type ") << type;
      llvm::append_range(operands, *parts);
    }
    auto call = func::CallOp::create(b, loc(), op.getCallee(), TypeRange(i32), operands);
    stopIf(isNonzero(call.getResult(0)));
    return success();
  }

  LogicalResult lower(ParallelForOp op) {
    Type structType = structOf(op.getTask(), op.getCaptures().getTypes());
    Value argument = stack(structType, 1);
    if (sharesStack)
      LLVM::LifetimeStartOp::create(b, loc(), argument);
    auto release = [&] {
      if (sharesStack)
        LLVM::LifetimeEndOp::create(b, loc(), argument);
    };
    int32_t next = 0;
    auto put = [&](Value value) { LLVM::StoreOp::create(b, loc(), value, structField(argument, structType, next++)); };
    put(runContext);
    for (Value capture : op.getCaptures()) {
      FailureOr<SmallVector<Value>> parts = takeApart(capture);
      if (failed(parts))
        return op.emitOpError("cannot capture a value of type ") << capture.getType();
      llvm::for_each(*parts, put);
    }
    auto taskType = FunctionType::get(b.getContext(), {ptr, i64, i64}, {});
    Value count = asI64(op.getIterations());
    if (callees.scratch.contains(op.getTask()))
      llvm::for_each(prepareSlots(count), put);
    Value few = arith::CmpIOp::create(b, loc(), arith::CmpIPredicate::slt, count, constant(i64, op.getMinIterations()));
    Block *block = b.getInsertionBlock();
    Block *rest = block->splitBlock(b.getInsertionPoint());
    Block *many = b.createBlock(rest);
    Value task = cast(func::ConstantOp::create(b, loc(), taskType, op.getTaskAttr()), ptr);
    Value status = callRuntime(offsetof(attnrt_run, parallel_for), i32, {task, argument, count});
    release();
    cf::CondBranchOp::create(b, loc(), isNonzero(status), stopBlock(), rest);
    Block *one = b.createBlock(many);
    func::CallOp::create(b, loc(), op.getTask(), TypeRange(), ValueRange{argument, constant(i64, 0), count});
    release();
    if (callees.polling.contains(op.getTask())) // it may have stopped in the middle
      stopIf(isNonzero(poll()));
    cf::BranchOp::create(b, loc(), rest);
    b.setInsertionPointToEnd(block);
    cf::CondBranchOp::create(b, loc(), few, one, many);
    return success();
  }

  LLVM::LLVMStructType structOf(StringRef task, TypeRange captures) {
    LLVM::LLVMStructType type = captureStruct(captures);
    if (!callees.scratch.contains(task))
      return type;
    SmallVector<Type> fields(type.getBody());
    llvm::append_range(fields, taskScratchFields(b.getContext()));
    return LLVM::LLVMStructType::getLiteral(b.getContext(), fields);
  }

  /// Frees all slots for a loop of `count` iterations, and returns what its tasks are told of them.
  std::array<Value, 3> prepareSlots(Value count) {
    Value atLeastOne = arith::MaxSIOp::create(b, loc(), count, constant(i64, 1));
    Value slots = arith::MinSIOp::create(b, loc(), atLeastOne, numThreads());
    Value piece = arith::CeilDivUIOp::create(b, loc(), atLeastOne, slots);
    Value part = field(scratch, scratchOf(function).first);
    LLVM::MemsetOp::create(b, loc(), part, constant(b.getI8Type(), 0),
                           LLVM::MulOp::create(b, loc(), slots, constant(i64, kSlotFlagBytes)), /*isVolatile=*/false);
    return {part, slots, piece};
  }

  SymbolTable &symbols;
  Messages &messages;
  const Callees &callees;
  /// Loops, one behind the other, use one place of the stack. Equal blocks of branches are merged by later passes, and
  /// LLVM does not take an end of a place that only the run knows.
  bool sharesStack = false;
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
    Callees callees(getOperation());
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      bool ours = function->hasAttr(AttnDialect::kEntryAttr) || function->hasAttr(AttnDialect::kKernelAttr) ||
                  function->hasAttr(AttnDialect::kTaskAttr);
      if (!ours)
        continue;
      if (failed(FunctionLowering(function, types, symbols, messages, callees).run()))
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
