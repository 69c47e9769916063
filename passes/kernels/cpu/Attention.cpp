#include "passes/kernels/cpu/Attention.h"

#include "passes/kernels/cpu/AttentionBlock.h"
#include "passes/kernels/cpu/AttentionRow.h"
#include "passes/kernels/shared/KernelFunction.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace attn {

using Dim = AttentionOp::Dim;

/// The block of queries from `begin` on, with as many registers as it fills.
static void emitBlock(AttentionCode &k, const Index &batch, const Index &head, const Index &begin, const Index &rows) {
  const AttentionSpec &spec = k.spec;
  int64_t vectors = spec.queryVectors;
  std::optional<int64_t> known = getConstantIntValue(rows.value());
  if (known)
    vectors = std::min(vectors, std::max<int64_t>(llvm::divideCeil(*known, k.lanes), 1));
  AttentionScratch scratch = AttentionScratch::allocate(k, vectors);
  // Whether rows are to be computed again, and the first row that was read; empty where none ever are.
  auto emit = [&](int64_t count) {
    Mask isAgain = emitAttentionBlock(k, scratch, batch, head, begin, count);
    SmallVector<std::tuple<Mask, Index>, 1> again;
    if (isAgain.value())
      again.push_back({isAgain, maximum(minimum(begin, rows - count * k.lanes), 0)});
    return again;
  };
  SmallVector<std::tuple<Mask, Index>, 1> again;
  // The last block may be a half one.
  int64_t tail = known ? *known % (vectors * k.lanes) : 1;
  if (vectors == 1 || tail == 0 || tail > k.lanes)
    again = emit(vectors);
  else
    again = k.choose(rows - begin > k.lanes, [&] { return emit(vectors); }, [&] { return emit(1); });
  if (again.empty())
    return;
  auto [isAgain, first] = again.front();
  k.when(unlikely(isAgain), [&, first = first] {
    emitEmptyRows(k, scratch, batch, head, begin, first, minimum(begin + vectors * k.lanes, rows));
  });
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

FailureOr<func::FuncOp> buildAttention(OpBuilder &builder, Location loc, const AttentionSpec &spec) {
  std::string reason;
  if (!canBuildAttention(spec, &reason))
    return emitError(loc, "cannot build an attention kernel: ") << reason;
  bool canBeFew = canEmitAttentionRow(spec);
  AttentionRowPlan plan;
  if (canBeFew)
    plan = AttentionRowPlan::get(spec);
  KernelFunction f(builder, loc, spec.symbol());
  for (MemRefType type : spec.types)
    f.buffer(type);
  AttentionCode k(f.k, spec, f.function.getArguments());
  Buffer partials;
  if (plan.isSplit)
    partials = k.scratch(plan.partialSize(spec));

  Index heads = k.size(Dim::H), rows = k.size(Dim::I);
  int64_t blockRows = spec.queryVectors * spec.lanes;
  Index blocks = ceilDiv(rows, blockRows);
  // A later block of queries sees more keys than an earlier one where a limit
  // moves: the first with the last one, and so on, make equal work of every cut.
  bool isTriangle = llvm::any_of(spec.limits, [](const KeyLimit &l) { return l.movesWithQuery && l.isUpper; }) &&
                    llvm::none_of(spec.limits, [](const KeyLimit &l) { return l.movesWithQuery && !l.isUpper; });
  Index total = k.size(Dim::B) * heads * blocks;
  // Few queries go one by one; whether they are few may be known only in the run.
  Mask isFew = k.truth(false);
  if (canBeFew) {
    isFew = listsKeys(spec) ? k.truth(true) : rows <= kMaxRowQueries;
    total = select(isFew, countAttentionRowTasks(k, plan, partials), total);
  }
  emitTasks(k, total, [&](Index task) {
    auto few = [&] { emitAttentionRows(k, plan, partials, task); };
    auto many = [&] {
      Index block = task % blocks, row = task / blocks;
      if (isTriangle) {
        Index half = block / 2;
        block = select(block % 2 > 0, blocks - 1 - half, half);
      }
      emitBlock(k, row / heads, row % heads, block * blockRows, rows);
    };
    if (std::optional<int64_t> known = getConstantIntValue(isFew.value()))
      *known ? few() : many();
    else
      k.when(isFew, few, many);
  });
  if (partials.value())
    emitTasks(k, select(isFew, countAttentionRowMerges(k, plan, partials), k.index(0)),
              [&](Index row) { emitAttentionRowMerge(k, plan, partials, row); });
  return f.function;
}

} // namespace attn
