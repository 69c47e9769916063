#include "passes/kernels/cpu/Attention.h"

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "passes/kernels/cpu/AttentionBlock.h"
#include "passes/kernels/cpu/AttentionRow.h"
#include "passes/kernels/shared/AttentionMask.h"
#include "passes/kernels/shared/AttentionOperands.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace attn {

using Dim = AttentionOp::Dim;

/// The block of queries from `begin` on, with as many registers as it fills.
static void emitBlock(LaneBuilder &k, const AttentionSpec &spec, ValueRange buffers, Value batch, Value head,
                      Value begin, Value rows) {
  int64_t vectors = spec.queryVectors;
  std::optional<int64_t> known = LaneBuilder::constant(rows);
  if (known)
    vectors = std::min(vectors, std::max<int64_t>(llvm::divideCeil(*known, k.lanes), 1));
  AttentionScratch scratch = AttentionScratch::allocate(k, spec, vectors);
  // Whether rows are to be computed again, and the first row that was read.
  auto emit = [&](int64_t count) -> LaneBuilder::Values {
    Value isAgain = emitAttentionBlock(k, spec, buffers, scratch, batch, head, begin, count);
    if (!isAgain)
      return {};
    return {isAgain, k.max(k.min(begin, k.sub(rows, k.index(count * k.lanes))), k.index(0))};
  };
  LaneBuilder::Values again;
  // The last block may be a half one.
  int64_t tail = known ? *known % (vectors * k.lanes) : 1;
  if (vectors == 1 || tail == 0 || tail > k.lanes) {
    again = emit(vectors);
  } else {
    SmallVector<Type> types;
    if (spec.letsHiddenTakePart())
      types.append({k.b.getI1Type(), k.b.getIndexType()});
    again = k.branch(
        k.less(k.index(k.lanes), k.sub(rows, begin)), types, [&] { return emit(vectors); }, [&] { return emit(1); });
  }
  if (again.empty())
    return;
  k.branch(k.unlikely(again[0]), [&] {
    emitEmptyRows(k, spec, buffers, scratch, batch, head, begin, again[1],
                  k.min(k.add(begin, vectors * k.lanes), rows));
  });
}

FailureOr<func::FuncOp> buildAttention(OpBuilder &builder, Location loc, const AttentionSpec &spec) {
  std::string reason;
  if (!canBuildAttention(spec, &reason))
    return emitError(loc, "cannot build an attention kernel: ") << reason;
  SmallVector<Type> types(spec.types.begin(), spec.types.end());
  bool canBeFew = canEmitAttentionRow(spec);
  AttentionRowPlan plan;
  if (canBeFew)
    plan = AttentionRowPlan::get(spec);
  auto function = func::FuncOp::create(builder, loc, spec.symbol(), builder.getFunctionType(types, {}));
  function->setAttr(AttnDialect::kKernelAttr, builder.getUnitAttr());
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(function.addEntryBlock());
  LaneBuilder k(builder, loc, spec.lanes, spec.hasScalef);
  ValueRange buffers = function.getArguments();
  Value partials = plan.isSplit ? k.scratch(plan.partialSize(spec)) : Value();

  Value heads = getDimSize(k, spec, buffers, Dim::H), rows = getDimSize(k, spec, buffers, Dim::I);
  int64_t blockRows = spec.queryVectors * spec.lanes;
  Value blocks = k.ceilDiv(rows, blockRows);
  // A later block of queries sees more keys than an earlier one where a limit
  // moves: the first with the last one, and so on, make equal work of every cut.
  bool isTriangle = llvm::any_of(spec.limits, [](const KeyLimit &l) { return l.movesWithQuery && l.isUpper; }) &&
                    llvm::none_of(spec.limits, [](const KeyLimit &l) { return l.movesWithQuery && !l.isUpper; });
  Value batches = getDimSize(k, spec, buffers, Dim::B), total = k.mul(k.mul(batches, heads), blocks);
  // Few queries go one by one; whether they are few may be known only in the run.
  Value isFew;
  if (canBeFew) {
    isFew = listsKeys(spec) ? arith::ConstantOp::create(builder, loc, builder.getBoolAttr(true)).getResult()
                            : k.less(rows, k.index(kMaxRowQueries + 1));
    total = k.select(isFew, countAttentionRowTasks(k, spec, plan, buffers, partials), total);
  }
  auto parallel = [&](Value count, llvm::function_ref<void(Value)> body) {
    scf::ParallelOp::create(builder, loc, ValueRange{k.index(0)}, ValueRange{count}, ValueRange{k.index(1)},
                            [&](OpBuilder &, Location, ValueRange position) {
                              // The greatest weight of a softmax is 1. Others may all be denormal, and still sum to 1.
                              if (spec.normalizer == Normalizer::softmax)
                                k.withoutDenormals([&] { body(position[0]); });
                              else
                                body(position[0]);
                            });
  };
  parallel(total, [&](Value position) {
    auto few = [&] {
      emitAttentionRows(k, spec, plan, buffers, partials, position);
      return LaneBuilder::Values();
    };
    auto many = [&] {
      Value block = k.rem(position, blocks), row = k.div(position, blocks);
      if (isTriangle) {
        Value half = k.div(block, k.index(2)), isOdd = k.less(k.index(0), k.rem(block, k.index(2)));
        block = k.select(isOdd, k.sub(k.sub(blocks, k.index(1)), half), half);
      }
      emitBlock(k, spec, buffers, k.div(row, heads), k.rem(row, heads), k.mul(block, blockRows), rows);
      return LaneBuilder::Values();
    };
    std::optional<int64_t> known = isFew ? LaneBuilder::constant(isFew) : 0;
    if (!known)
      k.branch(isFew, TypeRange(), few, many);
    else if (*known)
      few();
    else
      many();
  });
  if (partials)
    parallel(k.select(isFew, countAttentionRowMerges(k, spec, plan, buffers, partials), k.index(0)),
             [&](Value position) { emitAttentionRowMerge(k, spec, plan, buffers, partials, position); });
  func::ReturnOp::create(builder, loc);
  return function;
}

} // namespace attn
