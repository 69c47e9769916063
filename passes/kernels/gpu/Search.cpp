// Kernels that are written for one thread become launches.
#include "passes/kernels/gpu/Search.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Transforms/RegionUtils.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace attn;

/// The loop at the top of a kernel, of which nothing but memory is left.
static Operation *topLoop(Block &block) {
  for (Operation &op : block)
    if (isa<scf::ParallelOp, scf::ForOp>(op) && op.getNumResults() == 0)
      return &op;
  return nullptr;
}

void attn::launchSearchKernel(func::FuncOp kernel, int64_t threads, bool perBlock) {
  Block &block = kernel.getBody().front();
  Operation *loop = topLoop(block), *last = block.getTerminator();
  Location loc = kernel.getLoc();
  OpBuilder b(loop ? loop : last);
  auto index = [&](int64_t value) -> Value { return arith::ConstantIndexOp::create(b, loc, value); };
  Value one = index(1), count = one;
  if (auto parallel = dyn_cast_or_null<scf::ParallelOp>(loop))
    count = parallel.getUpperBound()[0];
  else if (loop)
    count = cast<scf::ForOp>(loop).getUpperBound();
  SmallVector<memref::AllocaOp> arrays(block.getOps<memref::AllocaOp>());
  assert((arrays.empty() || threads == 1) && "threads of a block have one array");
  SmallVector<Type> shared;
  auto space = gpu::AddressSpaceAttr::get(b.getContext(), gpu::AddressSpace::Workgroup);
  for (memref::AllocaOp array : arrays)
    shared.push_back(MemRefType::get(array.getType().getShape(), array.getType().getElementType(),
                                     MemRefLayoutAttrInterface(), space));
  bool shares = loop && !perBlock;
  Value blocks = shares ? arith::CeilDivUIOp::create(b, loc, count, index(threads)).getResult() : count;
  auto launch = gpu::LaunchOp::create(b, loc, blocks, one, one, loop ? index(threads) : one, one, one,
                                      /*dynamicSharedMemorySize=*/Value(), /*asyncTokenType=*/Type(),
                                      /*asyncDependencies=*/ValueRange(), shared);
  for (auto [array, argument] : llvm::zip_equal(arrays, launch.getWorkgroupAttributions())) {
    array.replaceAllUsesWith(argument);
    array.erase();
  }
  Block &body = launch.getBody().front();
  b.setInsertionPointToStart(&body);
  auto end = gpu::TerminatorOp::create(b, loc);
  if (!loop) {
    // Constants and sizes stay with the host, which knows them.
    for (Operation &op : llvm::make_early_inc_range(block)) {
      if (&op == launch.getOperation())
        break;
      if (!op.hasTrait<OpTrait::ConstantLike>() && !isa<memref::DimOp>(op))
        op.moveBefore(end);
    }
  } else {
    b.setInsertionPoint(end);
    Value number = launch.getBlockIds().x;
    Operation *before = end;
    if (shares) {
      Value first = arith::MulIOp::create(b, loc, number, index(threads));
      number = arith::AddIOp::create(b, loc, first, launch.getThreadIds().x);
      Value isInside = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, number, count);
      auto guard = scf::IfOp::create(b, loc, isInside);
      before = guard.thenBlock()->getTerminator();
    }
    Block &iteration = loop->getRegion(0).front();
    iteration.getArgument(0).replaceAllUsesWith(number);
    for (Operation &op : llvm::make_early_inc_range(iteration.without_terminator()))
      op.moveBefore(before);
    loop->erase();
  }

  // Addresses are no matter of the host, nor what it compares.
  SetVector<Value> above;
  SmallVector<Value> pending;
  getUsedValuesDefinedAbove(launch.getBody(), above);
  pending.assign(above.begin(), above.end());
  b.setInsertionPointToStart(&body);
  while (!pending.empty()) {
    Value value = pending.pop_back_val();
    Operation *definition = value.getDefiningOp();
    if (definition && (value.getType().isInteger(1) || isa<memref::ExtractAlignedPointerAsIndexOp>(definition))) {
      Operation *copy = b.clone(*definition);
      b.setInsertionPoint(copy); // what it uses comes before it
      replaceAllUsesInRegionWith(value, copy->getResult(0), launch.getBody());
      llvm::append_range(pending, copy->getOperands());
    }
  }
}
