#include "passes/kernels/cpu/AttentionRowEmitter.h"
#include "passes/kernels/shared/KernelFunction.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include <numeric>

using namespace mlir;

namespace attn {

using Dim = AttentionOp::Dim;

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

AttentionRowScratch AttentionRowScratch::allocate(AttentionCode &k, const AttentionRowPlan &plan) {
  const AttentionSpec &spec = k.spec;
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
  RowTask(AttentionCode &k, const AttentionRowPlan &plan, const Buffer &partials, const QueuedRows &queue = {})
      : k(k), spec(k.spec), plan(plan), partials(partials), queue(queue), record(plan.recordSize(spec)),
        heads(k.size(Dim::H)), rows(k.size(Dim::I)), groups(ceilDiv(heads, plan.heads)),
        rowTasks(ceilDiv(rows, plan.rows)), chunks(k.index(1)) {
    if (!partials.value())
      return;
    // They depend on the sizes only: the bits are the same on any number of threads.
    Index tasks = maximum(k.size(Dim::B) * groups, 1);
    Index wanted = (tasks + (AttentionRowPlan::kTasks - 1)) / tasks;
    Index most = k.size(Dim::J) / AttentionRowPlan::kKeysOfChunk;
    chunks = maximum(minimum(wanted, most), 1);
    isWhole = chunks < 2;
  }
  Index count() { return k.size(Dim::B) * groups * (rowTasks * chunks); }
  Index countMerges() { return select(isWhole, k.index(0), k.size(Dim::B) * heads * rows); }
  void emit(Index task);
  void emitMerge(const Index &position);

private:
  /// `body` for each of the task's rows, with the indices that it carries along.
  Indices fold(const Indices &init, llvm::function_ref<Indices(RowEmitter &, const Indices &)> body);
  void forRows(llvm::function_ref<void(RowEmitter &)> body) {
    fold({}, [&](RowEmitter &row, const Indices &none) {
      body(row);
      return none;
    });
  }
  AttentionRowPlace placeOf(const Index &head, const Index &row, const Index &member);

  AttentionCode &k;
  const AttentionSpec &spec;
  const AttentionRowPlan &plan;
  const Buffer partials; ///< null where keys are not split
  const QueuedRows queue;
  const int64_t record;
  Index heads, rows, groups, rowTasks, chunks;
  Mask isWhole; ///< the keys are in one part after all
  AttentionRowScratch scratch;
  Index batch, firstHead, firstRow, chunk;
};

AttentionRowPlace RowTask::placeOf(const Index &head, const Index &row, const Index &member) {
  AttentionRowPlace place{batch, head, row, scratch.records, member * record, {}};
  place.query = member * AttentionRowScratch::queryWidth(spec);
  if (!partials.value())
    return place;
  Index number = (batch * heads + head) * rows + row;
  number = (number * chunks + chunk) * record;
  auto type = MemRefType::get({ShapedType::kDynamic}, k.f32Type());
  auto open = [&](const Buffer &memory) { return k.asBuffer(memref::CastOp::create(k.b, k.loc, type, memory)); };
  Buffer own = open(scratch.records), shared = open(partials);
  place.records = select(isWhole, own, shared);
  place.record = select(isWhole, place.record, number);
  return place;
}

Indices RowTask::fold(const Indices &init, llvm::function_ref<Indices(RowEmitter &, const Indices &)> body) {
  auto one = [&](const Index &h, const Index &r, const Indices &carried) {
    Index head = firstHead + h, row = firstRow + r;
    RowEmitter emitter(k, scratch, placeOf(head, row, h * plan.rows + r));
    return body(emitter, carried);
  };
  if (plan.heads * plan.rows == 1)
    return one(k.index(0), k.index(0), init);
  Index some = minimum(heads - firstHead, plan.heads);
  return k.loop(0, some, 1, init, [&](Index h, Indices outer) {
    return k.loop(0, plan.rows, 1, outer, [&](Index r, Indices carried) { return one(h, r, carried); });
  });
}

void RowTask::emit(Index task) {
  scratch = AttentionRowScratch::allocate(k, plan);
  chunk = task % chunks;
  task = task / chunks;
  firstRow = task % rowTasks * plan.rows;
  task = task / rowTasks;
  firstHead = task % groups * plan.heads;
  batch = task / groups;
  Indices range = fold({k.size(Dim::J), k.index(0)}, [&](RowEmitter &row, const Indices &range) {
    row.begin();
    return Indices{minimum(range[0], row.lower), maximum(range[1], row.upper)};
  });
  // This task's share of the keys that its rows see.
  Index lower = range[0], upper = range[1];
  Index share = floorTo((maximum(upper, lower) - lower) / chunks + k.lanes, k.lanes);
  if (partials.value()) {
    lower = minimum(lower + chunk * share, upper);
    upper = minimum(lower + share, upper);
  }
  if (!spec.blockLists.empty()) {
    forRows([&](RowEmitter &row) { row.addListedKeys(lower, upper); });
  } else {
    k.loop(lower, upper, spec.keyBlock, [&](Index first) {
      Index last = minimum(first + spec.keyBlock, upper);
      forRows([&](RowEmitter &row) {
        if (plan.heads * plan.rows == 1)
          return row.addKeys(first, last);
        Index from = maximum(first, row.lower), to = minimum(last, row.upper);
        k.when(from < to, [&] { row.addKeys(from, to); });
      });
    });
    markLong(k.b);
  }
  auto finish = [&] { forRows([&](RowEmitter &row) { row.finish(queue); }); };
  if (partials.value())
    k.when(isWhole, finish);
  else
    finish();
}

/// Neighbours first, then pairs of them...: the depth of the sums is the logarithm of their number.
void RowTask::emitMerge(const Index &position) {
  scratch = AttentionRowScratch::allocate(k, plan);
  chunk = k.index(0);
  Index row = position % rows, rest = position / rows;
  batch = rest / heads;
  auto placeOfChunk = [&](const Index &n) {
    chunk = n;
    return placeOf(rest % heads, row, k.index(0));
  };
  for (int64_t distance = 1; distance < AttentionRowPlan::kTasks; distance *= 2)
    k.loop(0, chunks - distance, 2 * distance, [&](Index n) {
      Index other = placeOfChunk(n + distance).record;
      RowEmitter(k, scratch, placeOfChunk(n)).merge(other);
    });
  RowEmitter(k, scratch, placeOfChunk(k.index(0))).finish(queue);
}

} // namespace

void emitAttentionRows(AttentionCode &k, const AttentionRowPlan &plan, const Buffer &partials, const QueuedRows &queue,
                       const Index &task) {
  RowTask(k, plan, partials, queue).emit(task);
}

void emitAttentionRowMerge(AttentionCode &k, const AttentionRowPlan &plan, const Buffer &partials,
                           const QueuedRows &queue, const Index &row) {
  RowTask(k, plan, partials, queue).emitMerge(row);
}

Index countAttentionRowTasks(AttentionCode &k, const AttentionRowPlan &plan, const Buffer &partials) {
  return RowTask(k, plan, partials).count();
}

Index countAttentionRowMerges(AttentionCode &k, const AttentionRowPlan &plan, const Buffer &partials) {
  return RowTask(k, plan, partials).countMerges();
}

} // namespace attn
