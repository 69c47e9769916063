#include "dialects/attn/DeviceOps.h"
#include "passes/Passes.h"
#include "passes/lowering/gpu/ExpandRemainder.h"
#include "passes/lowering/gpu/HostOps.h"
#include "passes/lowering/gpu/LaunchGroups.h"
#include "passes/lowering/gpu/LibraryProduct.h"
#include "passes/lowering/gpu/StageTables.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/ViewLikeInterface.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringExtras.h"

namespace attn {
#define GEN_PASS_DEF_LAUNCHLINALGPASS
#include "passes/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {
constexpr int64_t kThreads = 128;

Value constant(OpBuilder &b, Location loc, int64_t value) { return arith::ConstantIndexOp::create(b, loc, value); }

/// Whether `buffer` is a view of constants that lie in the code.
bool isTable(Value buffer) {
  while (auto view = buffer.getDefiningOp<ViewLikeOpInterface>())
    buffer = view.getViewSource();
  return buffer.getDefiningOp<memref::GetGlobalOp>();
}

/// What the kernel `symbol` computes: "gpu_attention_dot_d64_..." is "attention_dot". Its sizes are left out, since
/// kernels with the same code are one.
std::string nameOfKernel(StringRef symbol) {
  symbol.consume_front("gpu_");
  SmallVector<StringRef> words;
  symbol.split(words, '_');
  auto end = llvm::find_if(words, [](StringRef word) { return llvm::any_of(word, llvm::isDigit); });
  return end == words.begin() ? "kernel" : llvm::join(words.begin(), end, "_");
}

/// One op: first what the host computes, then the code of a thread.
class LinalgEmitter {
public:
  /// Writes where `b` stands.
  LinalgEmitter(linalg::LinalgOp op, OpBuilder &b) : op(op), b(b), loc(op.getLoc()) {}

  Value count; ///< of the threads

  bool isReduction() const { return !reduction.empty(); }

  LogicalResult prepare() {
    SmallVector<utils::IteratorType> kinds = op.getIteratorTypesArray();
    for (auto [dim, kind] : llvm::enumerate(kinds))
      (kind == utils::IteratorType::parallel ? parallel : reduction).push_back(dim);
    if (std::string reason = whyNoGpuKernel(op); !reason.empty())
      return op.emitError(reason);
    for (const Range &range : op.createLoopRanges(b, loc))
      sizes.push_back(getValueOrCreateConstantIndexOp(b, loc, range.size));
    count = constant(b, loc, 1);
    for (unsigned dim : parallel)
      count = arith::MulIOp::create(b, loc, count, sizes[dim]);
    position.resize(kinds.size());
    width = chooseWidth();
    if (width > 1) {
      Value &last = sizes[parallel.back()];
      count = arith::DivUIOp::create(b, loc, count, constant(b, loc, width));
      last = arith::DivUIOp::create(b, loc, last, constant(b, loc, width));
    }
    return success();
  }

