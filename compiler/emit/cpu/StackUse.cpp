#include "compiler/emit/cpu/StackUse.h"

#include "llvm/IR/DiagnosticHandler.h"
#include "llvm/IR/DiagnosticInfo.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/LLVMContext.h"
#include <algorithm>

namespace attn {
namespace {

/// What LLVM's figure leaves out: the return address, what aligning the frame skips, and the red zone.
constexpr uint64_t kBesideFrame = 256;

/// Notes sizes of frames; hands all else on.
struct FrameSizes : llvm::DiagnosticHandler {
  FrameSizes(llvm::DenseMap<const llvm::Function *, uint64_t> &frames, llvm::DiagnosticHandler *next)
      : frames(frames), next(next) {}
  bool handleDiagnostics(const llvm::DiagnosticInfo &info) override {
    auto *size = llvm::dyn_cast<llvm::DiagnosticInfoStackSize>(&info);
    if (!size)
      return next && next->handleDiagnostics(info);
    frames[&size->getFunction()] = size->getStackSize();
    return true;
  }

  llvm::DenseMap<const llvm::Function *, uint64_t> &frames;
  llvm::DiagnosticHandler *next;
};

} // namespace

StackUse::StackUse(llvm::Module &module) : module(module), before(module.getContext().getDiagnosticHandler()) {
  module.getContext().setDiagnosticHandler(std::make_unique<FrameSizes>(frames, before.get()));
  for (llvm::Function &function : module)
    if (!function.isDeclaration())
      function.addFnAttr("warn-stack-size", "0"); // from which size on LLVM says it
}

StackUse::~StackUse() { module.getContext().setDiagnosticHandler(std::move(before)); }

uint64_t StackUse::deepest() {
  uint64_t most = 0;
  for (const llvm::Function &function : module)
    most = std::max(most, depthOf(function));
  return most;
}

uint64_t StackUse::depthOf(const llvm::Function &function) {
  if (function.isDeclaration())
    return 0;
  auto [known, isNew] = depths.try_emplace(&function, 0);
  if (!isNew)
    return known->second;
  uint64_t below = 0; // a task counts as called where its address is taken
  for (const llvm::Instruction &instruction : llvm::instructions(function))
    for (const llvm::Value *operand : instruction.operand_values())
      if (auto *callee = llvm::dyn_cast<llvm::Function>(operand))
        below = std::max(below, depthOf(*callee));
  return depths[&function] = frames.lookup(&function) + kBesideFrame + below;
}

} // namespace attn
