#include "dialects/attn/AttnOps.h"
#include "passes/Passes.h"
#include "passes/kernels/spec/KernelAttrs.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Interfaces/DataLayoutInterfaces.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/MathExtras.h"

namespace attn {
#define GEN_PASS_DEF_ASSIGNSCRATCHPASS
#include "passes/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {
constexpr int64_t kLeastInScratch = 1024, kAlignment = 64;
/// Bytes of one frame. The caller's thread works on tasks, too: there a task's frame lies on top of its call's.
constexpr int64_t kMostOfTask = 8192, kMostOfCall = 4096;

/// Bytes of what can have a place; 0: nothing else than the stack serves it.
int64_t bytesOf(memref::AllocaOp alloca) {
  MemRefType type = alloca.getType();
  if (!type.hasStaticShape() || !type.getLayout().isIdentity() || alloca.getAlignment().value_or(1) > kAlignment)
    return 0;
  return type.getNumElements() * DataLayout::closest(alloca).getTypeSize(type.getElementType());
}

/// Scratch of what one function executes: those of its allocations that lie there, and their places.
struct Scratch {
  Scratch(ArrayRef<memref::AllocaOp> all, int64_t mostOnStack) {
    int64_t onStack = 0;
    for (memref::AllocaOp alloca : all)
      onStack += bytesOf(alloca);
    for (memref::AllocaOp alloca : all)
      if (int64_t size = bytesOf(alloca); onStack > mostOnStack && size >= kLeastInScratch) {
        places.emplace_back(alloca, bytes);
        bytes += llvm::alignTo(size, kAlignment);
      }
  }
  SmallVector<std::pair<memref::AllocaOp, int64_t>> places;
  int64_t bytes = 0;
};

void assign(func::FuncOp kernel) {
  Builder b(kernel);
  SmallVector<memref::AllocaOp> shared;
  llvm::MapVector<Operation *, SmallVector<memref::AllocaOp>> ofTasks; // by the outermost loop
  kernel.walk([&](memref::AllocaOp alloca) {
    scf::ParallelOp loop;
    for (auto around = alloca->getParentOfType<scf::ParallelOp>(); around;
         around = around->getParentOfType<scf::ParallelOp>())
      loop = around;
    (loop ? ofTasks[loop] : shared).push_back(alloca);
  });
  Scratch call(shared, kMostOfCall);
  for (auto [alloca, at] : call.places)
    alloca->setAttr(kScratchAttr, b.getI64IntegerAttr(at));
  int64_t taskBytes = 0;
  for (auto &[loop, allocas] : ofTasks) {
    Scratch task(allocas, kMostOfTask);
    for (auto [alloca, at] : task.places)
      alloca->setAttr(kTaskScratchAttr, b.getDenseI64ArrayAttr({at, task.bytes}));
    taskBytes = std::max(taskBytes, task.bytes);
  }
  if (call.bytes || taskBytes)
    kernel->setAttr(kScratchAttr, b.getDenseI64ArrayAttr({call.bytes, taskBytes}));
}

struct AssignScratchPass : attn::impl::AssignScratchPassBase<AssignScratchPass> {
  void runOnOperation() override {
    SmallVector<func::FuncOp> kernels;
    llvm::StringSet<> calledByKernels;
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (function->hasAttr(AttnDialect::kKernelAttr) && !function.isExternal()) {
        kernels.push_back(function);
        function.walk([&](KernelOp call) { calledByKernels.insert(call.getCallee()); });
      }
    for (func::FuncOp kernel : kernels)
      if (!calledByKernels.contains(kernel.getName()))
        assign(kernel);
  }
};
} // namespace
