#include "dialects/attn/DeviceOps.h"
#include "passes/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Interfaces/ViewLikeInterface.h"

namespace attn {
#define GEN_PASS_DEF_SEPARATEHOSTPASS
#include "passes/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {
/// Whether a buffer is a table of constants, which the host has too.
bool isOnHost(Value buffer) {
  while (auto view = buffer.getDefiningOp<ViewLikeOpInterface>())
    buffer = view.getViewSource();
  return isa_and_nonnull<memref::GetGlobalOp, memref::AllocaOp>(buffer.getDefiningOp());
}

void launchStore(memref::StoreOp store) {
  OpBuilder b(store);
  Location loc = store.getLoc();
  Value one = arith::ConstantIndexOp::create(b, loc, 1);
  auto launch = gpu::LaunchOp::create(b, loc, one, one, one, one, one, one);
  b.setInsertionPointToStart(&launch.getBody().front());
  gpu::TerminatorOp::create(b, loc);
  store->moveBefore(&launch.getBody().front(), launch.getBody().front().begin());
}

/// Ops that only name memory, or that the runtime carries out.
bool isHarmless(Operation *op) {
  return isa<ViewLikeOpInterface, gpu::LaunchOp, memref::DimOp, memref::GetGlobalOp, memref::AllocaOp, OutputOp,
             WorkspaceOp, WeightOp, FetchOp, DeviceErrorOp, ProductOp, MapTilesOp, KernelOp, DownloadOp, UploadOp,
             func::ReturnOp, memref::ExtractStridedMetadataOp, arith::SelectOp>(op) ||
         op->getNumRegions() > 0 || op->hasTrait<OpTrait::IsTerminator>();
}

struct SeparateHostPass : attn::impl::SeparateHostPassBase<SeparateHostPass> {
  void runOnOperation() override {
    bool isSound = true;
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (!function->hasAttr(AttnDialect::kEntryAttr))
        continue;
      SmallVector<Operation *> ops;
      function.walk<WalkOrder::PreOrder>([&](Operation *op) {
        if (isa<gpu::LaunchOp>(op))
          return WalkResult::skip();
        ops.push_back(op);
        return WalkResult::advance();
      });
      for (Operation *op : ops)
        isSound &= separate(op);
    }
    if (!isSound)
      signalPassFailure();
  }

  bool separate(Operation *op) {
    if (auto load = dyn_cast<memref::LoadOp>(op)) {
      if (isOnHost(load.getMemRef()))
        return true;
      OpBuilder b(op);
      load.replaceAllUsesWith(
          FetchOp::create(b, op->getLoc(), load.getType(), load.getMemRef(), load.getIndices()).getResult());
      load.erase();
      return true;
    }
    if (auto store = dyn_cast<memref::StoreOp>(op)) {
      if (!isOnHost(store.getMemRef()))
        launchStore(store);
      return true;
    }
    bool touches = llvm::any_of(op->getOperandTypes(), [](Type type) { return isa<BaseMemRefType>(type); });
    if (!touches || isHarmless(op))
      return true;
    op->emitError("cannot run on the GPU: '") << op->getName() << "' has no kernel";
    return false;
  }
};
} // namespace
