#include "passes/lowering/gpu/GpuSearchKernels.h"
#include "passes/kernels/gpu/Search.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;

namespace attn {

func::FuncOp GpuSearchKernels::rows(OpBuilder &b, StringRef symbol, const SearchKernelSpec &spec) const {
  return buildGpuSearchRows(b, b.getUnknownLoc(), symbol, spec);
}

func::FuncOp GpuSearchKernels::sample(OpBuilder &b, StringRef symbol, const SearchKernelSpec &spec) const {
  return buildGpuSearchSample(b, b.getUnknownLoc(), symbol, spec);
}

func::FuncOp GpuSearchKernels::move(OpBuilder &b, StringRef symbol, const SearchMoveSpec &spec) const {
  constexpr int64_t kThreads = 128;
  SearchMoveSpec shared = spec;
  shared.threads = kThreads;
  func::FuncOp function = buildSearchMove(b, symbol, shared);
  launchSearchKernel(function, kThreads, /*perBlock=*/true);
  return function;
}

func::FuncOp GpuSearchKernels::ctc(OpBuilder &b, StringRef symbol, const CtcKernelSpec &spec) const {
  if (!spec.width)
    return buildGpuCtcGreedy(b, b.getUnknownLoc(), symbol, spec);
  CtcKernelSpec alone = spec;
  alone.hasVectors = false;
  return buildCtc(b, symbol, alone);
}

void GpuSearchKernels::finish(func::FuncOp kernel) const {
  // A beam keeps tables of an item.
  if (kernel.getOps<gpu::LaunchOp>().empty())
    launchSearchKernel(kernel, kernel.getOps<memref::AllocaOp>().empty() ? 32 : 1, /*perBlock=*/false);
}

} // namespace attn
