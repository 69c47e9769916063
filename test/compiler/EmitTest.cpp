#include "attnrt/abi.h"
#include "compiler/emit/cpu/BfloatWords.h"
#include "compiler/emit/cpu/LibraryTable.h"
#include "compiler/emit/cpu/Object.h"
#include "compiler/emit/cpu/SingleLaneStores.h"
#include "compiler/emit/cpu/SteppedMultiples.h"
#include "compiler/emit/cpu/Target.h"
#include "mlir/IR/Builders.h"
#include "llvm/AsmParser/Parser.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/Verifier.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"
#include "gtest/gtest.h"
#include <cstdlib>
#include <dlfcn.h>
#include <unistd.h>

using namespace attn;

namespace {

struct Emit : testing::Test {
  Emit() { context.loadDialect<AttnDialect>(); }

  TargetAttr target(llvm::StringRef cpu) {
    std::string error;
    mlir::FailureOr<TargetAttr> result = makeTarget(&context, cpu, error);
    EXPECT_TRUE(succeeded(result)) << error;
    return succeeded(result) ? *result : TargetAttr();
  }

  mlir::MLIRContext context;
};

TEST_F(Emit, TargetsFollowFeatureBits) {
  EXPECT_EQ(target("x86-64").getIsa(), "portable");
  EXPECT_EQ(target("x86-64-v3").getIsa(), "avx2");
  EXPECT_EQ(target("x86-64-v4").getIsa(), "avx512");
  EXPECT_EQ(target("znver5").getIsa(), "avx512");
  EXPECT_EQ(target("x86-64-v3").getF32Lanes(), 8);
  EXPECT_GT(target("native").getL1(), 0);
  EXPECT_TRUE(target("znver5").getDividesFast());
  EXPECT_FALSE(target("sapphirerapids").getDividesFast());
  EXPECT_FALSE(target("x86-64-v4").getDividesFast());
  // "native" is a level and extra features, never a model's name.
  EXPECT_TRUE(target("native").getCpu().starts_with("x86-64"));
  std::string error;
  EXPECT_TRUE(failed(makeTarget(&context, "pentium-9", error)));
  EXPECT_NE(error.find("unknown CPU 'pentium-9'"), std::string::npos) << error;
}

TEST_F(Emit, RequiredFeaturesAreTheKernelsNames) {
  EXPECT_EQ(requiredCpuFeatures(target("x86-64")), "");
  std::string v4 = requiredCpuFeatures(target("x86-64-v4"));
  EXPECT_NE(v4.find("sse4_1"), std::string::npos);
  // Nothing beyond what the runtime can check, whatever the CPU has.
  EXPECT_EQ(requiredCpuFeatures(target("znver5")), v4 + ",avx512_vnni,avx512_bf16");
  // Tiles are asked for as the code runs.
  EXPECT_EQ(requiredCpuFeatures(target("sapphirerapids")), v4 + ",avx512_vnni,avx512_bf16");
  // Products of bytes: of 256 bits where there is no AVX-512.
  EXPECT_EQ(requiredCpuFeatures(target("alderlake")), requiredCpuFeatures(target("x86-64-v3")) + ",avx_vnni");
  EXPECT_NE(target("alderlake").getFeatures().find("+avxvnni,"), llvm::StringRef::npos);
  EXPECT_EQ(target("haswell").getFeatures().find("+avxvnni,"), llvm::StringRef::npos);
  EXPECT_NE(target("icelake-server").getFeatures().find("+avx512vnni,"), llvm::StringRef::npos);
  EXPECT_NE(target("sapphirerapids").getFeatures().find("+amx-tile,+amx-bf16,"), llvm::StringRef::npos);
  EXPECT_NE(target("sapphirerapids").getFeatures().find("+amx-int8,"), llvm::StringRef::npos);
  EXPECT_EQ(target("znver5").getFeatures().find("+amx"), llvm::StringRef::npos);
  EXPECT_NE(target("znver5").getFeatures().find("-avx512vbmi,"), llvm::StringRef::npos);
  EXPECT_NE(v4.find("abm,bmi1,bmi2,f16c,fma,avx,avx2,avx512f"), std::string::npos) << v4;
}

// A loop whose phi is a vector of bf16, masked accesses, all that moves elements, and two ops that compute with some.
TEST_F(Emit, BfloatMovesAsWords) {
  llvm::LLVMContext llvmContext;
  llvm::SMDiagnostic diagnostic;
  std::unique_ptr<llvm::Module> module = llvm::parseAssemblyString(R"(
    define void @moves(ptr %p, ptr %q, <16 x ptr> %many, <16 x i1> %m, <16 x i1> %c, i64 %n, bfloat %s) {
    entry:
      %x = call <16 x bfloat> @llvm.masked.load.v16bf16.p0(ptr align 2 %p, <16 x i1> %m, <16 x bfloat> splat (bfloat 0xR7FC0))
      br label %loop
    loop:
      %i = phi i64 [ 0, %entry ], [ %next, %loop ]
      %y = phi <16 x bfloat> [ %x, %entry ], [ %w, %loop ]
      %g = call <16 x bfloat> @llvm.masked.gather.v16bf16.v16p0(<16 x ptr> align 2 %many, <16 x i1> %m, <16 x bfloat> %y)
      %z = select <16 x i1> %c, <16 x bfloat> %y, <16 x bfloat> %g
      %e = extractelement <16 x bfloat> %z, i64 3
      %f = freeze bfloat %e
      store bfloat %f, ptr %q, align 2
      %t = insertelement <16 x bfloat> %z, bfloat %s, i64 5
      %w = shufflevector <16 x bfloat> %t, <16 x bfloat> zeroinitializer, <16 x i32> <i32 0, i32 17, i32 2, i32 19, i32 4, i32 21, i32 6, i32 23, i32 8, i32 25, i32 10, i32 27, i32 12, i32 29, i32 14, i32 31>
      %next = add i64 %i, 1
      %done = icmp eq i64 %next, %n
      br i1 %done, label %exit, label %loop
    exit:
      %words = bitcast <16 x bfloat> %w to <16 x i16>
      %back = bitcast <16 x i16> %words to <16 x bfloat>
      call void @llvm.masked.store.v16bf16.p0(<16 x bfloat> %back, ptr align 2 %q, <16 x i1> %m)
      %v = load bfloat, ptr %p, align 2
      %wide = fpext bfloat %v to float
      %narrow = fptrunc float %wide to bfloat
      store bfloat %narrow, ptr %p, align 2
      ret void
    })",
                                                                   diagnostic, llvmContext);
  ASSERT_TRUE(module) << diagnostic.getMessage().str();
  moveBfloatAsWords(*module);
  std::string text;
  llvm::raw_string_ostream os(text);
  EXPECT_FALSE(verifyModule(*module, &os)) << text;
  for (llvm::Instruction &inst : instructions(*module->getFunction("moves")))
    if (!isa<llvm::BitCastInst, llvm::FPExtInst, llvm::FPTruncInst>(inst)) {
      EXPECT_FALSE(inst.getType()->getScalarType()->isBFloatTy()) << inst.getOpcodeName();
      for (llvm::Value *operand : inst.operands())
        EXPECT_FALSE(operand->getType()->getScalarType()->isBFloatTy()) << inst.getOpcodeName();
    }
  size_t count = 0;
  for (llvm::Instruction &inst : instructions(*module->getFunction("moves")))
    count += isa<llvm::PHINode, llvm::SelectInst, llvm::ShuffleVectorInst, llvm::StoreInst, llvm::CallInst>(inst);
  EXPECT_EQ(count, 2u + 1 + 1 + 2 + 3);
}

