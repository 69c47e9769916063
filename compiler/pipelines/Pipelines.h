#ifndef COMPILER_PIPELINES_PIPELINES_H
#define COMPILER_PIPELINES_PIPELINES_H

namespace mlir {
class OpPassManager;
} // namespace mlir

namespace attn {

// The order of passes, and nothing else, of what all targets share: after
// buildGraphPipeline of passes/graph and the target's kernels, an entry on
// tensors goes to buffers, to loops and tasks where the host has any, and, with
// every used weight in its place (attn.offset), to the LLVM dialect.

/// Entries on tensors to entries on buffers, all from one workspace.
void buildBufferPipeline(mlir::OpPassManager &pm, unsigned optLevel);
/// linalg on buffers to vector loops, parallel loops to tasks.
void buildLoopPipeline(mlir::OpPassManager &pm, bool marksRegions = false);
/// A module with kernels alone to the LLVM dialect.
void buildKernelCodePipeline(mlir::OpPassManager &pm);
/// To the LLVM dialect; the functions get the signatures of attnrt/abi.h.
void buildLlvmPipeline(mlir::OpPassManager &pm);

} // namespace attn

#endif // COMPILER_PIPELINES_PIPELINES_H
