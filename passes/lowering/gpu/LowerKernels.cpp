#include "dialects/attn/DeviceOps.h"
#include "passes/Passes.h"

#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/GPUToNVVM/GPUToNVVMPass.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/MemRefToLLVM/MemRefToLLVM.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVM.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Transforms/DialectConversion.h"

namespace attn {
#define GEN_PASS_DEF_LOWERKERNELSPASS
#include "passes/Passes.h.inc"
} // namespace attn

using namespace mlir;

namespace {
constexpr unsigned kSharedSpace = static_cast<unsigned>(NVVM::NVVMMemorySpace::Shared);

struct LowerKernelsPass : attn::impl::LowerKernelsPassBase<LowerKernelsPass> {
  void runOnOperation() override {
    LowerToLLVMOptions options(&getContext());
    LLVMTypeConverter types(&getContext(), options);
    configureGpuToNVVMTypeConverter(types);
    RewritePatternSet patterns(&getContext());
    arith::populateCeilFloorDivExpandOpsPatterns(patterns); // of loops that compute sizes on the device
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
    // What MLIR makes of gpu.dynamic_shared_memory is an array of its own, which could lie over a kernel's other arrays
    // and counts beside what a launch asks for; `.extern .shared x[]` is what lies behind them.
    for (auto global : getOperation().getOps<LLVM::GlobalOp>()) {
      auto type = dyn_cast<LLVM::LLVMArrayType>(global.getGlobalType());
      if (type && type.getNumElements() == 0 && global.getAddrSpace() == kSharedSpace)
        global.setLinkage(LLVM::Linkage::External);
    }
    // Without it ptxas ignores setmaxnreg, and spills for the sake of a second block that is never there.
    Builder b(&getContext());
    for (auto kernel : getOperation().getOps<LLVM::LLVMFuncOp>()) {
      bool isAlone = kernel->hasAttr(attn::AttnDialect::kOnlyExactAttr) || kernel->hasAttr(attn::kCooperativeAttr);
      auto blocks = kernel->getAttrOfType<IntegerAttr>(attn::kResidentBlocksAttr);
      if (isAlone || blocks)
        kernel->setAttr(NVVM::NVVMDialect::getMinctasmAttrName(),
                        b.getI32IntegerAttr(isAlone ? 1 : static_cast<int32_t>(blocks.getInt())));
    }
  }
};
} // namespace
