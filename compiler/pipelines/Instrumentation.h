#ifndef COMPILER_PIPELINES_INSTRUMENTATION_H
#define COMPILER_PIPELINES_INSTRUMENTATION_H

#include "compiler/Compiler.h"

namespace mlir {
class PassManager;
class TimingScope;
} // namespace mlir

namespace attn {

/// Printing, dumping, timing and, with `isReproduced`, reproducer as `options` ask. `numPrinted`
/// counts the files written to options.dumpIrDir, across pass managers.
void instrument(mlir::PassManager &pm, const CompileOptions &options, mlir::TimingScope &timing, unsigned &numPrinted,
                bool isReproduced);

} // namespace attn

#endif // COMPILER_PIPELINES_INSTRUMENTATION_H
