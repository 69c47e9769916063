#include "passes/kernels/cpu/AttentionRowEmitter.h"
#include "passes/kernels/shared/KernelFunction.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include <numeric>

using namespace mlir;

namespace attn {

using Dim = AttentionOp::Dim;
using Values = LaneBuilder::Values;

/// The number of neighbouring heads that read the same keys and values.
static int64_t countSharingHeads(const AttentionSpec &spec) {
  int64_t common = 0;
  SmallVector<size_t, 2> operands{spec.value};
  if (spec.formula().hasKey)
    operands.push_back(spec.keyOperand);
  for (size_t operand : operands)
    for (AffineExpr expr : spec.maps[operand].getResults())
      if (AttentionOp::getNamedDim(expr) == unsigned(Dim::H))
        common = std::gcd(common, AttentionOp::getDivisor(expr));
  std::optional<int64_t> heads = spec.getStaticSize(Dim::H);
  if (heads)
    common = std::gcd(common, *heads);
  return std::max<int64_t>(common, 1);
}

static int64_t dividesUpTo(int64_t number, int64_t most) {
  for (int64_t n = std::min(number, most); n > 1; --n)
    if (number % n == 0)
      return n;
  return 1;
}

AttentionRowPlan AttentionRowPlan::get(const AttentionSpec &spec) {
  AttentionRowPlan plan;
  std::optional<int64_t> rows = spec.getStaticSize(Dim::I), keys = spec.getStaticSize(Dim::J),
                         heads = spec.getStaticSize(Dim::H), batch = spec.getStaticSize(Dim::B);
  bool isFew = rows && *rows <= kMaxRowQueries;
  if (isFew)
    plan.rows = std::max<int64_t>(*rows, 1);
  plan.mostRows = isFew ? plan.rows : kMaxRowQueries;
  plan.heads = dividesUpTo(countSharingHeads(spec), kMaxSharing);
  int64_t tasks = batch.value_or(1) * heads.value_or(1);
  // With adjacency lists each of many queries is a task.
  bool isEnough = listsKeys(spec) || (batch && heads && tasks / plan.heads >= kTasks);
  plan.isSplit = (isFew || !rows) && !isEnough && (!keys || *keys >= 2 * kKeysOfChunk);
  for (; plan.isSplit && plan.partialSize(spec) > kMaxPartials; plan.heads = dividesUpTo(plan.heads, plan.heads - 1))
    plan.isSplit = plan.heads > 1;
  while (!plan.isSplit && plan.heads > 1 && tasks / plan.heads < kMinTasks)
    plan.heads = dividesUpTo(plan.heads, plan.heads - 1);
  return plan;
}

int64_t AttentionRowPlan::recordSize(const AttentionSpec &spec) {
  return llvm::alignTo(*spec.getStaticSize(Dim::E), spec.lanes) + 2 * spec.lanes;
}

AttentionRowScratch AttentionRowScratch::allocate(LaneBuilder &k, const AttentionSpec &spec,
                                                  const AttentionRowPlan &plan) {
  AttentionRowScratch scratch;
  scratch.weights = k.scratch(llvm::alignTo(spec.keyBlock, k.lanes));
  scratch.records = k.scratch(plan.heads * plan.rows * AttentionRowPlan::recordSize(spec));
  if (spec.formula().hasKey)
    scratch.queries = k.scratch(plan.heads * plan.rows * queryWidth(spec));
  // A prefix shows keys outside the bounds of a row.
  if (listsKeys(spec) && llvm::none_of(spec.limits, [](const KeyLimit &limit) { return limit.isPrefix(); }))
    scratch.keys = k.scratch(llvm::alignTo(spec.keyBlock, k.lanes), k.b.getIndexType());
  return scratch;
}

int64_t AttentionRowScratch::queryWidth(const AttentionSpec &spec) {
  int64_t width = llvm::alignTo(*spec.getStaticSize(Dim::D), spec.lanes);
  return spec.formula().hasAlignment ? 2 * width : width;
}

namespace {

/// The heads and rows that one task computes, keys by keys: what one of them
/// has read is in the cache for the others.
class RowTask {
public:
  RowTask(LaneBuilder &k, const AttentionSpec &spec, const AttentionRowPlan &plan, ValueRange buffers, Value partials)
      : k(k), spec(spec), plan(plan), buffers(buffers), partials(partials), record(plan.recordSize(spec)),
        heads(getDimSize(k, spec, buffers, Dim::H)), rows(getDimSize(k, spec, buffers, Dim::I)),
        groups(k.ceilDiv(heads, plan.heads)), rowTasks(k.ceilDiv(rows, plan.rows)), chunks(k.index(1)) {
    if (!partials)
      return;
    // They depend on the sizes only: the bits are the same on any number of threads.
    Value tasks = k.max(k.mul(getDimSize(k, spec, buffers, Dim::B), groups), k.index(1));
    Value wanted = k.div(k.add(tasks, AttentionRowPlan::kTasks - 1), tasks);
    Value most = k.div(getDimSize(k, spec, buffers, Dim::J), k.index(AttentionRowPlan::kKeysOfChunk));
    chunks = k.max(k.min(wanted, most), k.index(1));
    isWhole = k.less(chunks, k.index(2));
  }
  Value count() { return k.mul(k.mul(getDimSize(k, spec, buffers, Dim::B), groups), k.mul(rowTasks, chunks)); }
  Value countMerges() {
    Value all = k.mul(k.mul(getDimSize(k, spec, buffers, Dim::B), heads), rows);
    return k.select(isWhole, k.index(0), all);
  }
  void emit(Value position);
  void emitMerge(Value position);

private:
  /// `body` for each of the task's rows, with the values that it carries along.
  Values fold(ValueRange init, llvm::function_ref<Values(RowEmitter &, ValueRange)> body);
  AttentionRowPlace placeOf(Value head, Value row, Value member);

