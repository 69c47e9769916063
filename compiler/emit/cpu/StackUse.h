#ifndef COMPILER_EMIT_CPU_STACKUSE_H
#define COMPILER_EMIT_CPU_STACKUSE_H

#include "llvm/ADT/DenseMap.h"
#include "llvm/IR/Module.h"
#include <memory>

namespace llvm {
struct DiagnosticHandler;
}

namespace attn {

/// How much stack the functions of a module take, each with those that it calls or hands to the runtime. LLVM says how
/// large a frame is when it has written the function's machine code, which is to happen in the lifetime of this.
class StackUse {
public:
  explicit StackUse(llvm::Module &module);
  ~StackUse();
  StackUse(const StackUse &) = delete;

  /// Bytes of the function that takes most. Functions of other objects count as none.
  uint64_t deepest();

private:
  uint64_t depthOf(const llvm::Function &function);

  llvm::Module &module;
  std::unique_ptr<llvm::DiagnosticHandler> before;
  llvm::DenseMap<const llvm::Function *, uint64_t> frames, depths;
};

} // namespace attn

#endif // COMPILER_EMIT_CPU_STACKUSE_H