TEST(SingleLaneStoresTest, OneElementIsStored) {
  llvm::LLVMContext llvmContext;
  llvm::SMDiagnostic diagnostic;
  std::unique_ptr<llvm::Module> module = llvm::parseAssemblyString(R"(
    declare void @llvm.masked.store.v4i8.p0(<4 x i8>, ptr, <4 x i1>)
    define void @stores(<4 x i32> %x, ptr %p, <4 x i1> %mask) {
      %y = trunc <4 x i32> %x to <4 x i8>
      call void @llvm.masked.store.v4i8.p0(<4 x i8> %y, ptr align 1 %p, <4 x i1> <i1 0, i1 0, i1 1, i1 0>)
      call void @llvm.masked.store.v4i8.p0(<4 x i8> %y, ptr align 1 %p, <4 x i1> <i1 1, i1 1, i1 0, i1 0>)
      call void @llvm.masked.store.v4i8.p0(<4 x i8> %y, ptr align 1 %p, <4 x i1> %mask)
      ret void
    })",
                                                                   diagnostic, llvmContext);
  ASSERT_TRUE(module) << diagnostic.getMessage().str();
  storeSingleLanes(*module);
  std::string text;
  llvm::raw_string_ostream os(text);
  EXPECT_FALSE(verifyModule(*module, &os)) << text;
  module->print(os, nullptr);
  EXPECT_NE(text.find("extractelement <4 x i8> %y, i64 2"), std::string::npos) << text;
  EXPECT_NE(text.find("getelementptr inbounds i8, ptr %p, i32 2"), std::string::npos) << text;
  size_t calls = 0, stores = 0;
  for (llvm::Instruction &inst : instructions(*module->getFunction("stores"))) {
    calls += isa<llvm::CallInst>(inst);
    stores += isa<llvm::StoreInst>(inst);
  }
  EXPECT_EQ(calls, 2u);
  EXPECT_EQ(stores, 1u);
}

