#ifndef COMPILER_EMIT_CPU_CODEPASSES_H
#define COMPILER_EMIT_CPU_CODEPASSES_H

#include "llvm/IR/LegacyPassManager.h"

namespace attn {

/// LLVM's passes from optimised IR to machine code, but for the search for better addresses in loops (LSR): a tenth of
/// a compile, for the same loops in most kernels, whose builders say addresses as they want them. Without it, loops
/// are to arrive with an entry of their own (loop-simplify): at one that several share, LLVM copies the sums that each
/// starts with, and spills them in the loop.
class CodePasses : public llvm::legacy::PassManager {
public:
  void add(llvm::Pass *pass) override;
};

} // namespace attn

#endif // COMPILER_EMIT_CPU_CODEPASSES_H
