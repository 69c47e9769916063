#include "test/kernels/KernelHarness.h"

#include "compiler/emit/cpu/CodePasses.h"
#include "compiler/emit/cpu/Object.h"
#include "compiler/emit/cpu/SteppedMultiples.h"

#include "mlir/Conversion/AffineToStandard/AffineToStandard.h"
#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/ConvertToLLVM/ToLLVMPass.h"
#include "mlir/Conversion/FuncToLLVM/ConvertFuncToLLVM.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/MemRefToLLVM/MemRefToLLVM.h"
#include "mlir/Conversion/ReconcileUnrealizedCasts/ReconcileUnrealizedCasts.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Conversion/UBToLLVM/UBToLLVM.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVM.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVMPass.h"
#include "mlir/Conversion/VectorToSCF/VectorToSCF.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/MemRef/Transforms/Passes.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/UB/IR/UBOps.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Host.h"
#include "llvm/Transforms/Utils/Cloning.h"
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

using namespace mlir;

namespace attn::test {

//===----------------------------------------------------------------------===//
// Buffer
//===----------------------------------------------------------------------===//

Buffer::Buffer(std::vector<int64_t> shape, size_t elementSize) : dims(std::move(shape)) {
  for (int64_t dim : dims)
    numElements *= dim;
  numBytes = numElements * elementSize;
  size_t page = sysconf(_SC_PAGESIZE);
  // Not below one page: an empty array still has a guard in front.
  size_t inner = (numBytes + page) / page * page;
  mappedBytes = inner + 2 * page;
  void *memory = mmap(nullptr, mappedBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    llvm::report_fatal_error("test buffer: no memory");
  mapping = static_cast<char *>(memory);
  mprotect(mapping, page, PROT_NONE);
  mprotect(mapping + page + inner, page, PROT_NONE);
  bytes = mapping + page + inner - numBytes;
  std::memset(mapping + page, 0xff, inner);
}

Buffer::Buffer(Buffer &&other) noexcept
    : dims(std::move(other.dims)), numElements(other.numElements), numBytes(other.numBytes),
      mappedBytes(other.mappedBytes), mapping(std::exchange(other.mapping, nullptr)), bytes(other.bytes) {}

Buffer::~Buffer() {
  if (mapping)
    munmap(mapping, mappedBytes);
}

void Buffer::poison() { std::memset(bytes, 0xff, numBytes); }

bool Buffer::guardIntact() const {
  return std::all_of(mapping + sysconf(_SC_PAGESIZE), bytes, [](char byte) { return byte == '\xff'; });
}

//===----------------------------------------------------------------------===//
// Target
//===----------------------------------------------------------------------===//

/// Whether the operating system lets this process use the registers of AMX.
static bool mayUseTiles() {
  constexpr int kRequestPermission = 0x1023; // ARCH_REQ_XCOMP_PERM
  constexpr int kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

bool hostRuns(StringRef isa) {
  if (isa == "portable")
    return true;
  llvm::StringMap<bool> features = llvm::sys::getHostCPUFeatures();
  auto has = [&](std::initializer_list<const char *> names) {
    return llvm::all_of(names, [&](const char *name) { return features.lookup(name); });
  };
  if (isa == "avx512bf16")
    return hostRuns("avx512") && has({"avx512bf16"});
  if (isa == "amx")
    return hostRuns("avx512bf16") && has({"amx-tile", "amx-bf16"}) && mayUseTiles();
  if (isa == "avx512vnni")
    return hostRuns("avx512") && has({"avx512vnni"});
  if (isa == "amxint8")
    return hostRuns("avx512vnni") && has({"amx-tile", "amx-int8"}) && mayUseTiles();
  if (isa == "avxvnni")
    return hostRuns("avx2") && has({"avxvnni"});
  bool avx2 = has({"avx2", "fma", "f16c", "bmi", "bmi2"});
  return isa == "avx2" ? avx2 : avx2 && has({"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd"});
}

TargetAttr makeTarget(MLIRContext &context, StringRef isa) {
  auto make = [&](StringRef cpu, StringRef features, StringRef step) {
    return TargetAttr::get(&context, "x86_64-unknown-linux-gnu", cpu, features, step, 48 << 10, 1 << 20,
                           /*dividesFast=*/isa == "avx512bf16");
  };
  if (isa == "amx")
    return make("x86-64-v4", "+amx-bf16,+amx-tile,+avx512bf16,+avx512vnni,-prefer-256-bit", "avx512");
  if (isa == "avx512bf16")
    return make("x86-64-v4", "+avx512bf16,-prefer-256-bit", "avx512");
  if (isa == "amxint8")
    return make("x86-64-v4", "+amx-int8,+amx-tile,+avx512vnni,-prefer-256-bit", "avx512");
  if (isa == "avx512vnni")
    return make("x86-64-v4", "+avx512vnni,-prefer-256-bit", "avx512");
  if (isa == "avxvnni")
    return make("x86-64-v3", "+avxvnni", "avx2");
  return isa == "avx512" ? make("x86-64-v4", "-prefer-256-bit", isa)
                         : make(isa == "avx2" ? "x86-64-v3" : "x86-64", "", isa);
}

//===----------------------------------------------------------------------===//
// Lowering
//===----------------------------------------------------------------------===//

namespace {

constexpr char kTrampoline[] = "attn_test_call";

void registerDialects(DialectRegistry &registry) {
  registry.insert<AttnDialect, affine::AffineDialect, arith::ArithDialect, cf::ControlFlowDialect, func::FuncDialect,
                  linalg::LinalgDialect, LLVM::LLVMDialect, math::MathDialect, memref::MemRefDialect, scf::SCFDialect,
                  ub::UBDialect, vector::VectorDialect>();
  arith::registerConvertArithToLLVMInterface(registry);
  cf::registerConvertControlFlowToLLVMInterface(registry);
  registerConvertFuncToLLVMInterface(registry);
  registerConvertMathToLLVMInterface(registry);
  registerConvertMemRefToLLVMInterface(registry);
  ub::registerConvertUBToLLVMInterface(registry);
  vector::registerConvertVectorToLLVMInterface(registry);
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
}

/// Gives the kernel three more arguments, piece, pieces and phase, and lets its
/// top-level loop number `phase` run over that piece of its range, one iteration
/// at a time, and the others not at all. Returns the number of loops.
FailureOr<int64_t> cutParallelLoops(func::FuncOp kernel) {
  OpBuilder builder(kernel);
  Location loc = kernel.getLoc();
  unsigned position = kernel.getNumArguments();
  for (unsigned n = 0; n < 3; ++n)
    if (failed(kernel.insertArgument(position + n, builder.getIndexType(), {}, loc)))
      return failure();
  Value piece = kernel.getArgument(position), pieces = kernel.getArgument(position + 1);
  SmallVector<scf::ParallelOp> loops(kernel.getOps<scf::ParallelOp>());
  for (auto [number, loop] : llvm::enumerate(loops)) {
    if (loop.getNumLoops() != 1 || loop.getNumReductions())
      return loop.emitError("expects 1-D scf.parallel without reductions at the top level of a kernel");
    builder.setInsertionPoint(loop);
    Value lower = loop.getLowerBound()[0], step = loop.getStep()[0];
    Value range = arith::SubIOp::create(builder, loc, loop.getUpperBound()[0], lower);
    auto cut = [&](Value n) -> Value {
      Value part = arith::DivUIOp::create(builder, loc, arith::MulIOp::create(builder, loc, range, n), pieces);
      return arith::AddIOp::create(builder, loc, lower, part);
    };
    Value one = arith::ConstantIndexOp::create(builder, loc, 1);
    Value begin = cut(piece), end = cut(arith::AddIOp::create(builder, loc, piece, one));
    Value isOn = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::eq, kernel.getArgument(position + 2),
                                       arith::ConstantIndexOp::create(builder, loc, number));
    end = arith::SelectOp::create(builder, loc, isOn, end, begin);
    auto sequential = scf::ForOp::create(builder, loc, begin, end, step);
    loop.getInductionVars()[0].replaceAllUsesWith(sequential.getInductionVar());
    loop.getBody()->getTerminator()->erase();
    Block *body = sequential.getBody();
    body->getOperations().splice(body->getTerminator()->getIterator(), loop.getBody()->getOperations());
    loop.erase();
  }
  return loops.size();
}

/// Scratch at the top level of the kernel is shared by its loops, each of which
/// is a call of its own here: it becomes a global.
void shareScratch(func::FuncOp kernel) {
  for (auto [n, alloca] : llvm::enumerate(llvm::to_vector(kernel.getOps<memref::AllocaOp>()))) {
    OpBuilder builder(kernel);
    std::string name = ("shared_" + llvm::Twine(n)).str();
    memref::GlobalOp::create(builder, alloca.getLoc(), name, builder.getStringAttr("private"), alloca.getType(),
                             builder.getUnitAttr(), /*constant=*/false, builder.getI64IntegerAttr(64));
    builder.setInsertionPoint(alloca);
    alloca.replaceAllUsesWith(
        memref::GetGlobalOp::create(builder, alloca.getLoc(), alloca.getType(), name).getResult());
    alloca.erase();
  }
}

/// There is no run that knows the number of threads, which is a hint alone, or
/// whether there are tiles.
void fixRun(func::FuncOp kernel, bool hasTiles) {
  kernel.walk([&](HasTilesOp op) {
    OpBuilder b(op);
    op.replaceAllUsesWith(arith::ConstantOp::create(b, op.getLoc(), b.getBoolAttr(hasTiles)).getResult());
    op.erase();
  });
  kernel.walk([](NumThreadsOp op) {
    OpBuilder b(op);
    op.replaceAllUsesWith(arith::ConstantIndexOp::create(b, op.getLoc(), 2).getResult());
    op.erase();
  });
}

/// Moves scratch of static size to the function's entry, where LLVM gives it
/// one place in the frame: inside a loop every iteration would take more stack.
void hoistScratch(func::FuncOp kernel) {
  Block &entry = kernel.front();
  kernel.walk([&](memref::AllocaOp alloca) {
    if (alloca.getType().hasStaticShape())
      alloca->moveBefore(&entry, entry.begin());
  });
}

LogicalResult lowerToLLVM(ModuleOp module) {
  MLIRContext *context = module.getContext();
  // Constants fold into splats before the polynomials multiply them.
  PassManager before(context);
  before.addPass(createCanonicalizerPass());
  before.addPass(createCSEPass());
  if (failed(before.run(module)))
    return failure();
  RewritePatternSet patterns(context);
  populateMathPolynomialApproximationPatterns(patterns);
  arith::populateExpandBFloat16Patterns(patterns);
  if (failed(applyPatternsGreedily(module, std::move(patterns))))
    return failure();
  PassManager pm(context);
  pm.addPass(createLoopInvariantCodeMotionPass());
  pm.addPass(createConvertVectorToSCFPass());
  pm.addPass(memref::createExpandStridedMetadataPass());
  pm.addPass(createLowerAffinePass());
  pm.addPass(createSCFToControlFlowPass());
  pm.addPass(createConvertVectorToLLVMPass());
  pm.addPass(createConvertToLLVMPass());
  pm.addPass(createReconcileUnrealizedCastsPass());
  pm.addPass(createCSEPass());
  return pm.run(module);
}

/// void attn_test_call(void **args): args[i] points to the i-th argument's
/// descriptor (memref) or value (index).
void addTrampoline(llvm::Module &module, llvm::Function &callee, ArrayRef<bool> isMemRef) {
  llvm::LLVMContext &context = module.getContext();
  llvm::IRBuilder<> builder(context);
  auto *type = llvm::FunctionType::get(builder.getVoidTy(), {builder.getPtrTy()}, false);
  auto *function = llvm::Function::Create(type, llvm::Function::ExternalLinkage, kTrampoline, module);
  builder.SetInsertPoint(llvm::BasicBlock::Create(context, "", function));
  SmallVector<llvm::Value *> arguments;
  for (auto [n, memref] : llvm::enumerate(isMemRef)) {
    llvm::Value *slot = builder.CreateConstGEP1_64(builder.getPtrTy(), function->getArg(0), n);
    llvm::Value *argument = builder.CreateLoad(builder.getPtrTy(), slot);
    arguments.push_back(memref ? argument : builder.CreateLoad(builder.getInt64Ty(), argument));
  }
  builder.CreateCall(&callee, arguments);
  builder.CreateRetVoid();
}

std::unique_ptr<llvm::TargetMachine> makeMachine(TargetAttr attr) {
  LLVMInitializeX86TargetInfo();
  LLVMInitializeX86Target();
  LLVMInitializeX86TargetMC();
  LLVMInitializeX86AsmPrinter();
  LLVMInitializeX86AsmParser();
  std::string error;
  llvm::Triple triple(attr.getTriple());
  const llvm::Target *target = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!target) {
    llvm::errs() << error << '\n';
    return nullptr;
  }
  return std::unique_ptr<llvm::TargetMachine>(
      target->createTargetMachine(triple, attr.getCpu(), attr.getFeatures(), llvm::TargetOptions(), llvm::Reloc::PIC_,
                                  llvm::CodeModel::Small, llvm::CodeGenOptLevel::Default));
}

/// As a compile at -O3 does.
void optimize(llvm::Module &module, llvm::TargetMachine &machine) {
  llvm::LoopAnalysisManager lam;
  llvm::FunctionAnalysisManager fam;
  llvm::CGSCCAnalysisManager cgam;
  llvm::ModuleAnalysisManager mam;
  llvm::PipelineTuningOptions tuning;
  tuning.LoopVectorization = tuning.SLPVectorization = tuning.LoopInterleaving = tuning.LoopUnrolling = false;
  llvm::PassBuilder builder(&machine, tuning);
  builder.registerModuleAnalyses(mam);
  builder.registerCGSCCAnalyses(cgam);
  builder.registerFunctionAnalyses(fam);
  builder.registerLoopAnalyses(lam);
  builder.crossRegisterProxies(lam, fam, cgam, mam);
  llvm::ModulePassManager passes;
  if (llvm::Error wrong = builder.parsePassPipeline(passes, passesOfVectorCode()))
    llvm::report_fatal_error(std::move(wrong));
  passes.run(module, mam);
  stepMultiples(module);
}

template <typename Stream>
bool emit(llvm::Module &module, llvm::TargetMachine &machine, llvm::CodeGenFileType kind, Stream &text) {
  llvm::raw_svector_ostream os(text);
  CodePasses codegen;
  if (machine.addPassesToEmitFile(codegen, os, nullptr, kind))
    return false;
  codegen.run(module);
  return true;
}

} // namespace

//===----------------------------------------------------------------------===//
// Kernel
//===----------------------------------------------------------------------===//

struct Kernel::Impl {
  std::unique_ptr<llvm::orc::LLJIT> jit;
  void (*function)(void **) = nullptr;
  /// Rank and static sizes of each memref argument.
  std::vector<std::vector<int64_t>> shapes;
  bool hasUnknownArgument = false;
  int64_t numLoops = 0; ///< at the top level of the kernel
  std::string assembly, ir;
  /// What the assembly is made of when somebody asks for it.
  std::unique_ptr<llvm::LLVMContext> context = std::make_unique<llvm::LLVMContext>();
  std::unique_ptr<llvm::Module> optimized;
  std::unique_ptr<llvm::TargetMachine> machine;

