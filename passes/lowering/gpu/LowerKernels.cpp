#include "dialects/attn/DeviceOps.h"
#include "passes/Passes.h"
#include "passes/lowering/buffers/KernelParameters.h"

#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/GPUToNVVM/GPUToNVVMPass.h"
#include "mlir/Conversion/LLVMCommon/Pattern.h"
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

/// Of the arguments that the conversion makes of a buffer, its whole descriptor, those stay that `openFields` names;
/// the others follow from them and from the buffer's type.
void dropKnownFields(LLVM::LLVMFuncOp kernel, TypeRange types) {
  OpBuilder b = OpBuilder::atBlockBegin(&kernel.getBody().front());
  Location loc = kernel.getLoc();
  auto constant = [&](int64_t value) -> Value { return LLVM::ConstantOp::create(b, loc, b.getI64IntegerAttr(value)); };
  llvm::BitVector known(kernel.getNumArguments());
  unsigned at = 0;
  auto replace = [&](unsigned field, Value value) {
    kernel.getArgument(at + field).replaceAllUsesWith(value);
    known.set(at + field);
  };
  for (Type type : types) {
    auto memref = dyn_cast<MemRefType>(type);
    if (!memref) {
      ++at;
      continue;
    }
    unsigned rank = memref.getRank();
    auto [strides, offset] = memref.getStridesAndOffset();
    bool isDense = memref.getLayout().isIdentity();
    replace(0, kernel.getArgument(at + 1));
    // An offset that is known in the run alone is part of the address already.
    replace(2, constant(ShapedType::isDynamic(offset) ? 0 : offset));
    Value stride = constant(1);
    for (unsigned dim = rank; dim-- > 0;) {
      Value size = kernel.getArgument(at + 3 + dim);
      if (!memref.isDynamicDim(dim))
        replace(3 + dim, size = constant(memref.getDimSize(dim)));
      if (!ShapedType::isDynamic(strides[dim]))
        replace(3 + rank + dim, constant(strides[dim]));
      else if (isDense)
        replace(3 + rank + dim, stride);
      if (isDense && dim)
        stride = LLVM::MulOp::create(b, loc, stride, size);
    }
    at += 3 + 2 * rank;
  }
  kernel.getBody().front().eraseArguments(known);
  // LLVMFuncOp::eraseArguments does not know functions without a result.
  auto left = llvm::to_vector(kernel.getBody().front().getArgumentTypes());
  kernel.setFunctionType(LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(b.getContext()), left));
}

/// Maps of tiles stay where the launch has put them: their address is what copies take.
void placeMaps(LLVM::LLVMFuncOp kernel) {
  Builder b(kernel.getContext());
  SmallVector<BlockArgument> maps = llvm::filter_to_vector(
      kernel.getArguments(), [](BlockArgument argument) { return attn::isTileMap(argument.getType()); });
  if (maps.empty())
    return;
  auto words = LLVM::LLVMArrayType::get(b.getI64Type(), attn::kTilesRoom.bytes / 8);
  for (BlockArgument map : maps)
    map.setType(LLVM::LLVMPointerType::get(kernel.getContext()));
  kernel.walk([](attn::TilesAddressOp op) {
    OpBuilder at(op);
    op.replaceAllUsesWith(LLVM::PtrToIntOp::create(at, op.getLoc(), at.getI64Type(), op.getMap()).getResult());
    op.erase();
  });
  auto types = llvm::to_vector(kernel.getBody().front().getArgumentTypes());
  kernel.setFunctionType(LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(kernel.getContext()), types));
  for (BlockArgument map : maps) {
    unsigned number = map.getArgNumber();
    kernel.setArgAttr(number, LLVM::LLVMDialect::getByValAttrName(), TypeAttr::get(words));
    kernel.setArgAttr(number, LLVM::LLVMDialect::getAlignAttrName(), b.getI64IntegerAttr(attn::kTilesRoom.alignment));
    kernel.setArgAttr(number, NVVM::NVVMDialect::getGridConstantAttrName(), b.getUnitAttr());
  }
}

