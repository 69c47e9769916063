#ifndef PASSES_LOWERING_BUFFERS_LANECHOICE_H
#define PASSES_LOWERING_BUFFERS_LANECHOICE_H

#include "passes/lowering/buffers/BodyEmitter.h"
#include <memory>

namespace attn {

/// The loop of a linalg.generic whose neighbouring values are lanes of a vector, -1 where none is worth it, and what
/// writes the body then.
struct LaneChoice {
  std::unique_ptr<BodyEmitter> emitter;
  int64_t loop = -1;
};

/// Picks the loop whose lanes cost least for one element. `sizes` are those of the loops, `width` lanes are one vector.
LaneChoice chooseLanes(mlir::linalg::GenericOp op, llvm::ArrayRef<mlir::OpFoldResult> sizes, int64_t width);

} // namespace attn

#endif // PASSES_LOWERING_BUFFERS_LANECHOICE_H