/// The entry of LinkedTableIsWhatWasDescribed.
void expectDescribedEntry(const attnrt_entry &entry) {
  EXPECT_EQ(entry.struct_size, sizeof(attnrt_entry));
  EXPECT_STREQ(entry.name, "main");
  EXPECT_EQ(entry.fn(nullptr, nullptr), 42);
  ASSERT_EQ(entry.num_inputs, 2);
  EXPECT_STREQ(entry.inputs[0].name, "x");
  EXPECT_STREQ(entry.inputs[0].dtype_name, "int64");
  EXPECT_EQ(entry.inputs[0].dtype, ATTNRT_I64);
  ASSERT_EQ(entry.inputs[0].rank, 2);
  EXPECT_EQ(entry.inputs[0].dims[0].size, -1);
  EXPECT_STREQ(entry.inputs[0].dims[0].name, "batch");
  EXPECT_EQ(entry.inputs[0].dims[1].size, 8);
  EXPECT_EQ(entry.inputs[1].rank, 0);
  EXPECT_EQ(entry.inputs[1].dtype, ATTNRT_BOOL);
  ASSERT_EQ(entry.num_outputs, 1);
  EXPECT_STREQ(entry.outputs[0].name, "y");
  ASSERT_EQ(entry.num_messages, 2);
  EXPECT_STREQ(entry.messages[1], "sizes {0} and {1} differ");
}

/// What is left of multiplications in @f: 'm' or 's' each, and 'p' for each value that steps carry.
std::string multiplesOf(llvm::StringRef ir) {
  llvm::LLVMContext llvm;
  llvm::SMDiagnostic error;
  std::unique_ptr<llvm::Module> module = llvm::parseAssemblyString(ir, error, llvm);
  if (!module)
    return error.getMessage().str();
  stepMultiples(*module);
  EXPECT_FALSE(verifyModule(*module, &llvm::errs()));
  std::string found;
  for (llvm::Instruction &inst : instructions(*module->getFunction("f")))
    if (inst.getOpcode() == llvm::Instruction::Mul || inst.getOpcode() == llvm::Instruction::Shl)
      found += inst.getOpcode() == llvm::Instruction::Mul ? 'm' : 's';
    else if (inst.getOpcode() == llvm::Instruction::PHI)
      found += 'p';
  return found;
}

TEST(SteppedMultiplesTest, MultiplesOfAnIndexBecomeSums) {
  auto loop = [](llvm::StringRef body) {
    return ("declare void @use(i64, i64)\n"
            "define void @f(i64 %begin, i64 %end, i64 %other) {\n"
            "  %before = add i64 %other, 1\n"
            "  br label %loop\n"
            "loop:\n"
            "  %i = phi i64 [ 3, %0 ], [ %next, %loop ]\n" +
            body +
            "  call void @use(i64 %x, i64 %y)\n"
            "  %next = add i64 %i, 2\n"
            "  %more = icmp slt i64 %next, %end\n"
            "  br i1 %more, label %loop, label %out\n"
            "out:\n  ret void\n}\n")
        .str();
  };
  EXPECT_EQ(multiplesOf(loop("  %x = shl i64 %i, 6\n  %y = mul i64 %i, 48\n")), "ppp");
  // Of a distance: where it starts is multiplied before the loop.
  EXPECT_EQ(multiplesOf(loop("  %d = sub i64 %i, %before\n  %x = shl i64 %d, 6\n  %y = add i64 %i, 1\n")), "mpp");
  EXPECT_EQ(multiplesOf(loop("  %d = add i64 %before, %i\n  %x = shl i64 %d, 6\n  %y = add i64 %i, 1\n")), "mpp");
  // Not of what the loop computes, and by no other value.
  EXPECT_EQ(multiplesOf(loop("  %d = and i64 %i, %other\n  %x = shl i64 %d, 6\n  %y = mul i64 %i, %other\n")), "psm");
  // More sums than that would take the registers of others.
  EXPECT_EQ(multiplesOf(loop("  %x = mul i64 %i, 5\n  %b = mul i64 %i, 6\n  %c = mul i64 %i, 7\n"
                             "  %y = mul i64 %i, 9\n")),
            "pmmmm");
}

