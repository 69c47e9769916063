#ifndef COMPILER_PIPELINES_STAGES_H
#define COMPILER_PIPELINES_STAGES_H

#include "compiler/Compiler.h"
#include "mlir/Support/Timing.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace mlir {
class PassManager;
} // namespace mlir

namespace attn {

/// The stages of a compile, one after the other: each has a name, which users learn, and a time.
class Stages {
public:
  Stages(const CompileOptions &options, CompileReport &report);

  mlir::TimingScope enter(llvm::StringRef name);
  /// A stage of passes on `module`.
  mlir::LogicalResult runPasses(mlir::ModuleOp module, llvm::StringRef name,
                                llvm::function_ref<void(mlir::PassManager &)> build);

  /// Prints, dumps and times the passes of a stage that runs them itself. For a reproducer, which `isReproduced` asks
  /// for, they copy all IR before they begin.
  void watch(mlir::PassManager &pm, mlir::TimingScope &scope, bool isReproduced = true);

  const CompileOptions &options;
  CompileReport &report;

private:
  mlir::DefaultTimingManager timings;
  mlir::TimingScope root;
  unsigned numPrinted = 0;
};

} // namespace attn

#endif // COMPILER_PIPELINES_STAGES_H
