#ifndef PASSES_LOWERING_GPU_GPUKERNELCALL_H
#define PASSES_LOWERING_GPU_GPUKERNELCALL_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/PatternMatch.h"
#include "passes/kernels/gpu/Precision.h"

namespace attn {

/// A remark that `op` has no kernel, and why.
void noteMissed(mlir::Operation *op, llvm::StringRef category, llvm::StringRef name, llvm::StringRef reason);

/// Whether the ops of `block` use nothing from outside but constants, touch no memory and have code.
bool isSelfContained(mlir::Block &block);

/// The options of passes that choose kernels; false, with a diagnostic, for unknown ones.
bool readOptions(mlir::ModuleOp module, llvm::StringRef text, Precision &precision, llvm::StringRef useText,
                 Sm90a &sm90a);

/// As replaceByKernel, with `elements` f32 of scratch for the kernel: one more result, which nothing uses.
/// `sizes` are those of each result.
void replaceWithScratch(mlir::IRRewriter &rewriter, mlir::Operation *op, mlir::func::FuncOp kernel,
                        mlir::ValueRange inputs, llvm::ArrayRef<llvm::SmallVector<mlir::OpFoldResult>> sizes,
                        mlir::Value elements);

} // namespace attn

#endif // PASSES_LOWERING_GPU_GPUKERNELCALL_H