TEST_F(Emit, LinkedTableIsWhatWasDescribed) {
  llvm::LLVMContext llvmContext;
  llvm::Module module("model", llvmContext);
  auto *pointer = llvm::PointerType::getUnqual(llvmContext);
  auto *type = llvm::FunctionType::get(llvm::Type::getInt32Ty(llvmContext), {pointer, pointer}, false);
  // External until the table refers to it, so that the optimiser keeps it.
  auto *function = llvm::Function::Create(type, llvm::GlobalValue::ExternalLinkage, "entry_fn", module);
  llvm::IRBuilder<> builder(llvm::BasicBlock::Create(llvmContext, "", function));
  builder.CreateRet(builder.getInt32(42));

  LibraryDescription d;
  d.entries.push_back({"main",
                       "entry_fn",
                       {{"x", "int64", {-1, 8}, {"batch", ""}}, {"scalar", "bool", {}, {}}},
                       {{"y", "float32", {-1}, {"batch"}}},
                       {"node 'a' (Gather)", "sizes {0} and {1} differ"}});
  d.weights.push_back({"w", mlir::Float32Type::get(&context), {3, 5}, 64, 60, "panels:48"});
  d.requiredCpuFeatures = "avx2,fma";
  d.optionalCpuFeatures = "amx_tile,amx_bf16";
  d.target = "x86_64-unknown-linux-gnu";
  d.compilerVersion = "attnc 0.1.0";
  d.manifestJson = makeManifest(d, target("x86-64"), R"([{"fused": true}])");
  llvm::Expected<llvm::json::Value> manifest = llvm::json::parse(d.manifestJson);
  ASSERT_TRUE(bool(manifest));
  EXPECT_EQ((*manifest->getAsObject()->getArray("entries"))[0].getAsObject()->getString("name"), "main");

  std::string error;
  Object object;
  ObjectBytes elf;
  emitLibraryTable(module, d);
  std::unique_ptr<llvm::TargetMachine> machine = makeTargetMachine(target("x86-64"), 2, error);
  ASSERT_TRUE(machine) << error;
  ASSERT_TRUE(optimizeModule(module, *machine, target("x86-64"), 2, {}, error)) << error;
  ASSERT_TRUE(emitObject(module, *machine, 2, object, error)) << error;
  ASSERT_TRUE(linkLibrary(object.bytes, elf, error)) << error;

  char path[] = "/tmp/attnc-emit-XXXXXX";
  int file = mkstemp(path);
  ASSERT_EQ(write(file, elf.data(), elf.size()), static_cast<ssize_t>(elf.size()));
  close(file);
  void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  unlink(path);
  ASSERT_TRUE(handle) << dlerror();
  auto query = reinterpret_cast<attnrt_library_query_fn>(dlsym(handle, "attnrt_library_query"));
  ASSERT_TRUE(query);
  EXPECT_EQ(dlsym(handle, "entry_fn"), nullptr);
  // A newer runtime reads it, one that is older than the code needs does not.
  EXPECT_EQ(query(ATTNRT_ABI_NEEDED - 1), nullptr);
  const attnrt_library *library = query(ATTNRT_ABI_VERSION);
  ASSERT_TRUE(library);
  EXPECT_EQ(query(ATTNRT_ABI_VERSION + 1), library);
  EXPECT_EQ(library->struct_size, sizeof(attnrt_library));
  EXPECT_EQ(library->abi_version, ATTNRT_ABI_VERSION);
  ASSERT_EQ(library->num_entries, 1u);
  expectDescribedEntry(*library->entries[0]);
  ASSERT_EQ(library->num_weights, 1u);
  EXPECT_STREQ(library->weights[0].name, "w");
  EXPECT_EQ(library->weights[0].dtype, ATTNRT_F32);
  EXPECT_EQ(library->weights[0].shape[1], 5);
  EXPECT_EQ(library->weights[0].offset, 64u);
  EXPECT_EQ(library->weights[0].size, 60u);
  EXPECT_STREQ(library->weights[0].layout, "panels:48");
  EXPECT_STREQ(library->required_cpu_features, "avx2,fma");
  EXPECT_STREQ(library->optional_cpu_features, "amx_tile,amx_bf16");
  EXPECT_STREQ(library->manifest_json, d.manifestJson.c_str());
  dlclose(handle);
}

