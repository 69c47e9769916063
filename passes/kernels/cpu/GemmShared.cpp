// Panels in 16 bits that several blocks of rows share: the first block writes them out as f32 for the others. To widen
// them in registers for each block takes the ports that multiply: a quarter more for f16 on Intel, whose conversion is
// two instructions. A loop of its own for it took 3 to 5 % of the products of 32 and 197 rows (AMD Zen 4, one thread).
#include "passes/kernels/cpu/GemmEmitter.h"

using namespace mlir;

namespace attn {

namespace {

/// Blocks that share a panel, and tasks that a thread should get: fewer share one where there are few panels.
constexpr int64_t kFewestBlocks = 2, kMostBlocks = 16, kTasksOfThread = 4;

} // namespace

void GemmEmitter::emitSharedTasks(const Mask &usesTiles) {
  Index fair = numPanels * blocks / (numThreads() * kTasksOfThread);
  Index most = maximum(minimum(fair, kMostBlocks), kFewestBlocks), groups = ceilDiv(blocks, most);
  Index perTask = ceilDiv(blocks, maximum(groups, 1)); // of one size
  Index tasks = select(usesTiles, k.index(0), numPanels * groups);
  if (ShapedType::isDynamic(spec.m))
    tasks = select(blocks > 1, tasks, k.index(0));
  GemmEmitter shared(*this); // whose places those of other tasks are not
  if (spec.prefetchesNext)
    shared.emitPieces(tasks);
  k.parallel(tasks, [&](Index task) { shared.emitSharedTask(task, perTask); });
}

/// A task is one panel and `perTask` blocks, or what is left of them.
void GemmEmitter::emitSharedTask(const Index &task, const Index &perTask) {
  if (!isDirect)
    scratch = k.scratch({spec.tileRows, width}, f32);
  Buffer widened = k.scratch({static_cast<int64_t>(llvm::alignTo(spec.k, spec.rowsPerStep())), width}, f32);
  batch = at = k.index(0);
  inChunk = k.index(1);
  panel = panelAt = task % numPanels;
  Index first = task / numPanels * perTask, end = minimum(first + perTask, blocks), sharing = end - first;
  prefetchStep = ceilDiv(k.index(width), sharing);
  Index following = findNext(task, k.truth(false));
  placeBlock(first);
  prefetchAt = following;
  filled = widened;
  emitBlock();
  filled.reset();
  wide = widened;
  k.loop(first + 1, end, 1, [&](Index block) {
    placeBlock(block);
    prefetchAt = following + (block - first) * (prefetchStep * depth);
    emitBlock();
  });
}

} // namespace attn
