#include "compiler/Compiler.h"
#include "compiler/KernelModules.h"
#include "compiler/Report.h"
#include "compiler/Target.h"
#include "compiler/emit/cpu/CHeader.h"
#include "compiler/emit/cpu/LibraryTable.h"
#include "compiler/emit/cpu/Object.h"
#include "compiler/emit/cpu/ObjectJobs.h"
#include "compiler/emit/cpu/Target.h"
#include "compiler/package/LibraryFile.h"
#include "compiler/package/WeightPlan.h"
#include "compiler/pipelines/Pipelines.h"
#include "dialects/attn/CacheOps.h"
#include "passes/graph/attention/Formula.h"
#include "runtime/include/attnrt/abi.h"

#include "mlir/Pass/PassManager.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Linker/Linker.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;

namespace attn {
namespace {

constexpr char kCompilerName[] = "attnc " ATTNC_VERSION " (LLVM " LLVM_VERSION_STRING ")";

/// Whether upstream's bufferisation says that two values need one place.
bool isPlaceConflict(StringRef message) {
  return message.contains("not bufferizable under the given constraints") ||
         message.contains("is not equivalent to the corresponding iter bbArg");
}

/// Without LLVM's verifier, as there is none between passes.
std::unique_ptr<llvm::Module> translate(ModuleOp module, llvm::LLVMContext &context) {
  return translateModuleToLLVMIR(module, context, "attn", /*disableVerification=*/true);
}

bool isOptionalPass(StringRef argument) { return argument.starts_with("attn-") && argument != "attn-decompose"; }

class Compilation {
public:
  Compilation(OwningOpRef<ModuleOp> module, WeightStore &weights, const CompileOptions &options, StringRef outputPath,
              CompileReport &report)
      : module(std::move(module)), weights(weights), options(options), outputPath(outputPath), report(report),
        stages(options, report), machine(makeTarget(options)) {}

  LogicalResult run() {
    ModuleOp ir = *module;
    if (options.emit == EmitKind::Attn)
      return writeText([&](llvm::raw_ostream &os) { ir.print(os); });
    std::string error;
    FailureOr<TargetAttr> made = makeTarget(ir.getContext(), options.cpu, error);
    if (failed(made))
      return fail(error);
    target = *made;
    ir->setAttr(AttnDialect::kTargetAttr, target);
    if (std::string missing = machine->findMissing(target); !missing.empty()) {
      report.unsupported = true;
      return fail(missing);
    }

    machine->permit(ir);
    auto wanted = [&](StringRef argument) { return wants(argument); };
    if (options.optLevel == 0)
      noteUnrecognized(ir, 0); // before the softmaxes are dissolved
    if (failed(runPasses("graph", [&](PassManager &pm) {
          machine->buildSearchPipeline(pm, !options.exposedNodes.empty());
          GraphOptions graph = machine->graphOptions();
          graph.exactMasks = options.exactMasks, graph.weights = &weights;
          graph.exposedNodes = options.exposedNodes, graph.exposedAs = options.exposedAs;
          buildGraphPipeline(pm, options.optLevel, wanted, graph);
        })))
      return failure();
    noteUnrecognized(ir, options.optLevel);
    noteFormulas(ir);
    reportFusion(ir, report);
    if (options.emit == EmitKind::Linalg)
      return writeText([&](llvm::raw_ostream &os) { ir.print(os); });
    if (failed(runPasses("kernels", [&](PassManager &pm) { machine->buildKernelPipeline(pm, wanted); })))
      return failure();
    if (failed(findUnserved()))
      return failure();
    reportFusion(ir, report); // again: it is known now which have a kernel
    reportProducts(ir, report);
    reportCaches(ir, report);
    usesCpuFeatures = optionalCpuFeatures(ir);
    if (machine->separatesKernels())
      kernels = separateKernels(ir);
    if (failed(assignBuffers()))
      return failure();
    if (failed(machine->compileDevice(ir, stages)))
      return failure();
    if (options.emit == EmitKind::Ptx)
      return writeBytes(machine->deviceText());
    reportHostOps(ir, report);
    bool marks = options.marksRegions && machine->canMarkRegions();
    if (machine->hasLoops(report) && failed(runPasses("loops", [&](PassManager &pm) { buildLoopPipeline(pm, marks); })))
      return failure();
    if (failed(placeWeights()) || failed(runPasses("LLVM dialect", [&](PassManager &pm) { buildLlvmPipeline(pm); })))
      return failure();
    return emit();
  }

private:
  /// Rows of e4m3 are made by kernels alone, and only a GPU has such.
  LogicalResult findUnserved() {
    WalkResult found = module->walk([](NarrowRowsOp op) {
      op.emitError("no kernel of this target, and no loop, makes rows of ")
          << cast<RankedTensorType>(op.getType()).getElementType()
          << "; store them as i8, or compile for a GPU (--target=cuda)";
      return WalkResult::interrupt();
    });
    report.unsupported |= found.wasInterrupted();
    return failure(found.wasInterrupted());
  }