// One object calls a function of another: it is found, and nobody outside sees it.
TEST_F(Emit, ObjectsOfALibrary) {
  llvm::LLVMContext llvmContext;
  llvm::SMDiagnostic diagnostic;
  std::vector<ObjectBytes> objects(2);
  std::string error;
  llvm::StringSet<> shared;
  shared.insert("main"); // a name with a meaning
  const char *texts[] = {R"(
    declare i32 @main(i32)
    define ptr @attnrt_library_query(i32 %n) {
      %r = call i32 @main(i32 %n)
      %p = inttoptr i32 %r to ptr
      ret ptr %p
    })",
                         R"(
    define i32 @main(i32 %n) {
      %r = call i32 @helper(i32 %n)
      ret i32 %r
    }
    define i32 @helper(i32 %n) noinline {
      %r = add i32 %n, 41
      ret i32 %r
    })"};
  std::unique_ptr<llvm::TargetMachine> machine = makeTargetMachine(target("x86-64"), 3, error);
  ASSERT_TRUE(machine) << error;
  for (size_t n = 0; n < 2; ++n) {
    std::unique_ptr<llvm::Module> module = llvm::parseAssemblyString(texts[n], diagnostic, llvmContext);
    ASSERT_TRUE(module) << diagnostic.getMessage().str();
    ASSERT_TRUE(optimizeModule(*module, *machine, target("x86-64"), 3, shared, error)) << error;
    Object made;
    ASSERT_TRUE(emitObject(*module, *machine, 3, made, error)) << error;
    objects[n] = std::move(made.bytes);
  }
  ObjectBytes elf, joined;
  EXPECT_FALSE(linkLibrary(llvm::ArrayRef(objects).take_front(1), elf, error));
  EXPECT_NE(error.find("needs the symbol 'attn.main'"), std::string::npos) << error;
  elf.clear();
  ASSERT_TRUE(joinObjects(objects, joined, error)) << error;
  ASSERT_TRUE(linkLibrary(joined, elf, error)) << error;

  char path[] = "/tmp/attnc-emit-XXXXXX";
  int file = mkstemp(path);
  ASSERT_EQ(write(file, elf.data(), elf.size()), static_cast<ssize_t>(elf.size()));
  close(file);
  void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  unlink(path);
  ASSERT_TRUE(handle) << dlerror();
  auto query = reinterpret_cast<void *(*)(int)>(dlsym(handle, "attnrt_library_query"));
  ASSERT_TRUE(query);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(query(1)), 42u);
  EXPECT_EQ(dlsym(handle, "attn.main"), nullptr);
  dlclose(handle);
}

// The deepest chain of calls counts, and a task as called where it is handed to the runtime.
TEST_F(Emit, StackOfAnObject) {
  constexpr char kText[] = R"(
    declare void @use(ptr)
    declare i32 @other(ptr)
    define internal void @task(ptr %arg, i64 %begin, i64 %end) {
      %a = alloca [3000 x i8]
      call void @use(ptr %a)
      ret void
    }
    define internal void @wide() noinline {
      %a = alloca [2000 x i8]
      call void @use(ptr %a)
      ret void
    }
    define ptr @attnrt_library_query(i32 %n) {
      %a = alloca [5000 x i8]
      call void @use(ptr %a)
      call void @wide()
      call i32 @other(ptr @task)
      ret ptr null
    })";
  llvm::LLVMContext llvmContext;
  llvm::SMDiagnostic diagnostic;
  std::unique_ptr<llvm::Module> module = llvm::parseAssemblyString(kText, diagnostic, llvmContext);
  ASSERT_TRUE(module) << diagnostic.getMessage().str();
  Object object;
  std::string error;
  std::unique_ptr<llvm::TargetMachine> machine = makeTargetMachine(target("x86-64"), 3, error);
  ASSERT_TRUE(machine) << error;
  ASSERT_TRUE(optimizeModule(*module, *machine, target("x86-64"), 3, {}, error)) << error;
  ASSERT_TRUE(emitObject(*module, *machine, 3, object, error)) << error;
  EXPECT_GE(object.stackSize, 8000u);
  EXPECT_LT(object.stackSize, 9000u);
}

} // namespace
