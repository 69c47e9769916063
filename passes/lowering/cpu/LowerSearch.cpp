#include "passes/Passes.h"
#include "passes/lowering/search/SearchLoop.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
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

namespace {
struct LowerSearchPass : attn::impl::LowerSearchPassBase<LowerSearchPass> {
  using Base::Base;

  void runOnOperation() override {
    if (failed(attn::lowerSearches(getOperation(), attn::SearchKernels(), traces)))
      signalPassFailure();
  }
};
} // namespace
