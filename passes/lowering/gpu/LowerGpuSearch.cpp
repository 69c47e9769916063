#include "passes/Passes.h"
#include "passes/kernels/gpu/Search.h"
#include "passes/lowering/search/SearchLoop.h"

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
#define GEN_PASS_DEF_LOWERGPUSEARCHPASS
#include "passes/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {
class GpuSearchKernels : public SearchKernels {
  bool showsTokens() const override { return false; }
  bool labelsRows() const override { return true; }
  void adapt(SearchKernelSpec &spec) const override { spec.hasVectors = false; }
  func::FuncOp rows(OpBuilder &b, StringRef symbol, const SearchKernelSpec &spec) const override {
    return buildGpuSearchRows(b, b.getUnknownLoc(), symbol, spec);
  }
  func::FuncOp sample(OpBuilder &b, StringRef symbol, const SearchKernelSpec &spec) const override {
    return buildGpuSearchSample(b, b.getUnknownLoc(), symbol, spec);
  }
  func::FuncOp move(OpBuilder &b, StringRef symbol, const SearchMoveSpec &spec) const override {
    constexpr int64_t kThreads = 128;
    SearchMoveSpec shared = spec;
    shared.threads = kThreads;
    func::FuncOp function = buildSearchMove(b, symbol, shared);
    launchSearchKernel(function, kThreads, /*perBlock=*/true);
    return function;
  }
  func::FuncOp ctc(OpBuilder &b, StringRef symbol, const CtcKernelSpec &spec) const override {
    if (!spec.width)
      return buildGpuCtcGreedy(b, b.getUnknownLoc(), symbol, spec);
    CtcKernelSpec alone = spec;
    alone.hasVectors = false;
    return buildCtc(b, symbol, alone);
  }
  void finish(func::FuncOp kernel) const override {
    // A beam keeps tables of an item.
    if (kernel.getOps<gpu::LaunchOp>().empty())
      launchSearchKernel(kernel, kernel.getOps<memref::AllocaOp>().empty() ? 32 : 1, /*perBlock=*/false);
  }
};

struct LowerGpuSearchPass : attn::impl::LowerGpuSearchPassBase<LowerGpuSearchPass> {
  using Base::Base;

  void runOnOperation() override {
    if (failed(lowerSearches(getOperation(), GpuSearchKernels(), traces)))
      signalPassFailure();
  }
};
} // namespace