  LaneBuilder &k;
  const AttentionSpec &spec;
  const AttentionRowPlan &plan;
  const ValueRange buffers;
  const Value partials;
  const int64_t record;
  Value heads, rows, groups, rowTasks, chunks;
  Value isWhole; ///< the keys are in one part after all
  AttentionRowScratch scratch;
  Value batch, firstHead, firstRow, chunk;
};

AttentionRowPlace RowTask::placeOf(Value head, Value row, Value member) {
  AttentionRowPlace place{batch, head, row, scratch.records, k.mul(member, record), {}};
  place.query = k.mul(member, AttentionRowScratch::queryWidth(spec));
  if (partials) {
    Value number = k.add(k.mul(k.add(k.mul(batch, heads), head), rows), row);
    number = k.mul(k.add(k.mul(number, chunks), chunk), record);
    auto type = MemRefType::get({ShapedType::kDynamic}, k.b.getF32Type());
    Value own = memref::CastOp::create(k.b, k.loc, type, scratch.records);
    Value shared = memref::CastOp::create(k.b, k.loc, type, partials);
    place.records = arith::SelectOp::create(k.b, k.loc, isWhole, own, shared);
    place.record = k.select(isWhole, place.record, number);
  }
  return place;
}

Values RowTask::fold(ValueRange init, llvm::function_ref<Values(RowEmitter &, ValueRange)> body) {
  auto one = [&](Value h, Value r, ValueRange carried) {
    AttentionRowPlace place = placeOf(k.add(firstHead, h), k.add(firstRow, r), k.add(k.mul(h, plan.rows), r));
    RowEmitter row(k, spec, buffers, scratch, place);
    return body(row, carried);
  };
  if (plan.heads * plan.rows == 1)
    return one(k.index(0), k.index(0), init);
  Value some = k.min(k.sub(heads, firstHead), k.index(plan.heads));
  return k.loop(k.index(0), some, 1, init, [&](Value h, ValueRange outer) {
    return k.loop(k.index(0), k.index(plan.rows), 1, outer,
                  [&](Value r, ValueRange carried) { return one(h, r, carried); });
  });
}

void RowTask::emit(Value position) {
  scratch = AttentionRowScratch::allocate(k, spec, plan);
  chunk = k.rem(position, chunks);
  position = k.div(position, chunks);
  firstRow = k.mul(k.rem(position, rowTasks), plan.rows);
  position = k.div(position, rowTasks);
  firstHead = k.mul(k.rem(position, groups), plan.heads);
  batch = k.div(position, groups);
  auto void_ = [](auto emit) {
    return [=](RowEmitter &row, ValueRange) {
      emit(row);
      return Values();
    };
  };
  Value numKeys = getDimSize(k, spec, buffers, Dim::J);
  Values range = fold({numKeys, k.index(0)}, [&](RowEmitter &row, ValueRange carried) {
    row.begin();
    return Values{k.min(carried[0], row.bounds.lower), k.max(carried[1], row.bounds.upper)};
  });
  // This task's share of the keys that its rows see.
  Value share = k.floorTo(k.add(k.div(k.sub(k.max(range[1], range[0]), range[0]), chunks), k.lanes), k.lanes);
  Value lower = range[0], upper = range[1];
  if (partials) {
    lower = k.min(k.add(lower, k.mul(chunk, share)), upper);
    upper = k.min(k.add(lower, share), upper);
  }
  if (!spec.blockLists.empty()) {
    fold({}, void_([&](RowEmitter &row) { row.addListedKeys(lower, upper); }));
  } else {
    k.loop(lower, upper, spec.keyBlock, [&](Value first) {
      Value last = k.min(k.add(first, spec.keyBlock), upper);
      fold({}, void_([&](RowEmitter &row) {
             if (plan.heads * plan.rows == 1)
               return row.addKeys(first, last);
             Value from = k.max(first, row.bounds.lower), to = k.min(last, row.bounds.upper);
             k.branch(k.less(from, to), [&] { row.addKeys(from, to); });
           }));
    });
    markLong(k.b);
  }
  auto finish = [&] { fold({}, void_([](RowEmitter &row) { row.finish(); })); };
  if (partials)
    k.branch(isWhole, finish);
  else
    finish();
}

/// Neighbours first, then pairs of them...: the depth of the sums is the logarithm of their number.
void RowTask::emitMerge(Value position) {
  scratch = AttentionRowScratch::allocate(k, spec, plan);
  chunk = k.index(0);
  Value row = k.rem(position, rows), rest = k.div(position, rows);
  batch = k.div(rest, heads);
  auto placeOfChunk = [&](Value n) {
    chunk = n;
    return placeOf(k.rem(rest, heads), row, k.index(0));
  };
  for (int64_t distance = 1; distance < AttentionRowPlan::kTasks; distance *= 2)
    k.loop(k.index(0), k.sub(chunks, k.index(distance)), 2 * distance, [&](Value n) {
      Value other = placeOfChunk(k.add(n, distance)).record;
      RowEmitter(k, spec, buffers, scratch, placeOfChunk(n)).merge(other);
    });
  RowEmitter(k, spec, buffers, scratch, placeOfChunk(k.index(0))).finish();
}

} // namespace

void emitAttentionRows(LaneBuilder &k, const AttentionSpec &spec, const AttentionRowPlan &plan, ValueRange buffers,
                       Value partials, Value position) {
  RowTask(k, spec, plan, buffers, partials).emit(position);
}

void emitAttentionRowMerge(LaneBuilder &k, const AttentionSpec &spec, const AttentionRowPlan &plan, ValueRange buffers,
                           Value partials, Value position) {
  RowTask(k, spec, plan, buffers, partials).emitMerge(position);
}

Value countAttentionRowTasks(LaneBuilder &k, const AttentionSpec &spec, const AttentionRowPlan &plan,
                             ValueRange buffers, Value partials) {
  return RowTask(k, spec, plan, buffers, partials).count();
}

Value countAttentionRowMerges(LaneBuilder &k, const AttentionSpec &spec, const AttentionRowPlan &plan,
                              ValueRange buffers, Value partials) {
  return RowTask(k, spec, plan, buffers, partials).countMerges();
}

} // namespace attn
