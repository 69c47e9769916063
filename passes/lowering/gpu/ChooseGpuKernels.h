#ifndef PASSES_LOWERING_GPU_CHOOSEGPUKERNELS_H
#define PASSES_LOWERING_GPU_CHOOSEGPUKERNELS_H

#include "mlir/Pass/Pass.h"

namespace attn {

/// attn-choose-gpu-rows and attn-choose-gpu-gemms with operands of products
/// rounded to `precision` (f32, tf32, bf16, f16) and multiplied by matrix units;
/// attention has bf16 and f16, else it stays f32.
std::unique_ptr<mlir::Pass> createChooseGpuRowsPass(llvm::StringRef precision);
std::unique_ptr<mlir::Pass> createChooseGpuGemmsPass(llvm::StringRef precision);

} // namespace attn

#endif // PASSES_LOWERING_GPU_CHOOSEGPUKERNELS_H
