#include "compiler/emit/gpu/Ptx.h"

#include "dialects/attn/AttnOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/IR/BasicBlock.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/IntrinsicsNVPTX.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"
#include <mutex>
#include <set>

using namespace mlir;

namespace attn {

static std::unique_ptr<llvm::TargetMachine> makeMachine(const GpuArch &arch, std::string &error) {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
  });
  llvm::Triple triple("nvptx64-nvidia-cuda");
  const llvm::Target *backend = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!backend)
    return nullptr;
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Standard;
  // Without the feature LLVM takes a PTX version that is too old, and aborts.
  return std::unique_ptr<llvm::TargetMachine>(backend->createTargetMachine(
      triple, arch.name(), "+ptx80", options, llvm::Reloc::PIC_, std::nullopt, llvm::CodeGenOptLevel::Aggressive));
}

static void optimize(llvm::Module &module, llvm::TargetMachine &machine, unsigned optLevel) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  llvm::PipelineTuningOptions tuning;
  tuning.LoopVectorization = tuning.SLPVectorization = false;
  llvm::PassBuilder builder(&machine, tuning);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  if (optLevel == 0)
    builder.buildO0DefaultPipeline(llvm::OptimizationLevel::O0).run(module, modules);
  else
    builder.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O2).run(module, modules);
}

/// The NVPTX backend ends the process at a function that it cannot select: pow,
/// and exp, log, sin and their like of f64. What it can is listed.
static LogicalResult checkFunctions(gpu::GPUModuleOp kernels) {
  static constexpr llvm::StringLiteral kKnown[] = {
      "abs",   "assume",    "bitreverse", "ceil", "copysign",   "ctlz",    "ctpop",  "cttz",    "fabs",     "floor",
      "fma",   "fmuladd",   "fshl",       "fshr", "is.fpclass", "maximum", "maxnum", "minimum", "minnum",   "rint",
      "round", "roundeven", "smax",       "smin", "sqrt",       "trunc",   "umax",   "umin",    "nearbyint"};
  // All of them, so that a user knows what a model needs.
  std::set<std::pair<const void *, std::string>> reported;
  kernels.walk([&](Operation *op) {
    StringRef name = op->getName().getStringRef();
    if (!name.consume_front("llvm.intr.") || llvm::is_contained(kKnown, name))
      return;
    if (reported.emplace(op->getLoc().getAsOpaquePointer(), name.str()).second)
      op->emitError("cannot run on the GPU: no code for the function '") << name << "'";
  });
  return success(reported.empty());
}

/// Two numbers of e4m3, bytes of an i16, as f16 by integers. Four bits of exponent and three of fraction stand in an
/// f16 for 2^-8 of what they are, below the normal numbers, too.
static llvm::Value *widenFloat8(llvm::IRBuilder<> &b, llvm::Value *pair) {
  llvm::Type *word = b.getInt32Ty(), *halves = llvm::FixedVectorType::get(b.getHalfTy(), 2);
  llvm::Value *bytes = b.CreateZExt(pair, word);
  auto both = [&](llvm::Value *x, uint32_t mask) { return b.CreateAnd(x, b.getInt32(mask | mask << 16)); };
  bytes = both(b.CreateOr(bytes, b.CreateShl(bytes, 8)), 0xff);
  llvm::Value *codes = both(bytes, 0x7f), *signs = b.CreateShl(both(bytes, 0x80), 8);
  llvm::Value *small = b.CreateBitCast(b.CreateOr(b.CreateShl(codes, 7), signs), halves);
  llvm::Value *numbers = b.CreateFMul(small, llvm::ConstantFP::get(halves, 256));
  // NaN is the code with all bits set, one less than the eighth: all ones of an f16's exponent and one of its fraction.
  llvm::Value *nans = both(b.CreateAdd(codes, b.getInt32(0x10001)), 0x80);
  nans = b.CreateSub(b.CreateShl(nans, 8), b.CreateShl(nans, 2));
  return b.CreateBitCast(b.CreateOr(b.CreateBitCast(numbers, word), nans), halves);
}

/// Writes out what an architecture before sm_90 has no instruction for. (sm_89 has it from PTX 8.1 on.)
static void expandFloat8(llvm::Module &module, const GpuArch &arch) {
  constexpr unsigned kFirstArch = 90;
  llvm::Function *convert = llvm::Intrinsic::getDeclarationIfExists(&module, llvm::Intrinsic::nvvm_e4m3x2_to_f16x2_rn);
  if (!convert || arch.number >= kFirstArch)
    return;
  for (llvm::User *user : llvm::make_early_inc_range(convert->users())) {
    auto *call = llvm::cast<llvm::CallInst>(user);
    llvm::IRBuilder<> b(call);
    call->replaceAllUsesWith(widenFloat8(b, call->getArgOperand(0)));
    call->eraseFromParent();
  }
}

FailureOr<std::string> emitPtx(ModuleOp module, const GpuArch &arch, unsigned optLevel) {
  auto kernels = module.getOps<gpu::GPUModuleOp>();
  if (kernels.empty())
    return module.emitError("has no gpu.module");
  gpu::GPUModuleOp gpuModule = *kernels.begin();
  // Nothing is linked: what is not defined here is nowhere.
  bool isSound = succeeded(checkFunctions(gpuModule));
  for (auto function : gpuModule.getOps<LLVM::LLVMFuncOp>())
    if (function.isExternal() && !function.getName().starts_with("llvm.")) {
      function.emitError("cannot run on the GPU: no code for the function '") << function.getName() << "'";
      isSound = false;
    }
  if (!isSound)
    return failure();
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> code = translateModuleToLLVMIR(gpuModule, context, "kernels");
  if (!code)
    return failure();
  std::string error;
  std::unique_ptr<llvm::TargetMachine> machine = makeMachine(arch, error);
  if (!machine)
    return module.emitError(error);
  // Kernels of another architecture's own stay as names without a body.
  for (auto kernel : gpuModule.getOps<LLVM::LLVMFuncOp>()) {
    auto only = kernel->getAttrOfType<IntegerAttr>(AttnDialect::kOnlyExactAttr);
    if (!only || (arch.exact && only.getInt() == arch.number))
      continue;
    llvm::Function *function = code->getFunction(kernel.getName());
    auto kind = function->getLinkage();
    function->deleteBody();
    function->setLinkage(kind);
    llvm::ReturnInst::Create(context, llvm::BasicBlock::Create(context, "", function));
  }
  // Instructions that LLVM does not know are those of whole warps: none may end up on a way that some lanes take.
  for (llvm::Function &function : *code)
    for (llvm::Instruction &instruction : llvm::instructions(function))
      if (auto *call = llvm::dyn_cast<llvm::CallInst>(&instruction))
        if (call->isInlineAsm())
          call->setConvergent();
  expandFloat8(*code, arch);
  code->setTargetTriple(machine->getTargetTriple());
  code->setDataLayout(machine->createDataLayout());
  optimize(*code, *machine, optLevel);
  llvm::SmallString<0> text;
  llvm::raw_svector_ostream os(text);
  llvm::legacy::PassManager passes;
  if (machine->addPassesToEmitFile(passes, os, nullptr, llvm::CodeGenFileType::AssemblyFile))
    return module.emitError("LLVM's NVPTX backend writes no PTX");
  passes.run(*code);
  return text.str().str();
}

} // namespace attn
