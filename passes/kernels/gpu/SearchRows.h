#ifndef PASSES_KERNELS_GPU_SEARCHROWS_H
#define PASSES_KERNELS_GPU_SEARCHROWS_H

#include "passes/kernels/gpu/ThreadCode.h"
#include "passes/kernels/shared/SearchRow.h"

namespace attn {

/// A block of threads that share a row of scores, by way of shared memory.
class BlockTeam : public Team {
public:
  /// Opens a launch of a block for each of `rows`; `f.k` stands in it.
  static BlockTeam launch(KernelFunction &f, const Index &rows, int64_t threads);

  Index row; ///< the block's

  Num sum(const Num &mine) override;
  Num greatest(const Num &mine) override;
  Num least(const Num &mine) override;
  std::pair<Num, Num> sumsBefore(const Num &mine) override;
  void wait() override { block.barrier(); }

private:
  BlockTeam(Code &k, ThreadCode block, int64_t threads, Buffer words, Buffer parts)
      : Team(k, block.thread, threads), row(block.block), block(block), words(words), parts(parts) {}

  Num across(const Num &mine, llvm::function_ref<Num(Num, Num)> combine);
  Num sumOfParts(Index first, int64_t count);

  ThreadCode block;
  Buffer words; ///< an f32 for each warp
  Buffer parts; ///< an f64 for each thread, then for each lane of a warp
};

} // namespace attn

#endif // PASSES_KERNELS_GPU_SEARCHROWS_H
