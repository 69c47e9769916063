#include "passes/kernels/cpu/Attention.h"

#include "passes/kernels/cpu/AttentionBlock.h"
#include "passes/kernels/cpu/AttentionRow.h"
#include "passes/kernels/shared/KernelFunction.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace attn {

using Dim = AttentionOp::Dim;

/// The registers of queries of a block: no more than there can be queries for.
static int64_t countVectors(const AttentionSpec &spec) {
  std::optional<int64_t> rows = spec.getStaticSize(Dim::I);
  return rows ? std::min(spec.queryVectors, std::max<int64_t>(llvm::divideCeil(*rows, spec.lanes), 1))
              : spec.queryVectors;
}

/// The block of queries from `begin` on, with as many registers as it fills. Where hidden keys may take part it joins
/// `queue`.
static void emitBlock(AttentionCode &k, const AttentionScratch &scratch, const QueuedRows &queue, const Index &batch,
                      const Index &head, const Index &begin, const Index &rows) {
  int64_t vectors = countVectors(k.spec);
  std::optional<int64_t> known = getConstantIntValue(rows.value());
  // The last block may be a half one.
  int64_t tail = known ? *known % (vectors * k.lanes) : 1;
  bool mayBeHalf = vectors > 1 && tail > 0 && tail <= k.lanes;
  Mask isWhole = mayBeHalf ? rows - begin > k.lanes : Mask();
  if (!k.spec.letsHiddenTakePart())
    return emitAttentionBlock(k, scratch, batch, head, begin, vectors, isWhole);
  auto addWhole = [&] { queue.addWhole(k, batch, head, begin); };
  auto addSingle = [&] { queue.addSingle(k, batch, head, begin); };
  if (vectors == 1)
    return addSingle();
  mayBeHalf ? k.when(isWhole, addWhole, addSingle) : addWhole();
}

/// `body` for each below `count`.
static void emitTasks(AttentionCode &k, const Index &count, llvm::function_ref<void(Index)> body) {
  k.parallel(count, [&](Index task) {
    // The greatest weight of a softmax is 1. Others may all be denormal, and still sum to 1.
    if (k.spec.normalizer == Normalizer::softmax)
      k.withoutDenormals([&] { body(task); });
    else
      body(task);
  });
}

namespace {
/// Few queries go one by one, and more of them in blocks; whether they are few may be known only in the run.
class AttentionTasks {
public:
  AttentionTasks(AttentionCode &k, const AttentionRowPlan *plan)
      : k(k), plan(plan), heads(k.size(Dim::H)), rows(k.size(Dim::I)), blockRows(k.spec.queryVectors * k.lanes),
        blocks(ceilDiv(rows, blockRows)), isFew(k.truth(false)) {
    if (plan)
      isFew = listsKeys(k.spec) ? k.truth(true) : rows <= kMaxRowQueries;
    if (plan && plan->isSplit)
      partials = k.scratch(plan->partialSize(k.spec));
  }

  void emit() {
    Index total = k.size(Dim::B) * heads * blocks;
    if (plan)
      total = select(isFew, countAttentionRowTasks(k, *plan, partials), total);
    if (!partials.value())
      return emitTasks(k, total, [&](Index task) { emitTask(task, k.truth(false)); });
    // The parts of split keys become one in a second round of the same loop: what ends a task is there once.
    Index merges = select(isFew, countAttentionRowMerges(k, *plan, partials), k.index(0));
    k.loop(0, 2, 1, [&](Index round) {
      Mask isMerge = round > 0;
      emitTasks(k, select(isMerge, merges, total), [&](Index task) { emitTask(task, isMerge); });
    });
  }

private:
  void emitTask(const Index &task, const Mask &isMerge) {
    const AttentionSpec &spec = k.spec;
    std::optional<int64_t> known = getConstantIntValue(isFew.value());
    bool letsHiddenTakePart = spec.letsHiddenTakePart();
    AttentionScratch scratch;
    QueuedRows queue;
    if (letsHiddenTakePart || !known || !*known)
      scratch = AttentionScratch::allocate(k, countVectors(spec));
    if (letsHiddenTakePart)
      // A block, of which each register may join again, or rows.
      queue = QueuedRows::allocate(k, std::max<int64_t>(1 + countVectors(spec), plan ? plan->heads * plan->rows : 0),
                                   !known || !*known ? countVectors(spec) : 0);
    auto few = [&] { emitAttentionRows(k, *plan, partials, queue, task); };
    auto many = [&] { emitBlockOf(task, scratch, queue); };
    auto compute = [&] { known ? *known ? few() : many() : k.when(isFew, few, many); };
    if (partials.value())
      k.when(isMerge, [&] { emitAttentionRowMerge(k, *plan, partials, queue, task); }, compute);
    else
      compute();
    if (letsHiddenTakePart)
      queue.emit(k, scratch);
  }

  void emitBlockOf(const Index &task, const AttentionScratch &scratch, const QueuedRows &queue) {
    // A later block of queries sees more keys than an earlier one where a limit
    // moves: the first with the last one, and so on, make equal work of every cut.
    bool isTriangle = llvm::any_of(k.spec.limits, [](const KeyLimit &l) { return l.movesWithQuery && l.isUpper; }) &&
                      llvm::none_of(k.spec.limits, [](const KeyLimit &l) { return l.movesWithQuery && !l.isUpper; });
    Index block = task % blocks, row = task / blocks;
    if (isTriangle) {
      Index half = block / 2;
      block = select(block % 2 > 0, blocks - 1 - half, half);
    }
    emitBlock(k, scratch, queue, row / heads, row % heads, block * blockRows, rows);
  }

  AttentionCode &k;
  const AttentionRowPlan *plan; ///< null where blocks alone serve
  Index heads, rows;
  int64_t blockRows;
  Index blocks;
  Mask isFew;
  Buffer partials; ///< null where keys are not split
};
} // namespace

func::FuncOp buildAttention(OpBuilder &builder, Location loc, const AttentionSpec &spec) {
  assert(canBuildAttention(spec));
  std::optional<AttentionRowPlan> plan;
  if (canEmitAttentionRow(spec))
    plan = AttentionRowPlan::get(spec);
  KernelFunction f(builder, loc, spec.symbol());
  for (MemRefType type : spec.types)
    f.buffer(type);
  AttentionCode k(f.k, spec, f.function.getArguments());
  AttentionTasks(k, plan ? &*plan : nullptr).emit();
  return f.function;
}

} // namespace attn
