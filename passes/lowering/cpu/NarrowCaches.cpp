#include "passes/lowering/search/NarrowCaches.h"
#include "passes/Passes.h"
#include "passes/kernels/spec/Attention.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/TypeUtilities.h"

namespace attn {
#define GEN_PASS_DEF_NARROWCACHESPASS
#include "passes/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {

std::string findObstacle(AttentionOp attention) {
  if (!getElementTypeOrSelf(attention.getQuery()).isF32())
    return "does not compute in f32";
  std::string reason;
  if (canBuildAttention(AttentionSpec::get(attention, TargetAttr::lookup(attention)), &reason))
    return "";
  return "has no kernel: " + reason;
}

struct NarrowCachesPass : attn::impl::NarrowCachesPassBase<NarrowCachesPass> {
  void runOnOperation() override {
    narrowCaches(getOperation(), IntegerType::get(&getContext(), 8), SearchKernels(), findObstacle, getArgument());
  }
};

} // namespace
