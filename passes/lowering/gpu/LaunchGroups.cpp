#include "passes/lowering/gpu/LaunchGroups.h"
#include "dialects/attn/AttnOps.h"
#include "dialects/attn/CacheOps.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Interfaces/ValueBoundsOpInterface.h"
#include "mlir/Interfaces/ViewLikeInterface.h"

using namespace mlir;

namespace attn {
namespace {

/// What `buffer` is a view of, the views between, and itself.
SmallVector<Value> originsOf(Value buffer) {
  SmallVector<Value> chain{buffer};
  while (auto view = chain.back().getDefiningOp<ViewLikeOpInterface>())
    chain.push_back(view.getViewSource());
  std::reverse(chain.begin(), chain.end());
  return chain;
}

/// Whether `buffer`, no view, is memory of its own: another value of this kind is other memory.
bool isOwnMemory(Value buffer) {
  if (auto argument = dyn_cast<BlockArgument>(buffer))
    return isa<func::FuncOp>(argument.getOwner()->getParentOp());
  return isa<memref::AllocOp, memref::GetGlobalOp, CacheOp, OutputOp, WeightOp, WorkspaceOp>(buffer.getDefiningOp());
}

std::optional<std::pair<int64_t, int64_t>> bytesOf(memref::ViewOp view) {
  std::optional<int64_t> begin = getConstantIntValue(view.getByteShift());
  MemRefType type = view.getType();
  if (!begin || !type.hasStaticShape())
    return std::nullopt;
  return std::pair(*begin, *begin + type.getNumElements() * llvm::divideCeil(type.getElementTypeBitWidth(), 8));
}

/// Whether two views of one buffer have no element in common.
bool areApart(Operation *x, Operation *y) {
  auto xView = dyn_cast<memref::ViewOp>(x), yView = dyn_cast<memref::ViewOp>(y);
  if (xView && yView) {
    auto xBytes = bytesOf(xView), yBytes = bytesOf(yView);
    return xBytes && yBytes && (xBytes->second <= yBytes->first || yBytes->second <= xBytes->first);
  }
  auto xPart = dyn_cast<memref::SubViewOp>(x), yPart = dyn_cast<memref::SubViewOp>(y);
  if (!xPart || !yPart)
    return false;
  FailureOr<bool> overlap = ValueBoundsConstraintSet::areOverlappingSlices(
      x->getContext(), HyperrectangularSlice(xPart), HyperrectangularSlice(yPart));
  return succeeded(overlap) && !*overlap;
}

bool mayOverlap(Value x, Value y) {
  SmallVector<Value> xs = originsOf(x), ys = originsOf(y);
  auto xState = xs[0].getDefiningOp<CacheOp>(), yState = ys[0].getDefiningOp<CacheOp>();
  if (xState && yState && xState != yState)
    return xState.getState() == yState.getState();
  if (xs[0] != ys[0])
    return !isOwnMemory(xs[0]) || !isOwnMemory(ys[0]);
  for (size_t n = 1; n < std::min(xs.size(), ys.size()); ++n)
    if (xs[n] != ys[n])
      return !areApart(xs[n].getDefiningOp(), ys[n].getDefiningOp());
  return true;
}

/// Of buffers, in a body that touches no other memory.
bool canJoin(linalg::LinalgOp op) {
  return llvm::all_of(op.getBlock()->without_terminator(), [](Operation &each) { return isMemoryEffectFree(&each); });
}

bool dependOnEachOther(linalg::LinalgOp x, linalg::LinalgOp y) {
  auto writes = [](linalg::LinalgOp writer, linalg::LinalgOp other) {
    for (Value init : writer.getDpsInits())
      for (Value operand : other->getOperands())
        if (isa<MemRefType>(operand.getType()) && mayOverlap(init, operand))
          return true;
    return false;
  };
  return writes(x, y) || writes(y, x);
}

/// What may stand between the ops of a group.
bool hasNoEffect(Operation *op) {
  auto effects = dyn_cast<MemoryEffectOpInterface>(op);
  return isMemoryEffectFree(op) || isa<CacheOp, OutputOp, WorkspaceOp>(op) ||
         (effects && effects.onlyHasEffect<MemoryEffects::Allocate>());
}

} // namespace

SmallVector<SmallVector<linalg::LinalgOp>> groupLaunches(func::FuncOp function) {
  constexpr size_t kMostOperands = 24; // a kernel's parameters have 4 KiB, and a buffer with open sizes takes 88 bytes
  SmallVector<SmallVector<linalg::LinalgOp>> groups;
  function.walk<WalkOrder::PreOrder>([&](Block *block) {
    bool isOpen = false;
    size_t operands = 0;
    for (Operation &each : *block) {
      auto op = dyn_cast<linalg::LinalgOp>(each);
      if (!op) {
        isOpen &= hasNoEffect(&each);
        continue;
      }
      bool joins = isOpen && canJoin(op) && operands + op->getNumOperands() <= kMostOperands &&
                   llvm::none_of(groups.back(), [&](linalg::LinalgOp other) { return dependOnEachOther(op, other); });
      if (!joins) {
        groups.emplace_back();
        operands = 0;
      }
      groups.back().push_back(op);
      operands += op->getNumOperands();
      isOpen = canJoin(op);
    }
  });
  return groups;
}

} // namespace attn
