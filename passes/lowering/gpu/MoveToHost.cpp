#include "dialects/attn/DeviceOps.h"
#include "dialects/attn/NodeLocation.h"
#include "passes/Passes.h"
#include "passes/kernels/gpu/DoubleFunctions.h"
#include "passes/lowering/gpu/HostOps.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/ViewLikeInterface.h"
#include "mlir/Transforms/RegionUtils.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

namespace attn {
#define GEN_PASS_DEF_MOVETOHOSTPASS
#include "passes/Passes.h.inc"
} // namespace attn

using namespace mlir;

namespace attn {

bool lacksGpuCode(Operation *op) {
  static constexpr llvm::StringLiteral kInstructions[] = {
      "math.absf",  "math.ceil",  "math.copysign", "math.floor",     "math.fma",  "math.isfinite", "math.isinf",
      "math.isnan", "math.round", "math.isnormal", "math.roundeven", "math.sqrt", "math.trunc",    "math.rsqrt"};
  return op->getName().getDialectNamespace() == "math" && op->getNumOperands() &&
         getElementTypeOrSelf(op->getOperand(0).getType()).isF64() &&
         !llvm::is_contained(kInstructions, op->getName().getStringRef()) &&
         !findDoubleFunction(op->getName().getStringRef());
}

std::string whyNoGpuKernel(linalg::LinalgOp op) {
  for (OpOperand &init : op.getDpsInitsMutable())
    for (auto [dim, kind] : llvm::enumerate(op.getIteratorTypesArray()))
      if (kind != utils::IteratorType::parallel && op.getMatchingIndexingMap(&init).isFunctionOfDim(dim))
        return "a result that depends on a reduced dimension has no kernel";
  std::string reason;
  op->walk([&](Operation *each) {
    if (!lacksGpuCode(each))
      return WalkResult::advance();
    Type type = getElementTypeOrSelf(each->getOperand(0).getType());
    llvm::raw_string_ostream(reason) << "no code for the function '" << each->getName().stripDialect() << "' of "
                                     << type;
    return WalkResult::interrupt();
  });
  return reason;
}

namespace {
/// One op that goes to the host: a kernel of the CPU on copies of the buffers that it uses.
class HostCall {
public:
  HostCall(linalg::LinalgOp op, SymbolTable &symbols) : op(op), symbols(symbols), b(op), loc(op.getLoc()) {}

  LogicalResult run() {
    for (Value operand : op->getOperands())
      if (failed(take(operand)))
        return failure();
    SetVector<Value> above;
    getUsedValuesDefinedAbove(op->getRegions(), above);
    for (Value value : above)
      if (failed(take(value)))
        return failure();
    for (OpOperand &init : op.getDpsInitsMutable())
      if (auto buffer = buffers.find(rootOf(init.get())); buffer != buffers.end())
        buffer->second = true;
    SmallVector<Value> inputs(scalars.begin(), scalars.end()), inits, roots;
    for (auto [root, isWritten] : buffers)
      if (!isWritten)
        inputs.push_back(copyToHost(root));
    for (auto [root, isWritten] : buffers)
      if (isWritten) {
        inits.push_back(copyToHost(root));
        roots.push_back(root);
      }
    func::FuncOp kernel = outline();
    auto call =
        KernelOp::create(b, loc, TypeRange(), SymbolRefAttr::get(kernel), inputs, inits, b.getDenseI64ArrayAttr({}));
    call->setAttr(kOnHostAttr, kernel->getAttr(kOnHostAttr));
    for (auto [copy, root] : llvm::zip_equal(inits, roots))
      UploadOp::create(b, loc, copy, root);
    op->erase();
    return success();
  }

private:
  /// A view that the kernel makes for itself.
  static ViewLikeOpInterface viewOf(Value value) {
    auto view = value.getDefiningOp<ViewLikeOpInterface>();
    // A view of an arena of bytes is a buffer of its own.
    return view && !isa<memref::ViewOp>(view) ? view : ViewLikeOpInterface();
  }
  static Value rootOf(Value buffer) {
    while (auto view = viewOf(buffer))
      buffer = view.getViewSource();
    return buffer;
  }
  /// Sorts what the op uses: made again in the kernel, handed over, or copied.
  LogicalResult take(Value value) {
    if (isTaken.contains(value))
      return success();
    Operation *definition = value.getDefiningOp();
    if (definition && (definition->hasTrait<OpTrait::ConstantLike>() || isa<memref::GetGlobalOp>(definition))) {
      isTaken.insert(value);
      made.push_back(definition);
      return success();
    }
    if (auto view = viewOf(value)) {
      for (Value operand : view->getOperands())
        if (failed(take(operand)))
          return failure();
      for (Value result : view->getResults())
        isTaken.insert(result);
      made.push_back(view);
      return success();
    }
    isTaken.insert(value);
    if (auto type = dyn_cast<MemRefType>(value.getType())) {
      if (!type.getLayout().isIdentity() || !type.getElementType().isIntOrFloat())
        return op->emitError("cannot run on the CPU, either: it uses a buffer of another kind than dense numbers (")
               << type << ")";
      buffers.insert({value, false});
    } else {
      scalars.push_back(value);
    }
    return success();
  }