  static std::unique_ptr<Kernel> finish(OwningOpRef<ModuleOp> module, TargetAttr target, func::FuncOp kernel);
};

Kernel::Kernel(std::unique_ptr<Impl> impl) : impl(std::move(impl)) {}
Kernel::~Kernel() = default;
const std::string &Kernel::assembly() const {
  SmallVector<char, 0> text;
  if (impl->assembly.empty() && emit(*impl->optimized, *impl->machine, llvm::CodeGenFileType::AssemblyFile, text))
    impl->assembly.assign(text.begin(), text.end());
  return impl->assembly;
}
const std::string &Kernel::ir() const { return impl->ir; }

std::unique_ptr<Kernel> Kernel::Impl::finish(OwningOpRef<ModuleOp> module, TargetAttr target, func::FuncOp kernel) {
  auto impl = std::make_unique<Impl>();
  if (failed(verify(*module)))
    return nullptr;
  llvm::raw_string_ostream(impl->ir) << *module;
  SmallVector<bool> isMemRef;
  for (Type type : kernel.getArgumentTypes()) {
    auto memref = dyn_cast<MemRefType>(type);
    isMemRef.push_back(static_cast<bool>(memref));
    if (memref && memref.getLayout().isIdentity())
      impl->shapes.push_back(memref.getShape().vec());
    else
      impl->hasUnknownArgument = true;
  }
  isMemRef.append(3, false);
  std::string name = kernel.getSymName().str();
  kernel->setAttr("llvm.emit_c_interface", UnitAttr::get(kernel.getContext()));
  shareScratch(kernel);
  hoistScratch(kernel);
  fixRun(kernel, target.getFeatures().contains("+amx-tile"));
  FailureOr<int64_t> loops = cutParallelLoops(kernel);
  if (failed(loops) || failed(lowerToLLVM(*module)))
    return nullptr;
  impl->numLoops = *loops;

  std::unique_ptr<llvm::Module> llvmModule = translateModuleToLLVMIR(*module, *impl->context);
  impl->machine = makeMachine(target);
  llvm::TargetMachine *machine = impl->machine.get();
  if (!llvmModule || !machine)
    return nullptr;
  llvmModule->setDataLayout(machine->createDataLayout());
  llvmModule->setTargetTriple(machine->getTargetTriple());
  addTrampoline(*llvmModule, *llvmModule->getFunction("_mlir_ciface_" + name), isMemRef);
  for (llvm::Function &function : *llvmModule)
    if (!function.isDeclaration() && target.getIsa() == "avx512")
      function.addFnAttr("prefer-vector-width", "512");
  optimize(*llvmModule, *machine);

  SmallVector<char, 0> object;
  impl->optimized = llvm::CloneModule(*llvmModule);
  if (!emit(*llvmModule, *machine, llvm::CodeGenFileType::ObjectFile, object))
    return nullptr;
  auto report = [](llvm::Error error) -> std::unique_ptr<Kernel> {
    llvm::errs() << llvm::toString(std::move(error)) << '\n';
    return nullptr;
  };
  auto jit = llvm::orc::LLJITBuilder().create();
  if (!jit)
    return report(jit.takeError());
  impl->jit = std::move(*jit);
  if (llvm::Error error =
          impl->jit->addObjectFile(llvm::MemoryBuffer::getMemBufferCopy(StringRef(object.data(), object.size()))))
    return report(std::move(error));
  auto symbol = impl->jit->lookup(kTrampoline);
  if (!symbol)
    return report(symbol.takeError());
  impl->function = symbol->toPtr<void (*)(void **)>();
  return std::unique_ptr<Kernel>(new Kernel(std::move(impl)));
}

std::unique_ptr<Kernel> Kernel::compile(StringRef isa, BuildFn build) {
  DialectRegistry registry;
  registerDialects(registry);
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  context.loadAllAvailableDialects();
  TargetAttr target = makeTarget(context, isa);
  OpBuilder builder(&context);
  Location loc = NameLoc::get(builder.getStringAttr("kernel under test"));
  OwningOpRef<ModuleOp> module = ModuleOp::create(loc);
  (*module)->setAttr(AttnDialect::kTargetAttr, target);
  builder.setInsertionPointToEnd(module->getBody());
  FailureOr<func::FuncOp> kernel = build(builder, loc);
  if (failed(kernel))
    return nullptr;
  return Impl::finish(std::move(module), target, *kernel);
}

std::unique_ptr<Kernel> Kernel::compileText(StringRef isa, StringRef text) {
  DialectRegistry registry;
  registerDialects(registry);
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  context.loadAllAvailableDialects();
  TargetAttr target = makeTarget(context, isa);
  auto module = parseSourceString<ModuleOp>(text, &context);
  if (!module || module->getOps<func::FuncOp>().empty())
    return nullptr;
  (*module)->setAttr(AttnDialect::kTargetAttr, target);
  func::FuncOp kernel = *module->getOps<func::FuncOp>().begin();
  return Impl::finish(std::move(module), target, kernel);
}

bool Kernel::call(ArrayRef<const Buffer *> buffers, int64_t pieces) {
  if (impl->hasUnknownArgument || buffers.size() != impl->shapes.size() || pieces < 1)
    return false;
  // A descriptor: two pointers, the offset, sizes, strides.
  SmallVector<SmallVector<int64_t, 16>> descriptors;
  for (auto [buffer, shape] : llvm::zip_equal(buffers, impl->shapes)) {
    ArrayRef<int64_t> sizes = buffer->shape();
    if (sizes.size() != shape.size())
      return false;
    for (auto [size, expected] : llvm::zip_equal(sizes, shape))
      if (!ShapedType::isDynamic(expected) && size != expected)
        return false;
    int64_t address = reinterpret_cast<int64_t>(buffer->data<char>());
    SmallVector<int64_t, 16> descriptor = {address, address, 0};
    llvm::append_range(descriptor, sizes);
    descriptor.resize(3 + 2 * sizes.size());
    int64_t stride = 1;
    for (size_t n = sizes.size(); n-- > 0; stride *= sizes[n])
      descriptor[3 + sizes.size() + n] = stride;
    descriptors.push_back(std::move(descriptor));
  }
  int64_t piece = 0, phase = 0;
  SmallVector<void *> arguments;
  for (auto &descriptor : descriptors)
    arguments.push_back(descriptor.data());
  arguments.append({&piece, &pieces, &phase});
  for (; phase < std::max<int64_t>(impl->numLoops, 1); ++phase)
    for (piece = pieces; piece-- > 0;)
      impl->function(arguments.data());
  return true;
}

} // namespace attn::test