  /// What bufferisation refuses is said in the model's terms, at its node.
  LogicalResult assignBuffers() {
    std::optional<Location> refused;
    LogicalResult done = success();
    {
      ScopedDiagnosticHandler watch(module->getContext(), [&](Diagnostic &diagnostic) {
        std::string text = diagnostic.str();
        if (diagnostic.getSeverity() != DiagnosticSeverity::Error || !isPlaceConflict(text))
          return failure(); // the next handler's
        if (!refused)
          refused = diagnostic.getLocation();
        return success();
      });
      done = runPasses("buffers", [&](PassManager &pm) { buildBufferPipeline(pm, options.optLevel); });
    }
    if (refused && failed(done)) {
      report.unsupported = true;
      return mlir::emitError(*refused, "a value that is updated in place is still needed as it was, "
                                       "and the compiler cannot copy it here (a limit of this compiler)");
    }
    return done;
  }

  LogicalResult fail(const Twine &message) { return mlir::emitError(UnknownLoc::get(module->getContext()), message); }

  LogicalResult failOutput(const Twine &message) {
    report.outputFailed = true;
    return fail(message);
  }

  /// Whether a pass of the graph and kernel stages takes part.
  bool wants(StringRef argument) {
    if (!isOptionalPass(argument))
      return true;
    if (llvm::is_contained(options.disabledPasses, argument) || report.fusionPasses.size() >= options.maxFusionPasses)
      return false;
    report.fusionPasses.push_back(argument.str());
    return true;
  }

  TimingScope stage(StringRef name) { return stages.enter(name); }

  LogicalResult runPasses(StringRef name, llvm::function_ref<void(PassManager &)> build) {
    return stages.runPasses(*module, name, build);
  }

  /// Gives each weight that the code still uses its place, and the code the
  /// place's offset.
  LogicalResult placeWeights() {
    TimingScope scope = stage("weights");
    SmallVector<StringRef> used;
    module->walk([&](WeightOp op) { used.push_back(op.getGlobal()); });
    FailureOr<WeightPlan> made = WeightPlan::create(*module, used, weights);
    if (failed(made))
      return failure();
    plan = std::move(*made);
    Builder b(module->getContext());
    for (GlobalOp global : module->getOps<GlobalOp>())
      if (std::optional<uint64_t> offset = plan.offsetOf(global.getSymName()))
        global->setAttr(AttnDialect::kOffsetAttr, b.getI64IntegerAttr(*offset));
    return success();
  }

  LogicalResult emit() {
    FailureOr<LibraryDescription> library = describeLibrary();
    if (failed(library))
      return failure();
    // LLVM IR knows no weights: their expressions live on in a module of their own.
    globals = ModuleOp::create(module->getLoc());
    for (GlobalOp global : llvm::make_early_inc_range(module->getOps<GlobalOp>()))
      global->moveBefore(globals->getBody(), globals->getBody()->end());

    for (const KernelModule &kernel : kernels)
      sharedFunctions.insert(kernel.name);
    if (options.emit == EmitKind::Llvm) {
      TimingScope scope = stage("LLVM IR");
      if (!emitModules(*library, scope, [&](MakeModule make) { return addText(make(context)); }))
        return failure();
      return writeText([&](llvm::raw_ostream &os) { text->print(os, nullptr); });
    }
    std::string error;
    std::vector<Object> made;
    {
      TimingScope scope = stage("code generation");
      unsigned level = options.quickCode ? 0 : options.optLevel;
      ObjectJobs jobs({target, level, sharedFunctions, ObjectCache(options.cacheDir, kCompilerName)}, scope);
      if (!emitModules(*library, scope, [&](MakeModule make) { return jobs.add(make); }))
        return failure();
      if (!jobs.finish(made, error))
        return fail(error);
    }
    // The entries come first, and kernels call none of each other.
    uint64_t stackSize = 0;
    std::vector<ObjectBytes> objects;
    for (Object &object : llvm::drop_begin(made))
      stackSize = std::max(stackSize, object.stackSize);
    stackSize += made.front().stackSize;
    for (Object &object : made)
      objects.push_back(std::move(object.bytes));
    ObjectBytes linked;
    {
      TimingScope scope = stage("linking");
      auto link = options.emit == EmitKind::Obj ? joinObjects : linkLibrary;
      if (!link(objects, linked, error))
        return fail(error);
    }
    return options.emit == EmitKind::Obj ? writeBytes(linked) : writeLibrary(linked, stackSize, library->neededAbi);
  }

  using MakeModule = llvm::function_ref<std::unique_ptr<llvm::Module>(llvm::LLVMContext &)>;

  /// Hands the LLVM IR of the entries, with the library's description, and that of each kernel to `add`. The kernels
  /// were set aside when they were built, at the level of loops.
  bool emitModules(const LibraryDescription &library, TimingScope &timing, llvm::function_ref<bool(MakeModule)> add) {
    auto entries = [&](llvm::LLVMContext &own) {
      std::unique_ptr<llvm::Module> code = translate(*module, own);
      if (code)
        emitLibraryTable(*code, library);
      return code;
    };
    if (!add(entries))
      return false;
    if (kernels.empty())
      return true;
    TimingScope scope = timing.nest("kernels");
    PassManager pm(module->getContext());
    buildKernelCodePipeline(pm);
    stages.watch(pm, scope, /*isReproduced=*/false);
    for (KernelModule &kernel : kernels) {
      if (failed(pm.run(*kernel.module)) ||
          !add([&](llvm::LLVMContext &own) { return translate(*kernel.module, own); }))
        return false;
      kernel.module = nullptr;
    }
    return true;
  }

