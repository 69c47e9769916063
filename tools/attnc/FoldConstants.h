// Products of constants, computed at compile time.
#ifndef TOOLS_ATTNC_FOLDCONSTANTS_H
#define TOOLS_ATTNC_FOLDCONSTANTS_H

#include "compiler/Compiler.h"

namespace attn::tools {

/// Makes weights of large products whose factors are all constant, and of what views and elementwise ops make of them:
/// the projections of a table of positions, of learned queries. A library for this machine, compiled for it and run
/// once, computes them in the precision of the model. It is `library` meanwhile, a path. Where that fails, `module`
/// stays as it is, and each run computes them. `options` say which target `module` is for.
void foldConstants(mlir::ModuleOp module, WeightStore &weights, const CompileOptions &options,
                   const std::string &library);

} // namespace attn::tools

#endif // TOOLS_ATTNC_FOLDCONSTANTS_H
