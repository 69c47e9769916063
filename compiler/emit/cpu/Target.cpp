#include "compiler/emit/cpu/Target.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Host.h"
#include <mutex>
#include <unistd.h>

using namespace mlir;

namespace attn {

static constexpr llvm::StringLiteral kTriple = "x86_64-unknown-linux-gnu";

/// LLVM's name of a feature and the kernel's, in the order that users know. Of
/// AMX, which a process may be refused, code asks as it runs.
static constexpr std::pair<llvm::StringLiteral, llvm::StringLiteral> kFeatureNames[] = {
    {"sse3", "pni"},
    {"ssse3", "ssse3"},
    {"sse4.1", "sse4_1"},
    {"sse4.2", "sse4_2"},
    {"popcnt", "popcnt"},
    {"cx16", "cx16"},
    {"movbe", "movbe"},
    {"lzcnt", "abm"},
    {"bmi", "bmi1"},
    {"bmi2", "bmi2"},
    {"f16c", "f16c"},
    {"fma", "fma"},
    {"avx", "avx"},
    {"avx2", "avx2"},
    {"avxvnni", "avx_vnni"},
    {"avx512f", "avx512f"},
    {"avx512cd", "avx512cd"},
    {"avx512bw", "avx512bw"},
    {"avx512dq", "avx512dq"},
    {"avx512vl", "avx512vl"},
    {"avx512vnni", "avx512_vnni"},
    {"avx512bf16", "avx512_bf16"},
};

static const llvm::Target *lookupTarget(const llvm::Triple &triple, std::string &error) {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
  });
  return llvm::TargetRegistry::lookupTarget(triple, error);
}

std::unique_ptr<llvm::TargetMachine> makeTargetMachine(TargetAttr target, unsigned optLevel, std::string &error) {
  llvm::Triple triple(target.getTriple().empty() ? llvm::StringRef(kTriple) : target.getTriple());
  const llvm::Target *backend = lookupTarget(triple, error);
  if (!backend)
    return nullptr;
  llvm::TargetOptions options;
  options.EnableFastISel = optLevel == 0;
  return std::unique_ptr<llvm::TargetMachine>(backend->createTargetMachine(
      triple, target.getCpu(), target.getFeatures(), options, llvm::Reloc::PIC_, llvm::CodeModel::Small,
      optLevel == 0 ? llvm::CodeGenOptLevel::None : llvm::CodeGenOptLevel::Default));
}

static int64_t cacheSize(int name, int64_t fallback) {
  long size = sysconf(name);
  return size > 0 ? size : fallback;
}

/// What named CPUs have and no kernel uses.
constexpr StringRef kUnused[] = {"adx",
                                 "avx10.1",
                                 "avx10.2",
                                 "avx512bitalg",
                                 "avx512fp16",
                                 "avx512ifma",
                                 "avx512vbmi",
                                 "avx512vbmi2",
                                 "avx512vp2intersect",
                                 "avx512vpopcntdq",
                                 "avxifma",
                                 "avxneconvert",
                                 "avxvnniint8",
                                 "avxvnniint16",
                                 "egpr",
                                 "fma4",
                                 "gfni",
                                 "sse4a",
                                 "tbm",
                                 "vaes",
                                 "vpclmulqdq",
                                 "xop"};