LogicalResult checkParameters(LLVM::LLVMFuncOp kernel) {
  int64_t bytes = 0;
  for (Type type : kernel.getArgumentTypes()) {
    attn::ParameterRoom room = attn::roomOf(type);
    bytes = llvm::alignTo(bytes, room.alignment) + room.bytes;
  }
  if (bytes <= attn::kMaxParameterBytes)
    return success();
  return kernel.emitError("cannot run on the GPU: a kernel of ")
         << bytes << " bytes of parameters, of which there are at most " << attn::kMaxParameterBytes
         << "; split the node into several of fewer inputs";
}

/// A number of e4m3 to f32 by the instruction for two; upstream has no conversion of it.
struct WidenFloat8 : ConvertOpToLLVMPattern<arith::ExtFOp> {
  explicit WidenFloat8(const LLVMTypeConverter &types) : ConvertOpToLLVMPattern(types, /*benefit=*/2) {}

  LogicalResult matchAndRewrite(arith::ExtFOp op, OpAdaptor adaptor, ConversionPatternRewriter &b) const override {
    if (!isa<Float8E4M3FNType>(op.getIn().getType()) || !op.getType().isF32())
      return b.notifyMatchFailure(op, "it is not from e4m3 to f32");
    Location loc = op.getLoc();
    Value pair = LLVM::ZExtOp::create(b, loc, b.getI16Type(), adaptor.getIn());
    Value bytes = LLVM::BitcastOp::create(b, loc, VectorType::get({2}, b.getI8Type()), pair);
    Value halves = NVVM::ConvertF8x2ToF16x2Op::create(b, loc, VectorType::get({2}, b.getF16Type()), bytes,
                                                      /*relu=*/false, op.getIn().getType());
    Value first = LLVM::ConstantOp::create(b, loc, b.getI64IntegerAttr(0));
    Value half = LLVM::ExtractElementOp::create(b, loc, halves, first);
    b.replaceOpWithNewOp<LLVM::FPExtOp>(op, op.getType(), half);
    return success();
  }
};

struct LowerKernelsPass : attn::impl::LowerKernelsPassBase<LowerKernelsPass> {
  void runOnOperation() override {
    SmallVector<std::pair<StringAttr, SmallVector<Type>>> arguments;
    for (auto kernel : getOperation().getOps<gpu::GPUFuncOp>())
      arguments.emplace_back(kernel.getNameAttr(), llvm::to_vector(kernel.getArgumentTypes()));
    LowerToLLVMOptions options(&getContext());
    LLVMTypeConverter types(&getContext(), options);
    configureGpuToNVVMTypeConverter(types);
    RewritePatternSet patterns(&getContext());
    patterns.add<WidenFloat8>(types);
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
    for (auto &[name, types] : arguments) {
      auto kernel = cast<LLVM::LLVMFuncOp>(SymbolTable::lookupSymbolIn(getOperation(), name));
      dropKnownFields(kernel, types);
      if (failed(checkParameters(kernel)))
        return signalPassFailure();
      placeMaps(kernel);
    }
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
      // A launch for several ops compares the number of a block with few others: faster than a table of places to go
      // to.
      kernel.setPassthroughAttr(b.getArrayAttr(b.getStrArrayAttr({"no-jump-tables", "true"})));
      bool isAlone = kernel->hasAttr(attn::AttnDialect::kOnlyExactAttr) || kernel->hasAttr(attn::kCooperativeAttr);
      auto blocks = kernel->getAttrOfType<IntegerAttr>(attn::kResidentBlocksAttr);
      if (isAlone || blocks)
        kernel->setAttr(NVVM::NVVMDialect::getMinctasmAttrName(),
                        b.getI32IntegerAttr(isAlone ? 1 : static_cast<int32_t>(blocks.getInt())));
    }
  }
};
} // namespace
