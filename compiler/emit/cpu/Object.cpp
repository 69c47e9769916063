#include "compiler/emit/cpu/Object.h"

#include "compiler/emit/cpu/BfloatWords.h"
#include "compiler/emit/cpu/CodePasses.h"
#include "compiler/emit/cpu/SingleLaneStores.h"
#include "compiler/emit/cpu/StackUse.h"
#include "compiler/emit/cpu/SteppedMultiples.h"
#include "llvm/IR/Module.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"

namespace attn {

/// What pays off at -O3 for code that arrives inlined and as vectors, in loops that are unrolled as their builders want
/// them: half the time of LLVM's own pipeline, for the same inner loops.
static constexpr llvm::StringLiteral kVectorCode =
    "inferattrs,function("
    "sroa,simplifycfg,instcombine<no-verify-fixpoint>,early-cse,"
    "loop-mssa(loop-rotate,licm<allowspeculation>,simple-loop-unswitch),"
    "simplifycfg,instcombine<no-verify-fixpoint>,loop(loop-idiom,loop-deletion),"
    "gvn,loop-mssa(licm<allowspeculation>),early-cse,"
    "simplifycfg<no-keep-loops;hoist-common-insts;sink-common-insts>,loop-simplify),globaldce,constmerge";

llvm::StringRef passesOfVectorCode() { return kVectorCode; }

static llvm::OptimizationLevel levelOf(unsigned optLevel) {
  switch (optLevel) {
  case 0:
    return llvm::OptimizationLevel::O0;
  case 1:
    return llvm::OptimizationLevel::O1;
  case 2:
    return llvm::OptimizationLevel::O2;
  default:
    return llvm::OptimizationLevel::O3;
  }
}

bool optimizeModule(llvm::Module &module, llvm::TargetMachine &machine, TargetAttr target, unsigned optLevel,
                    const llvm::StringSet<> &shared, std::string &error) {
  module.setTargetTriple(machine.getTargetTriple());
  module.setDataLayout(machine.createDataLayout());
  std::string width = std::to_string(target.getF32Lanes() * 32);
  for (llvm::Function &function : module) {
    bool isShared = shared.contains(function.getName());
    if (function.isDeclaration() && !isShared)
      continue;
    if (function.getName() != "attnrt_library_query") {
      // One name of a kind: LLVM ascribes a meaning to some, such as "main".
      function.setName("attn." + function.getName());
      if (isShared)
        function.setVisibility(llvm::GlobalValue::HiddenVisibility);
      else
        function.setLinkage(llvm::GlobalValue::InternalLinkage);
    }
    if (function.isDeclaration())
      continue;
    function.addFnAttr("target-cpu", target.getCpu());
    function.addFnAttr("target-features", target.getFeatures());
    function.addFnAttr("prefer-vector-width", width);
    function.addFnAttr("min-legal-vector-width", width);
    function.addFnAttr(llvm::Attribute::NoUnwind);
    // A frame larger than a page must not step over the guard page of a small stack.
    function.addFnAttr("probe-stack", "inline-asm");
    // A task is called where it is not worth the threads, once: a second copy of
    // its loops would be compiled for nothing.
    if (function.hasLocalLinkage() && function.hasAddressTaken())
      function.addFnAttr(llvm::Attribute::NoInline);
  }
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  llvm::PipelineTuningOptions tuning;
  tuning.LoopVectorization = tuning.SLPVectorization = tuning.LoopInterleaving = tuning.LoopUnrolling = false;
  llvm::PassBuilder builder(&machine, tuning);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  llvm::OptimizationLevel level = levelOf(optLevel);
  llvm::ModulePassManager passes;
  if (level == llvm::OptimizationLevel::O0)
    passes = builder.buildO0DefaultPipeline(level);
  else if (level != llvm::OptimizationLevel::O3)
    passes = builder.buildPerModuleDefaultPipeline(level);
  else if (llvm::Error wrong = builder.parsePassPipeline(passes, kVectorCode)) {
    error = "internal error: LLVM's passes: " + llvm::toString(std::move(wrong));
    return false;
  }
  passes.run(module, modules);
  if (level == llvm::OptimizationLevel::O3)
    stepMultiples(module);
  storeSingleLanes(module);
  if (!target.getFeatures().contains("+avx512bf16"))
    moveBfloatAsWords(module);
  return true;
}

bool emitObject(llvm::Module &module, llvm::TargetMachine &machine, unsigned optLevel, Object &object,
                std::string &error) {
  StackUse stack(module);
  llvm::raw_svector_ostream os(object.bytes);
  llvm::legacy::PassManager all;
  CodePasses some;
  llvm::legacy::PassManager &passes = optLevel > 2 ? some : all;
  if (machine.addPassesToEmitFile(passes, os, nullptr, llvm::CodeGenFileType::ObjectFile, /*DisableVerify=*/true)) {
    error = "LLVM's " + machine.getTargetTriple().str() + " backend writes no object files";
    return false;
  }
  passes.run(module);
  object.stackSize = stack.deepest();
  return true;
}

} // namespace attn
