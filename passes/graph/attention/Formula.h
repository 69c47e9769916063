#ifndef PASSES_GRAPH_ATTENTION_FORMULA_H
#define PASSES_GRAPH_ATTENTION_FORMULA_H

#include "mlir/IR/BuiltinOps.h"

namespace attn {

/// Adds to the verdict of each attention of `module` what it computes: `formula`, its lines as text for people, and
/// `score_shape`, the sizes of the scores that reach no memory. For the form that the graph passes leave.
void noteFormulas(mlir::ModuleOp module);

} // namespace attn

#endif // PASSES_GRAPH_ATTENTION_FORMULA_H