  /// The work of thread `id` < count.
  void emit(Value id) {
    for (unsigned dim : llvm::reverse(parallel)) {
      if (dim == parallel.front()) {
        position[dim] = id;
        break;
      }
      position[dim] = arith::RemUIOp::create(b, loc, id, sizes[dim]);
      id = arith::DivUIOp::create(b, loc, id, sizes[dim]);
    }
    if (width > 1)
      return emitWide();
    SmallVector<Value> results = reduce(0, startValues());
    for (auto [init, value] : llvm::zip(op.getDpsInitsMutable(), results))
      memref::StoreOp::create(b, loc, value, init.get(), indices(init));
  }

private:
  /// Whether `many` elements that are neighbours in the last loop are so in memory, from multiples of theirs on.
  bool isWide(OpOperand &operand, int64_t many) {
    auto type = dyn_cast<MemRefType>(operand.get().getType());
    AffineMap map = op.getMatchingIndexingMap(&operand);
    unsigned inner = op.getNumLoops() - 1;
    if (!type || !map.getNumResults() || !map.isProjectedPermutation() || !type.getElementType().isIntOrFloat() ||
        type.getElementTypeBitWidth() % 8 || isTable(operand.get()))
      return false;
    int64_t extent = op.getStaticLoopRanges()[inner];
    if (map.getResults().back() != getAffineDimExpr(inner, map.getContext()) || type.getShape().back() != extent ||
        ShapedType::isDynamic(extent) || extent % many)
      return false;
    if (type.getLayout().isIdentity())
      return true;
    SmallVector<int64_t> places;
    int64_t offset = 0;
    if (failed(type.getStridesAndOffset(places, offset)) || places.pop_back_val() != 1)
      return false;
    places.push_back(offset);
    return llvm::all_of(places, [&](int64_t place) { return !ShapedType::isDynamic(place) && place % many == 0; });
  }
  /// How many elements a thread computes: of an elementwise op so many that its widest accesses have 16 bytes.
  int64_t chooseWidth() {
    constexpr int64_t kBytes = 16, kFewElements = 1 << 15, kMostOps = 32;
    if (!reduction.empty() || parallel.empty())
      return 1;
    for (Operation &each : op.getBlock()->without_terminator())
      if (each.getNumRegions() || !isMemoryEffectFree(&each))
        return 1;
    SmallVector<int64_t> ranges = op.getStaticLoopRanges();
    int64_t known = 1;
    for (int64_t range : ranges)
      known = ShapedType::isDynamic(known) || ShapedType::isDynamic(range) ? ShapedType::kDynamic : known * range;
    // Few elements have a thread each.
    bool isFew = !ShapedType::isDynamic(known) && known < kFewElements;
    bool isLong = llvm::range_size(op.getBlock()->without_terminator()) > kMostOps;
    if (isFew || isLong)
      return 1;
    int64_t widest = 0;
    for (OpOperand &operand : op->getOpOperands()) {
      auto type = dyn_cast<MemRefType>(operand.get().getType());
      int64_t bytes = type && type.getElementType().isIntOrFloat() ? type.getElementTypeBitWidth() / 8 : 0;
      if (bytes && isWide(operand, std::max<int64_t>(1, kBytes / bytes)))
        widest = std::max(widest, bytes);
    }
    if (!widest ||
        !llvm::all_of(op.getDpsInitsMutable(), [&](OpOperand &init) { return isWide(init, kBytes / widest); }))
      return 1;
    return kBytes / widest;
  }
  static void align(Operation *access, StringAttr name, VectorType type) {
    int64_t bytes = type.getNumElements() * type.getElementTypeBitWidth() / 8;
    access->setAttr(name, Builder(access->getContext()).getI64IntegerAttr(bytes));
  }
  /// A thread's elements, `width` of them side by side.
  void emitWide() {
    Value &place = position[parallel.back()];
    Value first = place = arith::MulIOp::create(b, loc, place, constant(b, loc, width));
    auto vectorOf = [&](OpOperand &operand) {
      return VectorType::get({width}, cast<MemRefType>(operand.get().getType()).getElementType());
    };
    for (OpOperand &operand : op->getOpOperands())
      if (op.payloadUsesValueFromOperand(&operand) && isWide(operand, width)) {
        auto load = vector::LoadOp::create(b, loc, vectorOf(operand), operand.get(), indices(operand));
        align(load, load.getAlignmentAttrName(), vectorOf(operand));
        loaded[&operand] = load;
      }
    SmallVector<SmallVector<Value>> results(op.getNumDpsInits());
    for (lane = 0; lane < width; ++lane) {
      place = lane ? arith::AddIOp::create(b, loc, first, constant(b, loc, lane)) : first;
      for (auto [values, value] : llvm::zip_equal(results, body(startValues())))
        values.push_back(value);
    }
    place = first;
    for (auto [init, values] : llvm::zip_equal(op.getDpsInitsMutable(), results)) {
      Value all = vector::FromElementsOp::create(b, loc, vectorOf(init), values);
      auto store = vector::StoreOp::create(b, loc, all, init.get(), indices(init));
      align(store, store.getAlignmentAttrName(), vectorOf(init));
    }
  }

