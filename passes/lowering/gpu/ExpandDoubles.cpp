#include "passes/Passes.h"
#include "passes/kernels/gpu/DoubleFunctions.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"

namespace attn {
#define GEN_PASS_DEF_EXPANDDOUBLESPASS
#include "passes/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {
struct ExpandDoublesPass : attn::impl::ExpandDoublesPassBase<ExpandDoublesPass> {
  void runOnOperation() override {
    SmallVector<Operation *> ops;
    getOperation().walk([&](Operation *op) {
      if (op->getNumResults() == 1 && op->getResult(0).getType().isF64() &&
          findDoubleFunction(op->getName().getStringRef()))
        ops.push_back(op);
    });
    for (Operation *op : ops) {
      OpBuilder b(op);
      Code k(b, op->getLoc());
      SmallVector<Num> operands = llvm::map_to_vector(op->getOperands(), [&](Value value) { return k.asNum(value); });
      op->getResult(0).replaceAllUsesWith(findDoubleFunction(op->getName().getStringRef())(k, operands));
      op->erase();
    }
  }
};
} // namespace
