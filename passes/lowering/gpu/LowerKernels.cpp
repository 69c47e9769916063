#include "dialects/attn/DeviceOps.h"
#include "passes/Passes.h"

#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/GPUToNVVM/GPUToNVVMPass.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/MemRefToLLVM/MemRefToLLVM.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVM.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Transforms/DialectConversion.h"
#include "llvm/ADT/StringSet.h"

namespace attn {
#define GEN_PASS_DEF_LOWERKERNELSPASS
#include "passes/Passes.h.inc"
} // namespace attn

using namespace mlir;

namespace {
struct LowerKernelsPass : attn::impl::LowerKernelsPassBase<LowerKernelsPass> {
  void runOnOperation() override {
    llvm::StringSet<> shared; // kernels with memory of a block
    for (auto kernel : getOperation().getOps<gpu::GPUFuncOp>())
      if (kernel.getNumWorkgroupAttributions())
        shared.insert(kernel.getName());
    LowerToLLVMOptions options(&getContext());
    LLVMTypeConverter types(&getContext(), options);
    configureGpuToNVVMTypeConverter(types);
    RewritePatternSet patterns(&getContext());
    arith::populateArithToLLVMConversionPatterns(types, patterns);
    cf::populateControlFlowToLLVMConversionPatterns(types, patterns);
    populateFinalizeMemRefToLLVMConversionPatterns(types, patterns);
    populateGpuToNVVMConversionPatterns(types, patterns);
    populateVectorToLLVMConversionPatterns(types, patterns);
    constexpr unsigned kBeforeLibDevice = 10;
    populateMathToLLVMConversionPatterns(types, patterns, /*approximateLog1p=*/true, kBeforeLibDevice);
    ConversionTarget target(getContext());
    target.addLegalDialect<LLVM::LLVMDialect, NVVM::NVVMDialect>();
    target.addLegalOp<gpu::GPUModuleOp, UnrealizedConversionCastOp>();
    if (failed(applyPartialConversion(getOperation(), target, std::move(patterns))))
      return signalPassFailure();
    // Without it ptxas ignores setmaxnreg, and keeps to as many registers as let further blocks run on a processor,
    // as their shared memory would: it spills for the sake of blocks that products and attention don't need.
    for (auto kernel : getOperation().getOps<LLVM::LLVMFuncOp>()) {
      bool isForBlocks = kernel->hasAttr(attn::AttnDialect::kOnlyExactAttr) ||
                         kernel->hasAttr(attn::kCooperativeAttr) || shared.contains(kernel.getName());
      if (isForBlocks)
        kernel->setAttr(NVVM::NVVMDialect::getMinctasmAttrName(), Builder(&getContext()).getI32IntegerAttr(1));
    }
  }
};
} // namespace
