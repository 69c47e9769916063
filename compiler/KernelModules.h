#ifndef COMPILER_KERNELMODULES_H
#define COMPILER_KERNELMODULES_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include <string>
#include <vector>

namespace attn {

/// A kernel by itself, in a module with the target of the one that calls it.
struct KernelModule {
  std::string name;
  mlir::OwningOpRef<mlir::ModuleOp> module;
};

/// Takes the kernels out of `module`, in order, and leaves declarations for the
/// calls. A kernel is finished when it is built, and what makes loops of tensors
/// has nothing to do in it; alone it is also lowered alike in every model.
/// Kernels whose code depends on the module (messages, weights) stay.
std::vector<KernelModule> separateKernels(mlir::ModuleOp module);

} // namespace attn

#endif // COMPILER_KERNELMODULES_H