  /// Adds optimised `code` to what --emit=llvm prints.
  bool addText(std::unique_ptr<llvm::Module> code) {
    std::string error;
    if (!code)
      return false;
    std::unique_ptr<llvm::TargetMachine> machine = makeTargetMachine(target, options.optLevel, error);
    if (!machine || !optimizeModule(*code, *machine, target, options.optLevel, sharedFunctions, error))
      return succeeded(fail(error));
    if (!text)
      text = std::move(code);
    else if (llvm::Linker::linkModules(*text, std::move(code)))
      return succeeded(fail("internal error: the modules of the library do not fit together"));
    return true;
  }

  FailureOr<LibraryDescription> describeLibrary() {
    FailureOr<std::vector<EntryDescription>> entries = describeEntries(*module);
    if (failed(entries))
      return failure();
    LibraryDescription library;
    library.entries = std::move(*entries);
    reportStates(library.entries, report);
    library.weights = plan.table();
    library.requiredCpuFeatures = requiredCpuFeatures(target);
    library.optionalCpuFeatures = usesCpuFeatures;
    library.target = target.getTriple().str();
    library.compilerVersion = kCompilerName;
    machine->describe(library);
    library.regions = describeRegions(*module);
    library.manifestJson = makeManifest(library, target, report.fusionJson, report.productsJson);
    report.header =
        makeCHeader(library, llvm::sys::path::stem(options.outputName.empty() ? outputPath : options.outputName));
    return library;
  }

  LogicalResult writeLibrary(ArrayRef<char> elf, uint64_t stackSize, uint32_t neededAbi) {
    TimingScope scope = stage("writing");
    std::string error;
    std::unique_ptr<LibraryFile> file = LibraryFile::create(outputPath, error, options.outputName);
    if (!file)
      return failOutput(error);
    file->append(elf);
    file->padTo(ATTNRT_PAGE_SIZE);
    uint64_t offset = file->size();
    // A failed write stops the evaluation, and the commit reports it.
    bool stopped = false;
    auto sink = [&](ArrayRef<char> bytes) { return !(stopped = !file->append(bytes)); };
    if (failed(plan.write(*globals, weights, sink, &report.narrowed)) && !stopped) {
      report.unsupported = true; // a number that a narrow type cannot hold
      return failure();
    }
    if (!file->commitLibrary(elf.size(), offset, plan.totalBytes(), stackSize, neededAbi, error))
      return failOutput(error);
    report.elfBytes = elf.size();
    report.weightBytes = plan.totalBytes();
    return success();
  }

  LogicalResult writeText(llvm::function_ref<void(llvm::raw_ostream &)> print) {
    std::string text;
    llvm::raw_string_ostream os(text);
    print(os);
    return writeBytes(ArrayRef<char>(text.data(), text.size()));
  }

  LogicalResult writeBytes(ArrayRef<char> bytes) {
    if (outputPath == "-") {
      llvm::outs().write(bytes.data(), bytes.size());
      llvm::outs().flush();
      return success();
    }
    std::string error;
    std::unique_ptr<LibraryFile> file = LibraryFile::create(outputPath, error, options.outputName);
    if (!file)
      return failOutput(error);
    file->append(bytes);
    return file->commit(error) ? success() : failOutput(error);
  }

  OwningOpRef<ModuleOp> module, globals;
  WeightStore &weights;
  const CompileOptions &options;
  std::string outputPath;
  CompileReport &report;
  Stages stages;
  std::unique_ptr<Target> machine;
  TargetAttr target; ///< the host
  std::vector<KernelModule> kernels;
  std::string usesCpuFeatures;
  llvm::StringSet<> sharedFunctions; ///< by several of `objects`
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> text; ///< all code, for EmitKind::Llvm
  WeightPlan plan;
};

} // namespace

std::unique_ptr<Target> makeTarget(const CompileOptions &options) {
  return options.gpuArchs.empty() ? makeCpuTarget(options) : makeGpuTarget(options);
}

std::vector<std::string> optionalPasses() {
  std::vector<std::string> names;
  auto note = [&](StringRef argument) {
    if (isOptionalPass(argument) && !llvm::is_contained(names, argument))
      names.push_back(argument.str());
    return false;
  };
  OpPassManager unused(ModuleOp::getOperationName());
  buildGraphPipeline(unused, /*optLevel=*/3, note);
  CompileOptions options;
  makeCpuTarget(options)->buildKernelPipeline(unused, note);
  return names;
}

LogicalResult compileModule(OwningOpRef<ModuleOp> module, WeightStore &weights, const CompileOptions &options,
                            StringRef outputPath, CompileReport *report) {
  CompileReport unread;
  return Compilation(std::move(module), weights, options, outputPath, report ? *report : unread).run();
}

} // namespace attn
