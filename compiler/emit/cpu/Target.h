#ifndef COMPILER_EMIT_CPU_TARGET_H
#define COMPILER_EMIT_CPU_TARGET_H

#include "dialects/attn/AttnOps.h"
#include "mlir/IR/MLIRContext.h"
#include "llvm/ADT/StringRef.h"
#include <memory>
#include <string>

namespace llvm {
class TargetMachine;
}

namespace attn {

/// The machine facts for `cpu`: an LLVM CPU name, or "native", which reads
/// CPUID's feature bits and cache sizes (never the model name, which virtual
/// machines invent). Fails, with `error` set, for a name that LLVM does not know.
mlir::FailureOr<TargetAttr> makeTarget(mlir::MLIRContext *context, llvm::StringRef cpu, std::string &error);

/// The target machine of `target` with position-independent code. Null, with
/// `error` set, when LLVM has no such target.
std::unique_ptr<llvm::TargetMachine> makeTargetMachine(TargetAttr target, unsigned optLevel, std::string &error);

/// The CPU features that code for `target` may use, as
/// attnrt_library.required_cpu_features spells them.
std::string requiredCpuFeatures(TargetAttr target);
/// Those that the kernels of a module use only where they are there.
std::string optionalCpuFeatures(mlir::ModuleOp module);

} // namespace attn

#endif // COMPILER_EMIT_CPU_TARGET_H
