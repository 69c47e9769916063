#include "frontends/onnx/ops/Concatenate.h"
#include "frontends/onnx/ops/ContribAttention.h"
#include "frontends/onnx/ops/Families.h"
#include "frontends/onnx/ops/Gather.h"
#include "frontends/onnx/ops/Loops.h"
#include "frontends/onnx/ops/MatMul.h"
#include "frontends/onnx/ops/Taps.h"

// PackedAttention and PackedMultiHeadAttention of ONNX Runtime (com.microsoft): the tokens of all sequences stand one
// behind the other, without padding. They are attended to as a padded batch of known lengths.

using namespace mlir;

namespace attn::onnx {
namespace {

/// Where the tokens stand: `offsets` [B, S] has, for each token and then for each padding, its place in the batch;
/// `ends` [B + 1] where each sequence begins among the tokens, and their number.
struct Packing {
  Tensor offsets, ends;
  Expr batch, length, tokens;
};

FailureOr<Packing> readPacking(Node &n, size_t input, const Expr &tokens) {
  for (size_t i : {input, input + 1})
    if (!n.hasInput(i))
      return n.error() << "has no input " << i;
  Packing p{n.input(input), n.input(input + 1), Expr(0), Expr(0), tokens};
  for (const Tensor *t : {&p.offsets, &p.ends})
    if (t->dtype != DType::I32)
      return n.error() << "expects token_offset and cumulative_sequence_length as int32, has " << dtypeName(t->dtype);
  if (p.offsets.rank() != 2 || p.ends.rank() != 1)
    return n.error() << "expects token_offset of rank 2 and cumulative_sequence_length of rank 1, has ranks "
                     << p.offsets.rank() << " and " << p.ends.rank();
  p.batch = p.offsets.shape[0];
  p.length = p.offsets.shape[1];
  if (failed(n.requireEqual(p.ends.shape[0], p.batch + Expr(1), "{0} cumulated lengths, expected {1}")) ||
      failed(n.requireAtMost(tokens, p.batch * p.length, "there are {0} tokens, and token_offset has {1}")))
    return failure();
  OpBuilder &b = n.builder();
  Value ends = n.value(p.ends);
  auto end = [&](const Expr &row) {
    Value at = n.symbols().materialize(b, n.loc(), row);
    return convert(load(b, n.loc(), ends, DType::I32, at), DType::I64);
  };
  Num first = end(0), last = end(p.batch);
  Num count = fromIndex(b, n.loc(), DType::I64, n.symbols().materialize(b, n.loc(), tokens));
  n.require(((first == first.constant(0)) & (last == count)).value(),
            "cumulative_sequence_length does not go from 0 to the number of tokens");
  return p;
}

/// `t` [T, C] as [B, S, C], with zeros for padding.
FailureOr<Tensor> unpacked(Node &n, const Packing &p, const Tensor &t) {
  Tensor zeros;
  zeros.dtype = t.dtype;
  zeros.shape.append({Expr(1), t.shape[1]});
  zeros.value = n.filled(t.dtype, zeros.shape, n.constant(t.dtype, 0));
  Tensor rows = concatenate(n, {t, zeros}, 0, {t.shape[0] + Expr(1), t.shape[1]}), places;
  Value ends = n.value(p.ends), padding = n.symbols().materialize(n.builder(), n.loc(), p.tokens);
  places.dtype = DType::I64;
  places.shape.append({p.batch, p.length});
  places.value = n.generate(DType::I64, places.shape, [&](OpBuilder &b, Location loc, ValueRange at) -> Value {
    Num row = fromIndex(b, loc, DType::I64, at[0]);
    auto end = [&](const Num &of) { return convert(load(b, loc, ends, DType::I32, toIndex(of)), DType::I64); };
    Num place = end(row) + fromIndex(b, loc, DType::I64, at[1]);
    return select(place < end(row + row.constant(1)), place, fromIndex(b, loc, DType::I64, padding)).value();
  });
  return gather(n, rows, places, 0);
}

/// The tokens of `t` [B, S, C], as [T, C].
FailureOr<Tensor> packed(Node &n, const Packing &p, const Tensor &t) {
  FailureOr<Tensor> rows = n.reshape(t, {p.batch * p.length, t.shape[2]});
  FailureOr<Tensor> places = n.reshape(p.offsets, {p.batch * p.length});
  if (failed(rows) || failed(places))
    return failure();
  Tensor taken = n.slice(*places, 0, 0, p.tokens);
  taken.value = n.value(taken); // as a tensor also where its elements are known
  taken.elements.reset();
  Value bound = n.symbols().materialize(n.builder(), n.loc(), p.batch * p.length);
  taken.value = n.elementwise(DType::I64, taken.shape, taken, [&](OpBuilder &b, Location loc, ValueRange args) {
    return arith::IndexCastOp::create(b, loc, b.getI64Type(), placeIn(n, b, loc, args[0], bound)).getResult();
  });
  taken.dtype = DType::I64;
  return gather(n, *rows, taken, 0);
}

/// The attention of query, key and value [T, heads * width].
LogicalResult attendPacked(Node &n, const Packing &p, ArrayRef<Tensor> operands, size_t scoreBias) {
  FailureOr<int64_t> heads = readHeadCount(n, "num_heads");
  if (failed(heads))
    return failure();
  SmallVector<HeadTensor, 3> parts;
  for (const Tensor &t : operands) {
    FailureOr<Tensor> batch = unpacked(n, p, t);
    FailureOr<HeadTensor> part = failed(batch) ? FailureOr<HeadTensor>() : splitHeads(n, *batch, *heads);
    if (failed(part))
      return failure();
    parts.push_back(*part);
  }
  AttentionOperands o{parts[0], parts[1], parts[2], true, 1, std::nullopt, {}, std::nullopt, std::nullopt};
  if (failed(checkSizes(n, o)))
    return failure();
  FailureOr<double> scale = readScale(n, o);
  Tensor ends = n.cast(p.ends, DType::I64);
  FailureOr<Tensor> lengths = formula(n, DType::I64, {n.slice(ends, 0, 1, p.batch), n.slice(ends, 0, 0, p.batch)},
                                      [](ArrayRef<Num> v) { return v[0] - v[1]; });
  if (failed(scale) || failed(lengths))
    return failure();
  ScoreRule rule = ScoreRule::scaled(*scale);
  if (failed(addMasks(n, rule, n.numInputs(), scoreBias, o.sizes)) || failed(rule.addLengths(n, *lengths, o.sizes)))
    return failure();
  FailureOr<Tensor> y = attend(n, o, rule), tokens = failed(y) ? y : packed(n, p, *y);
  if (failed(tokens))
    return failure();
  n.setOutput(0, *tokens);
  return success();
}

/// `count` columns of `t` from `begin` on, with those of the bias, input `bias`, where there is one.
FailureOr<Tensor> biasedColumns(Node &n, const Tensor &t, const Expr &begin, const Expr &count, size_t bias,
                                const Expr &biasBegin) {
  Tensor own = n.slice(t, 1, begin, count);
  if (!n.hasInput(bias))
    return own;
  const Tensor &all = n.input(bias);
  if (all.rank() != 1 || all.dtype != t.dtype)
    return n.error() << "expects a bias of " << dtypeName(t.dtype) << " in one dimension, has " << dtypeName(all.dtype)
                     << " in " << all.rank();
  if (failed(n.requireAtMost(biasBegin + count, all.shape[0], "columns up to {0} take a bias of {1}")))
    return failure();
  return formula(n, t.dtype, {own, n.slice(all, 0, biasBegin, count)}, [](ArrayRef<Num> v) { return v[0] + v[1]; });
}

LogicalResult importPackedAttention(Node &n) {
  if (failed(expectInputs(n, 3)) || failed(expectFloat(n, 0)) || failed(expectSameDType(n, 0, 1)))
    return failure();
  const Tensor &x = n.input(0), &w = n.input(1);
  if (x.rank() != 2 || w.rank() != 2)
    return n.error() << "expects input and weights of rank 2, has ranks " << x.rank() << " and " << w.rank();
  FailureOr<Packing> p = readPacking(n, 3, x.shape[0]);
  SmallVector<Expr, 3> widths;
  if (failed(p) || failed(readWidths(n, w.shape[1], widths)))
    return failure();
  FailureOr<Tensor> projected = matmul(n, x, w, x.dtype);
  SmallVector<Tensor, 3> parts;
  Expr begin(0);
  for (const Expr &width : widths) {
    FailureOr<Tensor> part = failed(projected) ? projected : biasedColumns(n, *projected, begin, width, 2, begin);
    if (failed(part))
      return failure();
    parts.push_back(*part);
    begin = begin + width;
  }
  return attendPacked(n, *p, parts, 5);
}

LogicalResult importPackedMultiHeadAttention(Node &n) {
  if (failed(expectInputs(n, 1)) || failed(expectFloat(n, 0)))
    return failure();
  const Tensor &query = n.input(0);
  FailureOr<Packing> p = readPacking(n, 4, query.shape.empty() ? Expr(0) : query.shape[0]);
  if (failed(p))
    return failure();
  SmallVector<Tensor, 3> parts;
  Expr begin(0);
  for (int64_t i : {0, 1, 2}) {
    FailureOr<Tensor> t = failure();
    if (query.rank() == 4) { // [T, heads, 3, width]
      if (failed(n.requireEqual(query.shape[2], 3, "{0} parts are packed, expected {1}")))
        return failure();
      t = n.reshape(n.slice(query, 2, i, 1), {query.shape[0], query.shape[1] * query.shape[3]});
    } else if (n.hasInput(i) && n.input(i).rank() == 2 && n.input(i).dtype == query.dtype) {
      t = n.input(i);
    } else {
      return n.error() << "expects query, key and value of rank 2 and one type, or a query of rank 4 that has all";
    }
    if (failed(t))
      return failure();
    FailureOr<Tensor> part = biasedColumns(n, *t, Expr(0), t->shape[1], 3, begin);
    if (failed(part))
      return failure();
    begin = begin + t->shape[1];
    parts.push_back(*part);
  }
  return attendPacked(n, *p, parts, 6);
}

} // namespace

void registerContribPackedOps(OpRegistry &registry) {
  registry.add("PackedAttention", {1}, importPackedAttention, "com.microsoft");
  registry.add("PackedMultiHeadAttention", {1}, importPackedMultiHeadAttention, "com.microsoft");
}

} // namespace attn::onnx
