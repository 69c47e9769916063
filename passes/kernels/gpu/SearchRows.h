#ifndef PASSES_KERNELS_GPU_SEARCHROWS_H
#define PASSES_KERNELS_GPU_SEARCHROWS_H

#include "passes/kernels/cpu/Search.h"
#include "passes/kernels/gpu/BlockBuilder.h"

namespace attn {

/// What a block does with its row of scores, whatever is chosen from it.
class ScoreRow {
public:
  static constexpr int64_t kThreads = 256;

  /// `shared`: an f32 a warp.
  ScoreRow(BlockBuilder &k, const SearchKernelSpec &spec, mlir::Value scores, mlir::Value size, mlir::Value shared)
      : k(k), spec(spec), scores(scores), size(size), shared(shared) {}

  mlir::Value element(mlir::Value n);
  /// The greatest score; stores the logarithm of the sum of exponentials.
  mlir::Value logSum(mlir::Value logSums);
  /// Whether the i32 `token` ends a sequence.
  mlir::Value isEnd(mlir::Value token);

private:
  BlockBuilder &k;
  const SearchKernelSpec &spec;
  mlir::Value scores, size, shared;
};

} // namespace attn

#endif // PASSES_KERNELS_GPU_SEARCHROWS_H
