#include "passes/Passes.h"
#include "passes/kernels/gpu/Attention.h"
#include "passes/lowering/gpu/GpuSearchKernels.h"
#include "passes/lowering/search/NarrowCaches.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace attn {
#define GEN_PASS_DEF_NARROWGPUCACHESPASS
#include "passes/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {

std::string findObstacle(AttentionOp attention) {
  std::string reason;
  if (canBuildGpuAttention(AttentionSpec::get(attention, TargetAttr::lookup(attention)), &reason))
    return "";
  return "has no kernel: " + reason;
}

struct NarrowGpuCachesPass : attn::impl::NarrowGpuCachesPassBase<NarrowGpuCachesPass> {
  using Base::Base;

  void runOnOperation() override {
    MLIRContext *context = &getContext();
    Type element = isFloat8 ? Type(Float8E4M3FNType::get(context)) : IntegerType::get(context, 8);
    narrowCaches(getOperation(), element, GpuSearchKernels(), findObstacle, getArgument());
  }
};

} // namespace