FailureOr<TargetAttr> makeTarget(MLIRContext *context, StringRef cpu, std::string &error) {
  // Cache sizes of another machine are unknown; these are the smallest of
  // AVX-512 servers.
  int64_t l1 = 32 << 10, l2 = 1 << 20;
  std::string name = cpu.str(), features;
  bool isAmd = false; // SSE4a is AMD's alone
  if (cpu == "native") {
    llvm::StringMap<bool> host = llvm::sys::getHostCPUFeatures();
    auto has = [&](std::initializer_list<StringRef> names) {
      return llvm::all_of(names, [&](StringRef feature) { return host.lookup(feature); });
    };
    bool v2 = has({"cx16", "popcnt", "sse4.1", "sse4.2", "ssse3"});
    bool v3 = v2 && has({"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"});
    bool v4 = v3 && has({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"});
    name = v4 ? "x86-64-v4" : v3 ? "x86-64-v3" : v2 ? "x86-64-v2" : "x86-64";
    for (StringRef extra : {"avx512bf16", "avx512vnni", "amx-tile", "amx-bf16", "amx-int8"})
      if (v4 && host.lookup(extra))
        features += ("+" + extra + ",").str();
    if (v3 && !v4 && host.lookup("avxvnni"))
      features += "+avxvnni,";
    isAmd = host.lookup("sse4a");
    l1 = cacheSize(_SC_LEVEL1_DCACHE_SIZE, l1);
    l2 = cacheSize(_SC_LEVEL2_CACHE_SIZE, l2);
  }
  // Some CPUs are tuned to prefer half the width that our kernels use. What a
  // named CPU has beyond the table above is switched off: the runtime could not
  // check it before running the code.
  features += "-prefer-256-bit";
  for (StringRef extra : kUnused)
    features += (",-" + extra).str();
  auto target = TargetAttr::get(context, kTriple, name, features, "portable", l1, l2, isAmd);
  std::string unused;
  if (const llvm::Target *backend = lookupTarget(llvm::Triple(kTriple), unused)) {
    std::unique_ptr<llvm::MCSubtargetInfo> generic(backend->createMCSubtargetInfo(llvm::Triple(kTriple), "", ""));
    if (!generic->isCPUStringValid(name)) {
      error = "unknown CPU '" + name + "'; use native, x86-64, x86-64-v3, x86-64-v4 or another of LLVM's names";
      return failure();
    }
    std::unique_ptr<llvm::MCSubtargetInfo> named(backend->createMCSubtargetInfo(llvm::Triple(kTriple), name, ""));
    isAmd |= named->checkFeatures("+sse4a");
  }
  std::unique_ptr<llvm::TargetMachine> machine = makeTargetMachine(target, 3, error);
  if (!machine)
    return failure();
  const llvm::MCSubtargetInfo *subtarget = machine->getMCSubtargetInfo();
  bool avx512 = subtarget->checkFeatures("+avx512f,+avx512bw,+avx512dq,+avx512vl,+fma");
  bool avx2 = subtarget->checkFeatures("+avx2,+fma");
  // Of a named CPU, so that lowering sees it. Beside AVX-512 the products of bytes of 256 bits are of no use.
  if (avx512)
    features += ",-avxvnni";
  else if (avx2 && subtarget->checkFeatures("+avxvnni") && !StringRef(features).contains("+avxvnni"))
    features = "+avxvnni," + features;
  if (avx512 && subtarget->checkFeatures("+avx512vnni") && !StringRef(features).contains("+avx512vnni"))
    features = "+avx512vnni," + features;
  if (avx512 && subtarget->checkFeatures("+avx512bf16") && !StringRef(features).contains("+avx512bf16"))
    features = "+avx512bf16," + features;
  if (avx512 && subtarget->checkFeatures("+amx-tile,+amx-bf16") && !StringRef(features).contains("+amx-bf16"))
    features = "+amx-tile,+amx-bf16," + features;
  if (avx512 && subtarget->checkFeatures("+amx-tile,+amx-int8") && !StringRef(features).contains("+amx-int8"))
    features = (StringRef(features).contains("+amx-tile") ? "+amx-int8," : "+amx-tile,+amx-int8,") + features;
  return TargetAttr::get(context, kTriple, name, features,
                         avx512 ? "avx512"
                         : avx2 ? "avx2"
                                : "portable",
                         l1, l2, isAmd);
}

std::string requiredCpuFeatures(TargetAttr target) {
  std::string error;
  std::unique_ptr<llvm::TargetMachine> machine = makeTargetMachine(target, 3, error);
  SmallVector<StringRef> names;
  for (auto [llvmName, kernelName] : kFeatureNames)
    if (machine && machine->getMCSubtargetInfo()->checkFeatures(("+" + llvmName).str()))
      names.push_back(kernelName);
  return llvm::join(names, ",");
}

std::string optionalCpuFeatures(ModuleOp module) {
  WalkResult result = module.walk([](HasTilesOp) { return WalkResult::interrupt(); });
  if (!result.wasInterrupted())
    return "";
  StringRef features = TargetAttr::lookup(module).getFeatures();
  std::string names = "amx_tile";
  for (auto [llvmName, kernelName] : {std::pair("+amx-bf16", ",amx_bf16"), std::pair("+amx-int8", ",amx_int8")})
    if (features.contains(llvmName))
      names += kernelName;
  return names;
}

} // namespace attn
