// What attnc would otherwise ask of libraries that other machines may not have, and never uses.

#include "llvm/Plugins/PassPlugin.h"
#include <sys/random.h>

/// lld's LTO, which nothing here runs, names the plugin of Polly.
llvm::PassPluginLibraryInfo getPollyPluginInfo() { return {}; }

// lld sets up every target that LLVM was built with, which would bring them all along: those that code is made for are
// LLVM's own, the others are not there.
#define X86 UnusedX86
#define NVPTX UnusedNVPTX
#define STAND_IN(part)                                                                                                 \
  extern "C" void LLVMInitialize##part() {}
#define STAND_IN_FOR(target, part) STAND_IN(target##part)
#define STAND_IN_FOR_NAME(name, part) STAND_IN_FOR(name, part)
#define LLVM_TARGET(name)                                                                                              \
  STAND_IN_FOR_NAME(name, Target)                                                                                      \
  STAND_IN_FOR_NAME(name, TargetInfo)                                                                                  \
  STAND_IN_FOR_NAME(name, TargetMC)
#include "llvm/Config/Targets.def"
#define LLVM_ASM_PRINTER(name) STAND_IN_FOR_NAME(name, AsmPrinter)
#include "llvm/Config/AsmPrinters.def"
#define LLVM_ASM_PARSER(name) STAND_IN_FOR_NAME(name, AsmParser)
#include "llvm/Config/AsmParsers.def"

/// LLVM's names of temporary files: glibc has it from 2.36 on, Ubuntu 22.04 has 2.35.
extern "C" uint32_t arc4random() noexcept {
  uint32_t value = 0;
  while (getrandom(&value, sizeof value, 0) != sizeof value) {
  }
  return value;
}
