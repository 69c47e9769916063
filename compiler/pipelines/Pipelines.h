#ifndef COMPILER_PIPELINES_PIPELINES_H
#define COMPILER_PIPELINES_PIPELINES_H

#include "dialects/attn/AttnOps.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"

namespace mlir {
class OpPassManager;
} // namespace mlir

namespace attn {

// The order of passes, and nothing else. In sequence: an imported module to
// canonical attn and linalg on tensors (buildGraphPipeline of passes/graph), to
// kernels and linalg on tensors, to buffers, to loops and tasks, and, with
// every used weight in its place (attn.offset), to the LLVM dialect.

/// Searches to loops, before all else.
void buildSearchPipeline(mlir::OpPassManager &pm, bool forGpu = false);
/// Kernels for what has one, linalg for the rest; at `optLevel` 0 linalg only.
/// A pass for whose argument `wants` is false is left out.
/// `weights` and `precision` are those of CompileOptions.
void buildKernelPipeline(mlir::OpPassManager &pm, unsigned optLevel, llvm::StringRef weights = "f32",
                         llvm::StringRef precision = "f32", llvm::function_ref<bool(llvm::StringRef)> wants = nullptr);
/// Whether the target has the products that `precision` cannot do without.
bool hasProducts(TargetAttr target, llvm::StringRef precision);
/// Entries on tensors to entries on buffers, all from one workspace.
void buildBufferPipeline(mlir::OpPassManager &pm);
/// linalg on buffers to vector loops, parallel loops to tasks.
void buildLoopPipeline(mlir::OpPassManager &pm, bool marksRegions = false);
/// Kernels for what has one on a GPU, linalg for the rest. `sm90a`: as attn-choose-gpu-rows has it.
void buildGpuKernelPipeline(mlir::OpPassManager &pm, unsigned optLevel, llvm::StringRef precision = "f32",
                            llvm::StringRef sm90a = "none", llvm::function_ref<bool(llvm::StringRef)> wants = nullptr);
/// Instead of buildLoopPipeline: linalg on buffers to launches, and the kernels
/// into a gpu.module beside the entries.
void buildLaunchPipeline(mlir::OpPassManager &pm, bool allowHostOps);
/// A module with that gpu.module alone to the LLVM and NVVM dialects.
void buildDevicePipeline(mlir::OpPassManager &pm);
/// To the LLVM dialect; the functions get the signatures of attnrt/abi.h.
void buildLlvmPipeline(mlir::OpPassManager &pm);

} // namespace attn

#endif // COMPILER_PIPELINES_PIPELINES_H
