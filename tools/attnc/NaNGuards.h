// What an imported graph does about NaN.
#ifndef TOOLS_ATTNC_NANGUARDS_H
#define TOOLS_ATTNC_NANGUARDS_H

#include "mlir/IR/BuiltinOps.h"
#include <string>
#include <vector>

namespace attn::tools {

/// How often the graph tests a float for NaN: softmaxes are guarded that way. QuantizeLinear and its kin count as one,
/// since they make a code of NaN.
unsigned countNaNTests(mlir::ModuleOp module);

/// The float inputs that reach no product of two tensors before such a test, as masks and biases of scores do: an
/// infinity in one makes no NaN but that of a row without a visible key, which the guard is for.
std::vector<std::string> inputsBeforeGuards(mlir::ModuleOp module);

} // namespace attn::tools

#endif // TOOLS_ATTNC_NANGUARDS_H
