#ifndef PASSES_LOWERING_GPU_CHOOSEGPUKERNELS_H
#define PASSES_LOWERING_GPU_CHOOSEGPUKERNELS_H

#include "mlir/Pass/Pass.h"
#include "passes/lowering/cpu/KernelCall.h"

namespace attn {

/// attn-choose-gpu-rows and attn-choose-gpu-gemms with operands of products
/// rounded to `precision` (f32, tf32, bf16, f16) and multiplied by matrix units;
/// what has no such form stays f32. `sm90a`: whether kernels for images
/// of sm_90a alone are made: "none", "also" beside the others, "only" in their place.
std::unique_ptr<mlir::Pass> createChooseGpuRowsPass(llvm::StringRef precision, llvm::StringRef sm90a);
std::unique_ptr<mlir::Pass> createChooseGpuGemmsPass(llvm::StringRef precision, llvm::StringRef sm90a);

/// The part of attn-choose-gpu-rows that is for recurrent layers: one launch for
/// all steps. In f32, whatever the precision: rounding would add up over the steps.
/// A remark of `category` says why another layer stays, to be decomposed.
void chooseGpuRecurrent(mlir::ModuleOp module, KernelTable &kernels, llvm::StringRef category);

} // namespace attn

#endif // PASSES_LOWERING_GPU_CHOOSEGPUKERNELS_H
