#include "compiler/emit/cpu/CodePasses.h"

#include "llvm/ADT/StringSwitch.h"
#include "llvm/Pass.h"
#include "llvm/PassInfo.h"

namespace attn {

/// Whether LLVM's pass is the search, or prepares loops for it.
static bool isSearch(const llvm::Pass &pass) {
  const llvm::PassInfo *info = llvm::Pass::lookupPassInfo(pass.getPassID());
  return info &&
         llvm::StringSwitch<bool>(info->getPassArgument()).Cases({"loop-reduce", "canon-freeze"}, true).Default(false);
}

void CodePasses::add(llvm::Pass *pass) {
  if (isSearch(*pass))
    delete pass;
  else
    PassManager::add(pass);
}

} // namespace attn
