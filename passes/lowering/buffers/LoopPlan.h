#ifndef PASSES_LOWERING_BUFFERS_LOOPPLAN_H
#define PASSES_LOWERING_BUFFERS_LOOPPLAN_H

#include "passes/lowering/buffers/BodyEmitter.h"
#include <memory>

namespace attn {

// Vectors of a row that are summed side by side, and the cost from which on a term shares enough between them.
constexpr int64_t kMostBlocks = 4, kLongBody = 16;
// Rows that a window slides over at once.
constexpr int64_t kWindowRows = 4;

/// How the loops of a linalg.generic on buffers are run: which has its neighbouring values in the lanes of vectors,
/// which are parallel, which stand in one iteration.
struct LoopPlan {
  LoopPlan(mlir::linalg::GenericOp op, TargetAttr target);

  std::optional<int64_t> staticSize(int64_t loop) const { return mlir::getConstantIntValue(sizes[loop]); }
  /// Whether this sums few short terms for each element of a row, as windows that slide over it do.
  bool slides() const;

  mlir::linalg::GenericOp op;
  TargetAttr target;
  llvm::SmallVector<mlir::OpFoldResult> sizes; ///< written before `op`
  std::unique_ptr<BodyEmitter> emitter;
  /// The loop of a row: `lanes` of its values at once, or one by one. -1: there is no row, but sums of one element
  /// each.
  int64_t vectorLoop = -1, lanes = 1;
  /// Loops but that of a row: of parallel iterations, within one of them, and of sums, the innermost last.
  llvm::SmallVector<unsigned> outer, inner, reductions;
  bool masked = false;        ///< a rest of a row has lanes, too
  bool vectorReduces = false; ///< a row is summed
  bool unrollsTaps = false;   ///< the terms of the innermost sum stand one after the other

private:
  void chooseLanes();
  int64_t lastLoop() const;
  void takeInner();
  void unrollTaps(unsigned loop);

  llvm::SmallVector<mlir::utils::IteratorType> iterators;
};

} // namespace attn

#endif // PASSES_LOWERING_BUFFERS_LOOPPLAN_H
