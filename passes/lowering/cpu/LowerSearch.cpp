#include "dialects/attn/SearchOp.h"
#include "passes/Passes.h"
#include "passes/lowering/cpu/SearchLoop.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace attn {
#define GEN_PASS_DEF_LOWERSEARCHPASS
#include "passes/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {
struct LowerSearchPass : attn::impl::LowerSearchPassBase<LowerSearchPass> {
  using LowerSearchPassBase::LowerSearchPassBase;

  void getDependentDialects(DialectRegistry &registry) const override {
    LowerSearchPassBase::getDependentDialects(registry);
    registry.insert<NVVM::NVVMDialect>(); // of kernels for a GPU
  }

  void runOnOperation() override {
    SmallVector<SearchOp> searches;
    getOperation().walk([&](SearchOp op) { searches.push_back(op); });
    KernelTable kernels(getOperation());
    for (SearchOp op : searches)
      if (failed(SearchLoop(op, kernels, gpu).run()))
        return signalPassFailure();
    SmallVector<CtcSearchOp> labellings;
    getOperation().walk([&](CtcSearchOp op) { labellings.push_back(op); });
    for (CtcSearchOp op : labellings)
      if (failed(lowerCtcSearch(op, kernels, gpu)))
        return signalPassFailure();
  }
};
} // namespace
