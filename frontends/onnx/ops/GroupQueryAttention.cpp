#include "frontends/onnx/ops/ContribAttention.h"
#include "frontends/onnx/ops/Families.h"
#include "frontends/onnx/ops/Loops.h"
#include "frontends/onnx/ops/Rotary.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

// GroupQueryAttention and SparseAttention of ONNX Runtime (com.microsoft): grouped heads, rotary
// embedding and a cache that begins elsewhere for each row of the batch.

using namespace mlir;

namespace attn::onnx {
namespace {

struct GroupQuery {
  HeadTensor query, key, value; // heads inside
  Tensor offsets, lengths;      // int64 [B]: keys before the queries, keys in all
  Expr total;
};

LogicalResult refuseGroupQuery(Node &n) {
  for (size_t i = 12; i < 16; ++i)
    if (n.hasInput(i))
      return n.unsupported() << "input " << i << " (quantised caches or normalised heads)";
  if (n.hasOutput(3) || n.intAttr("qk_output", 0))
    return n.unsupported() << "the output output_qk";
  if (n.intAttr("sliding_window_cache", 0) > 0)
    return n.unsupported() << "sliding_window_cache = 1";
  return success();
}

/// A score for each head that takes part in its softmaxes: input 11, or 0 of smooth_softmax.
FailureOr<std::optional<Tensor>> readSink(Node &n, const GroupQuery &g) {
  if (n.hasInput(11)) {
    const Tensor &sink = n.input(11);
    if (sink.rank() != 1 || !isFloat(sink.dtype))
      return n.error() << "expects head_sink as floats of rank 1, has " << dtypeName(sink.dtype) << " of rank "
                       << sink.rank();
    if (failed(n.requireEqual(sink.shape[0], g.query.heads(), "{0} sinks for {1} heads")))
      return failure();
    return std::optional<Tensor>(sink);
  }
  if (n.intAttr("smooth_softmax", 0) <= 0)
    return std::optional<Tensor>();
  Tensor zeros;
  zeros.dtype = DType::F32;
  zeros.shape.push_back(g.query.heads());
  zeros.value = n.filled(DType::F32, zeros.shape, n.constant(DType::F32, 0));
  return std::optional<Tensor>(zeros);
}

/// Where an operator has its inputs, and what its numbers of keys count beside the last key's place.
struct Inputs {
  size_t lengths, total, cosine, positions;
  int64_t more;
};
constexpr Inputs kGroupQuery{5, 6, 7, 9, 0}, kSparse{8, 7, 9, 11, 1};

/// Lengths and offsets from the numbers of keys and the total: a prompt, whose
/// queries are all the keys, begins at 0.
LogicalResult readLengths(Node &n, GroupQuery &g, const Inputs &inputs) {
  const Expr batch = g.query.batch(), queries = g.query.length();
  if (!n.hasInput(inputs.total) || !n.hasInput(inputs.lengths))
    return n.error() << "expects numbers of keys (input " << inputs.lengths << ") and total_sequence_length (input "
                     << inputs.total << ")";
  FailureOr<Expr> total = readNumber(n, inputs.total, "total_sequence_length");
  if (failed(total))
    return failure();
  g.total = *total;
  const Tensor &given = n.input(inputs.lengths);
  if (given.dtype != DType::I32 && given.dtype != DType::I64)
    return n.error() << "expects numbers of keys (input " << inputs.lengths << ") as int32, has "
                     << dtypeName(given.dtype);
  FailureOr<Tensor> ends = n.reshape(given, batch);
  if (failed(ends))
    return failure();
  if (failed(n.requireAtMost(queries, g.total, "there are {0} queries and a total_sequence_length of {1}")))
    return failure();
  // Each in [0, total), plus one.
  Value source = n.value(n.cast(*ends, DType::I64)), bound = n.symbols().materialize(n.builder(), n.loc(), g.total);
  Tensor lengths;
  lengths.dtype = DType::I64;
  lengths.shape.push_back(batch);
  lengths.value = n.generate(DType::I64, lengths.shape, [&](OpBuilder &b, Location loc, ValueRange at) -> Value {
    Num last = load(b, loc, source, DType::I64, at);
    Num end = fromIndex(b, loc, DType::I64, placeIn(n, b, loc, (last - last.constant(inputs.more)).value(), bound));
    return (end + end.constant(1)).value();
  });
  g.lengths = lengths;
  Expr prompt = n.symbols().equal(queries, g.total);
  FailureOr<Tensor> offsets =
      formula(n, DType::I64, {lengths, scalarTensor(DType::I64, queries), scalarTensor(DType::I64, prompt)},
              [](ArrayRef<Num> v) {
                Num zero = v[0].constant(0);
                return select(v[2] == zero, maximum(zero, v[0] - v[1]), zero);
              });
  if (failed(offsets))
    return failure();
  g.offsets = *offsets;
  return success();
}

FailureOr<GroupQuery> readGroupQuery(Node &n, const Inputs &inputs) {
  if (failed(expectInputs(n, 1)) || failed(expectFloat(n, 0)))
    return failure();
  FailureOr<int64_t> heads = readHeadCount(n, "num_heads"), keyHeads = readHeadCount(n, "kv_num_heads");
  if (failed(heads) || failed(keyHeads))
    return failure();
  const Tensor &x = n.input(0);
  if (x.rank() != 3)
    return n.error() << "expects a query of rank 3, has rank " << x.rank();
  Tensor parts[3] = {x, x, x};
  if (n.hasInput(1)) {
    if (!n.hasInput(2))
      return n.error() << "has a key and no value";
    parts[1] = n.input(1);
    parts[2] = n.input(2);
  } else {
    Expr width = n.symbols().floorDiv(x.shape[2], *heads + 2 * *keyHeads), begin(0);
    if (failed(n.requireEqual(width * Expr(*heads + 2 * *keyHeads), x.shape[2], "heads cover {0} of {1} elements")))
      return failure();
    for (int64_t i : {0, 1, 2}) {
      Expr count = width * Expr(i ? *keyHeads : *heads);
      parts[i] = n.slice(x, 2, begin, count);
      begin = begin + count;
    }
  }
  FailureOr<HeadTensor> query = splitHeads(n, parts[0], *heads), key = splitHeads(n, parts[1], *keyHeads);
  FailureOr<HeadTensor> value = splitHeads(n, parts[2], *keyHeads);
  if (failed(query) || failed(key) || failed(value))
    return failure();
  GroupQuery g{*query, *key, *value, {}, {}, {}};
  if (failed(n.requireEqual(g.query.length(), g.key.length(), "there are {0} queries and {1} new keys")) ||
      failed(readLengths(n, g, inputs)))
    return failure();
  return g;
}

/// Query and key turned by the angles of their positions.
LogicalResult rotate(Node &n, GroupQuery &g, const Inputs &inputs) {
  if (!n.hasInput(inputs.cosine) || !n.hasInput(inputs.cosine + 1))
    return n.error() << "has do_rotary = 1, and no cos_cache or no sin_cache";
  Tensor ids;
  if (n.hasInput(inputs.positions)) {
    ids = n.input(inputs.positions);
  } else {
    Value offsets = n.value(g.offsets);
    ids.dtype = DType::I64;
    ids.shape.append({g.query.batch(), g.query.length()});
    ids.value = n.generate(DType::I64, ids.shape, [&](OpBuilder &b, Location loc, ValueRange at) -> Value {
      return (load(b, loc, offsets, DType::I64, at[0]) + fromIndex(b, loc, DType::I64, at[1])).value();
    });
  }
  FailureOr<Tensor> cosine = gatherRows(n, n.input(inputs.cosine), ids);
  FailureOr<Tensor> sine = gatherRows(n, n.input(inputs.cosine + 1), ids);
  if (failed(cosine) || failed(sine))
    return failure();
  for (HeadTensor *t : {&g.query, &g.key}) {
    Rotated r{t->tensor, 1, cosine->shape[2], n.intAttr("rotary_interleaved", 0) != 0};
    if (failed(n.requireAtMost(r.pairs * Expr(2), t->width(), "{0} elements are rotated, a head has {1}")))
      return failure();
    FailureOr<Tensor> c = alignAngles(n, *cosine, r), s = alignAngles(n, *sine, r);
    if (failed(c) || failed(s))
      return failure();
    FailureOr<Tensor> turned = rotated(n, r, *c, *s);
    if (failed(turned))
      return failure();
    t->tensor = *turned;
  }
  return success();
}

/// The cache [B, N, length, D] of keys (`which` 0) or values (1), an output: the past, and the new rows of each batch
/// from its offset on.
FailureOr<HeadTensor> cached(Node &n, const GroupQuery &g, size_t which, const HeadTensor &t, const Expr &length) {
  size_t pastInput = 3 + which;
  OpBuilder &b = n.builder();
  Tensor next = headsOutside(n, t), out;
  out.dtype = next.dtype;
  out.shape = next.shape;
  out.shape[2] = length;
  Value cache = n.filled(out.dtype, out.shape, n.constant(out.dtype, 0));
  SmallVector<OpFoldResult> offsets(4, b.getIndexAttr(0)), strides(4, b.getIndexAttr(1)), sizes;
  auto sizesOf = [&](const Tensor &t) {
    sizes.clear();
    for (const Expr &size : t.shape)
      sizes.push_back(n.symbols().size(b, n.loc(), size));
  };
  if (n.hasInput(pastInput)) {
    const Tensor &past = n.input(pastInput);
    if (past.rank() != 4 || past.dtype != out.dtype)
      return n.error() << "expects a past of rank 4 and type " << dtypeName(out.dtype);
    for (int64_t d : {0, 1, 3})
      if (failed(n.requireEqual(past.shape[d], out.shape[d], "sizes {0} of the past and {1} differ")))
        return failure();
    if (failed(n.requireAtMost(past.shape[2], length, "a past of {0} rows for a cache of {1}")))
      return failure();
    sizesOf(past);
    cache = tensor::InsertSliceOp::create(b, n.loc(), n.value(past), cache, offsets, sizes, strides);
  }
  // A row that would leave the cache ends the run.
  Expr room = length - next.shape[2] + Expr(1);
  Value begins = n.value(g.offsets), bound = n.symbols().materialize(b, n.loc(), room), source = n.value(next);
  sizesOf(next);
  sizes[0] = b.getIndexAttr(1);
  SmallVector<Expr, 4> one(next.shape);
  one[0] = 1;
  RankedTensorType rowType = n.type(next.dtype, one);
  auto body = [&](OpBuilder &b, Location loc, ValueRange at, ValueRange carried) -> SmallVector<Value> {
    SmallVector<OpFoldResult> from(4, b.getIndexAttr(0)), to(4, b.getIndexAttr(0));
    from[0] = to[0] = at[0];
    to[2] = checkedIndex(n, b, loc, load(b, loc, begins, DType::I64, at[0]).value(), bound);
    Value row = tensor::ExtractSliceOp::create(b, loc, rowType, source, from, sizes, strides);
    return {tensor::InsertSliceOp::create(b, loc, row, carried[0], to, sizes, strides)};
  };
  out.value = sequential(b, n.loc(), n.symbols().materialize(b, n.loc(), next.shape[0]), cache, body)[0];
  n.setOutput(1 + which, out);
  return HeadTensor{out, false};
}

LogicalResult importGroupQueryAttention(Node &n) {
  if (failed(refuseGroupQuery(n)))
    return failure();
  FailureOr<GroupQuery> g = readGroupQuery(n, kGroupQuery);
  if (failed(g) || (n.intAttr("do_rotary", 0) && failed(rotate(n, *g, kGroupQuery))))
    return failure();
  if (n.hasInput(3) != n.hasInput(4))
    return n.error() << "expects past_key and past_value together, has one";
  Expr length = g->total;
  if (n.hasInput(3) && n.input(3).rank() == 4)
    length = n.symbols().max(length, n.input(3).shape[2]);
  if (failed(n.requireAtMost(g->query.length(), length, "there are {0} new keys for a cache of {1}")))
    return failure();
  FailureOr<HeadTensor> key = cached(n, *g, 0, g->key, length), value = cached(n, *g, 1, g->value, length);
  if (failed(key) || failed(value))
    return failure();
  // A bias has a column for each of the keys that there are, and none for the room behind them.
  if (n.hasInput(10) && n.input(10).rank() && n.symbols().isEqual(n.input(10).shape.back(), length) != true) {
    key->tensor = n.slice(key->tensor, 2, 0, g->total);
    value->tensor = n.slice(value->tensor, 2, 0, g->total);
  }
  AttentionOperands o{g->query, *key, *value, true, 1, std::nullopt, {}, std::nullopt, std::nullopt};
  if (failed(checkSizes(n, o)))
    return failure();
  FailureOr<double> scale = readScale(n, o);
  if (failed(scale))
    return failure();
  ScoreRule rule = ScoreRule::scaled(*scale, n.floatAttr("softcap", 0.0));
  if (failed(addMasks(n, rule, n.numInputs(), 10, o.sizes)) || failed(rule.addLengths(n, g->lengths, o.sizes)))
    return failure();
  int64_t window = n.intAttr("local_window_size", -1);
  bool causal = n.intAttr("causal", 1) != 0;
  if (causal || window >= 0)
    // ONNX Runtime counts the query's own key as one of the window.
    rule.addWindow(window >= 0 ? std::max<int64_t>(window - 1, 0) : -1, causal ? 0 : -1, g->offsets);
  FailureOr<std::optional<Tensor>> sink = readSink(n, *g);
  if (failed(sink))
    return failure();
  FailureOr<Tensor> y = *sink ? attendWithSink(n, o, rule, **sink) : attend(n, o, rule);
  if (failed(y))
    return failure();
  n.setOutput(0, *y);
  return success();
}

//===----------------------------------------------------------------------===//
// SparseAttention
//===----------------------------------------------------------------------===//

/// [layouts, blocks, blocks]: which blocks of keys a block of queries sees, from rows of columns.
FailureOr<Tensor> visibleBlocks(Node &n) {
  const Tensor &rows = n.input(5), &columns = n.input(6);
  if (rows.rank() != 2 || columns.rank() != 2 || rows.dtype != DType::I32 || columns.dtype != DType::I32)
    return n.error() << "expects block_row_indices and block_col_indices as int32 of rank 2, has "
                     << dtypeName(rows.dtype) << " and " << dtypeName(columns.dtype) << " of ranks " << rows.rank()
                     << " and " << columns.rank();
  if (failed(n.requireEqual(rows.shape[0], columns.shape[0], "{0} layouts of rows and {1} of columns")))
    return failure();
  if (failed(n.requireAtMost(1, rows.shape[0], "there are {1} layouts")) ||
      failed(n.requireAtMost(1, rows.shape[1], "rows of {1} numbers, one more than there are blocks")))
    return failure();
  Expr blocks = rows.shape[1] - Expr(1);
  Value begins = n.value(rows), numbers = n.value(columns);
  Value count = n.symbols().materialize(n.builder(), n.loc(), columns.shape[1]);
  Tensor seen;
  seen.dtype = DType::Bool;
  seen.shape.append({rows.shape[0], blocks, blocks});
  seen.value = n.generate(DType::Bool, seen.shape, [&](OpBuilder &b, Location loc, ValueRange at) -> Value {
    Value one = arith::ConstantIndexOp::create(b, loc, 1), next = arith::AddIOp::create(b, loc, at[1], one);
    Value ends = arith::AddIOp::create(b, loc, count, one); // which [first, end) is within, in order
    Value from = placeIn(n, b, loc, load(b, loc, begins, DType::I32, {at[0], at[1]}).value(), ends);
    Num first = fromIndex(b, loc, DType::I32, from), last = load(b, loc, begins, DType::I32, {at[0], next});
    Value size = placeIn(n, b, loc, (last - first).value(), arith::SubIOp::create(b, loc, ends, from));
    Num end = first + fromIndex(b, loc, DType::I32, size);
    Num column = fromIndex(b, loc, DType::I32, at[2]);
    auto body = [&](OpBuilder &b, Location loc, ValueRange k, ValueRange carried) -> SmallVector<Value> {
      Num place = fromIndex(b, loc, DType::I32, k[0]);
      Num hit = (place >= first) & (place < end) & (load(b, loc, numbers, DType::I32, {at[0], k[0]}) == column);
      return {(Num(b, loc, DType::I8, carried[0]) | convert(hit, DType::I8)).value()};
    };
    Value none = constantNum(b, loc, DType::I8, int64_t(0)).value();
    return sequential(b, loc, count, none, body)[0];
  });
  return seen;
}

/// [B, heads, queries, keys] of what each query sees.
FailureOr<Tensor> visibleKeys(Node &n, const GroupQuery &g, const AttentionSizes &sizes) {
  int64_t block = n.intAttr("sparse_block_size", 0);
  FailureOr<Tensor> blocks = visibleBlocks(n);
  if (failed(blocks))
    return failure();
  if (block < 1)
    return n.error() << "expects a sparse_block_size of at least 1, has " << block;
  if (failed(n.requireAtMost(sizes.keys, blocks->shape[1] * Expr(block), "blocks cover {1} of {0} keys")))
    return failure();
  Value table = n.value(*blocks), offsets = n.value(g.offsets);
  Value layouts = n.symbols().materialize(n.builder(), n.loc(), blocks->shape[0]);
  Tensor seen;
  seen.dtype = DType::Bool;
  seen.shape.append({sizes.batch, sizes.heads, sizes.queries, sizes.keys});
  seen.value = n.generate(DType::Bool, seen.shape, [&](OpBuilder &b, Location loc, ValueRange at) -> Value {
    Value size = arith::ConstantIndexOp::create(b, loc, block);
    Value offset =
        arith::IndexCastOp::create(b, loc, b.getIndexType(), load(b, loc, offsets, DType::I64, at[0]).value());
    Value query = arith::DivUIOp::create(b, loc, arith::AddIOp::create(b, loc, offset, at[2]), size);
    Value key = arith::DivUIOp::create(b, loc, at[3], size), layout = arith::RemUIOp::create(b, loc, at[1], layouts);
    return tensor::ExtractOp::create(b, loc, table, ValueRange{layout, query, key});
  });
  return seen;
}

LogicalResult importSparseAttention(Node &n) {
  if (failed(expectInputs(n, 1)))
    return failure();
  for (size_t i = 3; i < 9; ++i)
    if (!n.hasInput(i))
      return n.error() << "has no input " << i;
  FailureOr<GroupQuery> g = readGroupQuery(n, kSparse);
  if (failed(g) || (n.intAttr("do_rotary", 0) && failed(rotate(n, *g, kSparse))))
    return failure();
  if (n.input(3).rank() != 4)
    return n.error() << "expects a past of rank 4, has rank " << n.input(3).rank();
  Expr length = n.input(3).shape[2];
  if (failed(n.requireAtMost(g->total, length, "there are {0} keys for a cache of {1}")))
    return failure();
  FailureOr<HeadTensor> key = cached(n, *g, 0, g->key, length), value = cached(n, *g, 1, g->value, length);
  if (failed(key) || failed(value))
    return failure();
  // What is behind the last key is not looked at.
  Tensor keys = n.slice(key->tensor, 2, 0, g->total), values = n.slice(value->tensor, 2, 0, g->total);
  AttentionOperands o{g->query, {keys, false}, {values, false}, true, 1, std::nullopt, {}, std::nullopt, std::nullopt};
  if (failed(checkSizes(n, o)))
    return failure();
  FailureOr<double> scale = readScale(n, o);
  FailureOr<Tensor> seen = failed(scale) ? FailureOr<Tensor>() : visibleKeys(n, *g, o.sizes);
  if (failed(seen))
    return failure();
  ScoreRule rule = ScoreRule::scaled(*scale);
  if (failed(rule.addMask(n, *seen, o.sizes)) || failed(rule.addLengths(n, g->lengths, o.sizes)))
    return failure();
  rule.addWindow(-1, 0, g->offsets);
  FailureOr<Tensor> y = attend(n, o, rule);
  if (failed(y))
    return failure();
  n.setOutput(0, *y);
  return success();
}

} // namespace

void registerGroupQueryAttentionOps(OpRegistry &registry) {
  registry.add("SparseAttention", {1}, importSparseAttention, "com.microsoft");
  registry.add("GroupQueryAttention", {1}, importGroupQueryAttention, "com.microsoft");
}

} // namespace attn::onnx
