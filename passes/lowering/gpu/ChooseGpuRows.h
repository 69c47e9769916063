#ifndef PASSES_LOWERING_GPU_CHOOSEGPUROWS_H
#define PASSES_LOWERING_GPU_CHOOSEGPUROWS_H

#include "mlir/Pass/Pass.h"
#include "passes/lowering/choose/KernelCall.h"

namespace attn {

/// The part of attn-choose-gpu-rows that is for recurrent layers: one launch for
/// all steps. In f32, whatever the precision: rounding would add up over the steps.
/// A remark of `category` says why another layer stays, to be decomposed.
void chooseGpuRecurrent(mlir::ModuleOp module, KernelTable &kernels, llvm::StringRef category);

/// The part that is for matrices stored in blocks: up to eight rows are multiplied by the codes as they are unpacked;
/// for more of them the matrix is written out in f32, for attn-choose-gpu-gemms. The host chooses where the run tells
/// how many.
void chooseGpuBlocks(mlir::ModuleOp module, KernelTable &kernels, llvm::StringRef category);

/// The part that is for products of integers, with the elementwise op behind each.
void chooseGpuProducts(mlir::ModuleOp module, llvm::StringRef category);

/// The part that is for the extremes of a tensor, and the greatest |x| of rows, of f32: what numbers are rounded to
/// bytes by.
void chooseGpuExtremes(mlir::ModuleOp module, KernelTable &kernels);
/// The part that is for weights in e4m3 whose columns have a scale each: products read their bytes (f8E4M3FN), by
/// attn-choose-gpu-gemms, and the scale comes behind the sum.
void chooseGpuFloat8(mlir::ModuleOp module, llvm::StringRef category);

} // namespace attn

#endif // PASSES_LOWERING_GPU_CHOOSEGPUROWS_H