  SmallVector<Value> indices(OpOperand &operand) {
    AffineMap map = op.getMatchingIndexingMap(&operand);
    SmallVector<Value> result;
    for (AffineExpr expr : map.getResults()) {
      // Only what the expression uses is there outside of the reduction.
      SmallVector<OpFoldResult> values;
      AffineMap single = AffineMap::get(map.getNumDims(), 0, expr);
      for (unsigned dim = 0; dim < map.getNumDims(); ++dim)
        values.push_back(position[dim] ? OpFoldResult(position[dim]) : OpFoldResult(b.getIndexAttr(0)));
      result.push_back(
          getValueOrCreateConstantIndexOp(b, loc, affine::makeComposedFoldedAffineApply(b, loc, single, values)));
    }
    return result;
  }
  Value read(OpOperand &operand) {
    if (!isa<MemRefType>(operand.get().getType()))
      return operand.get();
    if (Value vector = loaded.lookup(&operand))
      return vector::ExtractOp::create(b, loc, vector, lane);
    return memref::LoadOp::create(b, loc, operand.get(), indices(operand));
  }
  /// What the accumulators hold before the reduction; null where the body does not read them.
  SmallVector<Value> startValues() {
    SmallVector<Value> values;
    for (OpOperand &init : op.getDpsInitsMutable()) {
      bool isRead = op.payloadUsesValueFromOperand(&init);
      values.push_back(isRead ? read(init) : Value());
    }
    return values;
  }
  /// The loops of `reduction` from number `depth` on, around the body.
  SmallVector<Value> reduce(unsigned depth, SmallVector<Value> carried) {
    if (depth == reduction.size())
      return body(carried);
    // A loop carries only what is there; of what the body does not read the last value counts.
    SmallVector<Value> initial;
    for (auto [value, init] : llvm::zip(carried, op.getDpsInitsMutable()))
      initial.push_back(value ? value : read(init));
    unsigned dim = reduction[depth];
    auto loop = scf::ForOp::create(b, loc, constant(b, loc, 0), sizes[dim], constant(b, loc, 1), initial);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    position[dim] = loop.getInductionVar();
    SmallVector<Value> results = reduce(depth + 1, SmallVector<Value>(loop.getRegionIterArgs()));
    scf::YieldOp::create(b, loc, results);
    position[dim] = Value();
    return SmallVector<Value>(loop.getResults());
  }
  SmallVector<Value> body(ArrayRef<Value> carried) {
    Block *block = op.getBlock();
    IRMapping map;
    for (OpOperand *input : op.getDpsInputOperands())
      if (!op.getMatchingBlockArgument(input).use_empty())
        map.map(op.getMatchingBlockArgument(input), read(*input));
    for (auto [init, value] : llvm::zip(op.getDpsInitsMutable(), carried))
      if (value)
        map.map(op.getMatchingBlockArgument(&init), value);
    for (Operation &each : block->without_terminator()) {
      if (auto index = dyn_cast<linalg::IndexOp>(each))
        map.map(index.getResult(), position[index.getDim()]);
      else
        b.clone(each, map);
    }
    SmallVector<Value> results;
    for (Value value : block->getTerminator()->getOperands())
      results.push_back(map.lookupOrDefault(value));
    return results;
  }

