#ifndef PASSES_GRAPH_ELEMENT_ASSUMEREQUIRED_H
#define PASSES_GRAPH_ELEMENT_ASSUMEREQUIRED_H

#include "mlir/IR/Operation.h"

namespace attn {

/// Sizes that an attn.require compares are equal wherever a run gets to: moves
/// each such check up to where its sizes are known, and replaces the later one
/// of the two after it by the earlier one (or by the constant). Reshapes and
/// masks cut from tables then agree by name.
void assumeRequiredSizes(mlir::Operation *root);

} // namespace attn

#endif // PASSES_GRAPH_ELEMENT_ASSUMEREQUIRED_H
