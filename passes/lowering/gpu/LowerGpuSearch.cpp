#include "passes/Passes.h"
#include "passes/lowering/gpu/GpuSearchKernels.h"
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
struct LowerGpuSearchPass : attn::impl::LowerGpuSearchPassBase<LowerGpuSearchPass> {
  using Base::Base;

  void runOnOperation() override {
    if (failed(lowerSearches(getOperation(), GpuSearchKernels(), traces)))
      signalPassFailure();
  }
};
} // namespace