  linalg::LinalgOp op;
  OpBuilder &b;
  Location loc;
  int64_t width = 1; ///< elements of a thread, side by side
  SmallVector<unsigned> parallel, reduction;
  SmallVector<Value> sizes, position;
  DenseMap<OpOperand *, Value> loaded; ///< what is read as a vector, whose element `lane` counts
  int64_t lane = 0;
};

/// A launch for all of `group`, each of which has blocks of its own.
LogicalResult emitLaunch(ArrayRef<linalg::LinalgOp> group) {
  linalg::LinalgOp last = group.back();
  OpBuilder b(last);
  Location loc = last.getLoc();
  SmallVector<LinalgEmitter, 0> emitters;
  for (linalg::LinalgOp op : group)
    emitters.emplace_back(op, b);
  Value one = constant(b, loc, 1), threads = constant(b, loc, kThreads), all;
  SmallVector<Value> blocks;
  for (LinalgEmitter &each : emitters) {
    if (failed(each.prepare()))
      return failure();
    blocks.push_back(arith::CeilDivUIOp::create(b, loc, each.count, threads));
    all = all ? arith::AddIOp::create(b, loc, all, blocks.back()) : blocks.back();
  }
  auto launch = gpu::LaunchOp::create(b, loc, all, one, one, threads, one, one);
  bool reduces = llvm::any_of(emitters, [](LinalgEmitter &each) { return each.isReduction(); });
  launch->setAttr(kKernelNameAttr, b.getStringAttr(reduces ? "reduction" : "elementwise"));
  b.setInsertionPointToStart(&launch.getBody().front());
  gpu::TerminatorOp::create(b, loc);
  b.setInsertionPointToStart(&launch.getBody().front());
  Value block = launch.getBlockIds().x;
  for (auto [emitter, own] : llvm::zip_equal(emitters, blocks)) {
    scf::IfOp choice;
    if (&emitter != &emitters.back()) {
      Value isOwn = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, block, own);
      choice = scf::IfOp::create(b, loc, isOwn, /*withElseRegion=*/true);
      b.setInsertionPointToStart(choice.thenBlock());
    }
    Value first = arith::MulIOp::create(b, loc, block, constant(b, loc, kThreads));
    Value id = arith::AddIOp::create(b, loc, first, launch.getThreadIds().x);
    Value isInside = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, id, emitter.count);
    auto guard = scf::IfOp::create(b, loc, isInside);
    b.setInsertionPointToStart(guard.thenBlock());
    emitter.emit(id);
    if (choice) {
      b.setInsertionPointToStart(choice.elseBlock());
      block = arith::SubIOp::create(b, loc, block, own);
    }
  }
  for (linalg::LinalgOp op : group)
    op->erase();
  return success();
}

