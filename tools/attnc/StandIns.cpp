// What attnc-static would otherwise ask of libraries that other machines may not have, and never uses.

#include "llvm/Plugins/PassPlugin.h"
#include <sys/random.h>

/// lld's LTO, which nothing here runs, names the plugin of Polly.
llvm::PassPluginLibraryInfo getPollyPluginInfo() { return {}; }

/// LLVM's names of temporary files: glibc has it from 2.36 on, Ubuntu 22.04 has 2.35.
extern "C" uint32_t arc4random() noexcept {
  uint32_t value = 0;
  while (getrandom(&value, sizeof value, 0) != sizeof value) {
  }
  return value;
}