  Value copyToHost(Value root) {
    auto type = cast<MemRefType>(root.getType());
    SmallVector<Value> dynamic;
    Value bytes = arith::ConstantIndexOp::create(b, loc, (type.getElementTypeBitWidth() + 7) / 8);
    for (int64_t dim = 0; dim < type.getRank(); ++dim) {
      Value size = b.createOrFold<memref::DimOp>(loc, root, dim);
      if (type.isDynamicDim(dim))
        dynamic.push_back(size);
      bytes = b.createOrFold<arith::MulIOp>(loc, bytes, size);
    }
    Value arena = HostWorkspaceOp::create(b, loc, MemRefType::get({ShapedType::kDynamic}, b.getI8Type()), bytes);
    Value zero = arith::ConstantIndexOp::create(b, loc, 0);
    Value copy = memref::ViewOp::create(b, loc, type, arena, zero, dynamic);
    DownloadOp::create(b, loc, root, copy);
    return copy;
  }

  func::FuncOp outline() {
    SmallVector<Value> arguments(scalars.begin(), scalars.end());
    for (bool wanted : {false, true})
      for (auto [root, isWritten] : buffers)
        if (isWritten == wanted)
          arguments.push_back(root);
    OpBuilder at(op->getParentOfType<ModuleOp>().getBodyRegion());
    at.setInsertionPointToEnd(op->getParentOfType<ModuleOp>().getBody());
    auto kernel = func::FuncOp::create(at, loc, "on_host", at.getFunctionType(ValueRange(arguments).getTypes(), {}));
    kernel->setAttr(AttnDialect::kKernelAttr, at.getUnitAttr());
    kernel->setAttr(kOnHostAttr, at.getStringAttr(nodeName(loc).empty() ? StringRef(describe(loc)) : nodeName(loc)));
    kernel.setPrivate();
    symbols.insert(kernel);
    at.setInsertionPointToStart(kernel.addEntryBlock());
    IRMapping map;
    map.map(arguments, kernel.getArguments());
    for (Operation *each : made)
      at.clone(*each, map);
    at.clone(*op, map);
    func::ReturnOp::create(at, loc);
    return kernel;
  }

  linalg::LinalgOp op;
  SymbolTable &symbols;
  OpBuilder b;
  Location loc;
  DenseSet<Value> isTaken;
  SmallVector<Operation *> made; ///< in an order that dominates
  SmallVector<Value> scalars;
  llvm::MapVector<Value, bool> buffers; ///< and whether it is written
};

struct MoveToHostPass : attn::impl::MoveToHostPassBase<MoveToHostPass> {
  using MoveToHostPassBase::MoveToHostPassBase;

  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    SmallVector<linalg::LinalgOp> ops;
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (function->hasAttr(AttnDialect::kEntryAttr))
        function.walk([&](linalg::LinalgOp op) { ops.push_back(op); });
    bool isSound = true; // all that has no kernel is reported
    for (linalg::LinalgOp op : ops) {
      std::string reason = whyNoGpuKernel(op);
      if (reason.empty())
        continue;
      if (allow) {
        isSound &= succeeded(HostCall(op, symbols).run());
        continue;
      }
      op->emitError("cannot run on the GPU: ") << reason << "; --allow-host-ops runs it on the CPU";
      isSound = false;
    }
    if (!isSound)
      signalPassFailure();
  }
};
} // namespace

} // namespace attn
