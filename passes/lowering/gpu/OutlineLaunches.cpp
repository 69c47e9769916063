#include "dialects/attn/DeviceOps.h"
#include "passes/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/GPU/Utils/GPUUtils.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/ViewLikeInterface.h"
#include "mlir/Transforms/RegionUtils.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringMap.h"

namespace attn {
#define GEN_PASS_DEF_OUTLINELAUNCHESPASS
#include "passes/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {
/// Whether `op` can move into a kernel, so that it isn't an argument. A table
/// of constants must: on the host it is in the host's memory.
bool movesIn(Operation *op) {
  if (op->hasTrait<OpTrait::ConstantLike>() || isa<memref::GetGlobalOp>(op))
    return true;
  auto view = dyn_cast<ViewLikeOpInterface>(op);
  return view && view.getViewSource().getDefiningOp() && movesIn(view.getViewSource().getDefiningOp());
}

/// No kernel takes a bit: it comes as a word.
void passBitsAsWords(gpu::LaunchOp launch) {
  SetVector<Value> above;
  getUsedValuesDefinedAbove(launch.getBody(), above);
  OpBuilder outside(launch), inside = OpBuilder::atBlockBegin(&launch.getBody().front());
  for (Value value : above) {
    if (!value.getType().isInteger(1))
      continue;
    Value word = arith::ExtUIOp::create(outside, launch.getLoc(), outside.getI64Type(), value);
    Value bit = arith::TruncIOp::create(inside, launch.getLoc(), value.getType(), word);
    replaceAllUsesInRegionWith(value, bit, launch.getBody());
  }
}

struct OutlineLaunchesPass : attn::impl::OutlineLaunchesPassBase<OutlineLaunchesPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    OpBuilder b(module.getBodyRegion());
    b.setInsertionPointToEnd(module.getBody());
    auto kernels = gpu::GPUModuleOp::create(b, module.getLoc(), "kernels");
    SymbolTable symbols(kernels);
    SmallVector<gpu::LaunchOp> launches;
    for (auto function : module.getOps<func::FuncOp>())
      function.walk([&](gpu::LaunchOp launch) { launches.push_back(launch); });
    for (gpu::LaunchOp launch : launches)
      if (failed(outline(launch, kernels, symbols)))
        return signalPassFailure();
    for (auto &[name, global] : tables)
      symbols.insert(global);
    module->setAttr(gpu::GPUDialect::getContainerModuleAttrName(), b.getUnitAttr());
    module->setAttr(AttnDialect::kGpuKernelsAttr,
                    b.getStrArrayAttr(SmallVector<StringRef>(names.begin(), names.end())));
  }

  LogicalResult outline(gpu::LaunchOp launch, gpu::GPUModuleOp module, SymbolTable &symbols) {
    if (failed(sinkOperationsIntoLaunchOp(launch, movesIn)))
      return launch.emitError("a kernel cannot be outlined");
    passBitsAsWords(launch);
    auto kind = launch->getAttrOfType<StringAttr>(kKernelNameAttr);
    std::string name = (kind ? kind.str() : "kernel") + "_" + std::to_string(names.size());
    SmallVector<Value> operands;
    gpu::GPUFuncOp kernel = outlineKernelFunc(launch, name, operands);
    // Vector accesses and copies of 16 bytes need it.
    for (unsigned n = 0; n < kernel.getNumWorkgroupAttributions(); ++n)
      kernel.setWorkgroupAttributionAttr(n, LLVM::LLVMDialect::getAlignAttrName(),
                                         Builder(&getContext()).getI64IntegerAttr(16));
    for (StringRef key :
         {StringRef(AttnDialect::kOnlyExactAttr), StringRef(kCooperativeAttr), StringRef(kResidentBlocksAttr)})
      if (Attribute value = launch->getAttr(key))
        kernel->setAttr(key, value);
    kernel.walk([&](memref::GetGlobalOp op) {
      memref::GlobalOp &table = tables[op.getName()];
      if (!table)
        table = cast<memref::GlobalOp>(SymbolTable::lookupNearestSymbolFrom(launch, op.getNameAttr())->clone());
    });
    // Equal kernels are compiled once.
    std::string text;
    llvm::raw_string_ostream os(text);
    kernel.setName("kernel");
    kernel->print(os, OpPrintingFlags().useLocalScope());
    kernel.setName(name);
    auto [known, isNew] = byText.try_emplace(text, names.size());
    if (isNew) {
      names.push_back(name);
      symbols.insert(kernel);
    } else {
      kernel.erase();
    }
    OpBuilder b(launch);
    auto callee =
        SymbolRefAttr::get(module.getNameAttr(), {FlatSymbolRefAttr::get(&getContext(), names[known->second])});
    auto call = gpu::LaunchFuncOp::create(b, launch.getLoc(), callee, launch.getGridSizeOperandValues(),
                                          launch.getBlockSizeOperandValues(), launch.getDynamicSharedMemorySize(),
                                          operands, Type());
    if (Attribute cooperative = launch->getAttr(kCooperativeAttr))
      call->setAttr(kCooperativeAttr, cooperative);
    launch.erase();
    return success();
  }

  SmallVector<std::string> names;
  llvm::StringMap<size_t> byText;
  llvm::MapVector<StringRef, memref::GlobalOp> tables;
};
} // namespace
