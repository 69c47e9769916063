#ifndef TOOLS_INTERPRET_INTERPRETCOMMAND_H
#define TOOLS_INTERPRET_INTERPRETCOMMAND_H

#include "mlir/IR/DialectRegistry.h"

namespace attn::interpret {

/// attn-opt FILE --attn-interpret [--entry=NAME] [--input=TENSOR]... [--output=PREFIX]
///
/// Runs a function of FILE (by default the only one, or @main) in double
/// precision. Each input is "@x.npy", "2x3xf32=1,2,3,4,5,6" or "2x3xf32=seed:7",
/// in the order of the arguments. Results are printed, or written as
/// PREFIX0.npy, PREFIX1.npy, ... (float64, or int64 for integers). Returns the
/// exit code.
int interpretMain(int argc, char **argv, mlir::DialectRegistry &registry);

} // namespace attn::interpret

#endif // TOOLS_INTERPRET_INTERPRETCOMMAND_H