struct LaunchLinalgPass : attn::impl::LaunchLinalgPassBase<LaunchLinalgPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    SymbolTable symbols(module);
    for (auto function : module.getOps<func::FuncOp>()) {
      if (!function->hasAttr(AttnDialect::kEntryAttr))
        continue;
      stageTables(function);
      SmallVector<KernelOp> kernels;
      function.walk([&](KernelOp op) {
        if (!op->hasAttr(kOnHostAttr))
          kernels.push_back(op);
      });
      for (KernelOp op : kernels)
        if (failed(inlineKernel(op, symbols)))
          return signalPassFailure();
      bool isSound = true; // all that has no kernel is reported
      for (ArrayRef<linalg::LinalgOp> group : groupLaunches(function))
        isSound &= succeeded(emitLaunch(group));
      if (!isSound)
        return signalPassFailure();
      function.walk([&](gpu::LaunchOp op) { expandRemainders(op); });
      function.walk([&](CheckIndexOp op) {
        if (op->getParentOfType<gpu::LaunchOp>())
          lowerCheck(op, function);
      });
    }
    for (auto function : llvm::make_early_inc_range(module.getOps<func::FuncOp>()))
      if (function->hasAttr(AttnDialect::kKernelAttr) && !function->hasAttr(kOnHostAttr))
        function.erase();
    SmallVector<StringRef> texts = llvm::map_to_vector(messages, [](auto &entry) { return StringRef(entry.first); });
    if (!texts.empty())
      module->setAttr(AttnDialect::kMessagesAttr, OpBuilder(module).getStrArrayAttr(texts));
  }

  LogicalResult inlineKernel(KernelOp op, SymbolTable &symbols) {
    auto callee = symbols.lookup<func::FuncOp>(op.getCallee());
    if (!callee || !callee.getBody().hasOneBlock())
      return op.emitOpError("expects '") << op.getCallee() << "' to be a kernel of one block";
    OpBuilder b(op);
    IRMapping map;
    for (auto [operand, argument] : llvm::zip(op->getOperands(), callee.getArguments())) {
      Value value = operand;
      if (value.getType() != argument.getType())
        value = memref::CastOp::create(b, op.getLoc(), argument.getType(), value);
      map.map(argument, value);
    }
    SmallVector<Operation *> body;
    StringAttr name = b.getStringAttr(nameOfKernel(op.getCallee()));
    for (Operation &each : callee.getBody().front().without_terminator()) {
      body.push_back(b.clone(each, map));
      body.back()->walk([&](gpu::LaunchOp launch) { launch->setAttr(kKernelNameAttr, name); });
    }
    auto product = callee->getAttrOfType<DictionaryAttr>(kLibraryProductAttr);
    // A small table of constants is in the code of kernels alone.
    if (product && llvm::none_of(op->getOperands(), isTable)) {
      auto arguments = llvm::map_to_vector(callee.getArguments(), [&](Value argument) { return map.lookup(argument); });
      for (Operation *each : SmallVector<Operation *>(body))
        if (each->hasAttr(kFewRowsAttr))
          body = llvm::map_to_vector(cast<scf::IfOp>(each).elseBlock()->without_terminator(),
                                     [](Operation &inner) { return &inner; });
      b.setInsertionPoint(body.front());
      Value done = emitLibraryProduct(b, op.getLoc(), product, arguments);
      done.getDefiningOp()->walk(
          [&](gpu::LaunchOp launch) { launch->setAttr(kKernelNameAttr, b.getStringAttr("rounding")); });
      auto choice = scf::IfOp::create(b, op.getLoc(), done, /*withElseRegion=*/true);
      if (auto rest = product.getAs<FlatSymbolRefAttr>(kProductRest))
        cloneBody(choice.getThenBodyBuilder(), symbols.lookup<func::FuncOp>(rest.getAttr()),
                  ArrayRef(arguments).drop_front(2));
      for (Operation *each : body)
        each->moveBefore(choice.elseBlock()->getTerminator());
    }
    op.erase();
    return success();
  }

  /// The ops of a kernel on `operands`, of which there may be more.
  static void cloneBody(OpBuilder b, func::FuncOp kernel, ArrayRef<Value> operands) {
    IRMapping map;
    map.map(kernel.getArguments(), operands.take_front(kernel.getNumArguments()));
    for (Operation &each : kernel.getBody().front().without_terminator())
      b.clone(each, map);
  }

  void lowerCheck(CheckIndexOp op, func::FuncOp function) {
    Location loc = op.getLoc();
    OpBuilder b(&function.getBody().front(), function.getBody().front().begin());
    Value &error = errors[function];
    if (!error)
      error = DeviceErrorOp::create(b, loc, MemRefType::get({4}, b.getI64Type()));
    b.setInsertionPoint(op);
    Value zero = constant(b, loc, 0), index = op.getIndex(), wrapped = index;
    if (!op.getNonnegative()) {
      Value isNegative = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, index, zero);
      wrapped = arith::AddIOp::create(b, loc, index, arith::SelectOp::create(b, loc, isNegative, op.getSize(), zero));
    }
    Value isInside = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, wrapped, op.getSize());
    op.replaceAllUsesWith(arith::SelectOp::create(b, loc, isInside, wrapped, zero).getResult());
    int64_t number = 1 + messages.try_emplace(op.getRunMessage(), messages.size()).first->second;
    Value isBad = arith::XOrIOp::create(b, loc, isInside, arith::ConstantIntOp::create(b, loc, 1, 1));
    auto branch = scf::IfOp::create(b, loc, isBad);
    b.setInsertionPointToStart(branch.thenBlock());
    // The words of attnrt_device_error.
    Value one = arith::ConstantIntOp::create(b, loc, 1, 64);
    Value before = memref::AtomicRMWOp::create(b, loc, arith::AtomicRMWKind::addi, one, error, zero);
    Value isFirst =
        arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, before, arith::ConstantIntOp::create(b, loc, 0, 64));
    branch = scf::IfOp::create(b, loc, isFirst);
    b.setInsertionPointToStart(branch.thenBlock());
    auto asWord = [&](Value value) { return arith::IndexCastOp::create(b, loc, b.getI64Type(), value).getResult(); };
    Value words[] = {arith::ConstantIntOp::create(b, loc, number, 64), asWord(index), asWord(op.getSize())};
    for (auto [n, word] : llvm::enumerate(words))
      memref::StoreOp::create(b, loc, word, error, constant(b, loc, 1 + n));
    op.erase();
  }

  DenseMap<Operation *, Value> errors;
  llvm::MapVector<std::string, int64_t, std::map<std::string, unsigned>> messages;
};
} // namespace
