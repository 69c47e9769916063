#include "dialects/attn/AttnOps.h"
#include "frontends/onnx/Schema.h"
#include "frontends/onnx/ops/AttentionForm.h"
#include "frontends/onnx/ops/Concatenate.h"
#include "frontends/onnx/ops/Families.h"
#include "frontends/onnx/ops/MatMul.h"
#include "frontends/onnx/ops/Reduce.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include <cmath>

// Attention-23 and later: one attn.attention whose maps read the operands in
// the layout they have. f64, and whoever asks for the scores, gets the
// contractions and the softmax one by one.

using namespace mlir;

namespace attn::onnx {

Tensor headsOutside(Node &n, const HeadTensor &t) {
  return t.headsInside ? n.transpose(t.tensor, {0, 2, 1, 3}) : t.tensor;
}

namespace {

FailureOr<HeadTensor> readHeads(Node &n, size_t input, StringRef headsAttr) {
  const Tensor &t = n.input(input);
  if (t.rank() == 4)
    return HeadTensor{t, false};
  if (t.rank() != 3)
    return n.error() << "expects input " << input << " of rank 3 or 4, has rank " << t.rank();
  int64_t heads = n.intAttr(headsAttr, 0);
  if (heads < 1)
    return n.error() << "expects " << headsAttr << " of at least 1 for inputs of rank 3, has " << heads;
  Expr width = n.symbols().floorDiv(t.shape[2], heads);
  if (failed(n.requireEqual(width * Expr(heads), t.shape[2], "heads cover {0} of {1} elements")))
    return failure();
  FailureOr<Tensor> view = n.reshape(t, {t.shape[0], t.shape[1], Expr(heads), width});
  if (failed(view))
    return failure();
  return HeadTensor{*view, true};
}

/// `past` and then `t` in the length.
FailureOr<Tensor> appended(Node &n, const Tensor &past, const HeadTensor &t) {
  Tensor next = headsOutside(n, t);
  if (past.rank() != 4)
    return n.error() << "expects a past of rank 4, has rank " << past.rank();
  if (past.dtype != next.dtype)
    return n.error() << "expects a past of type " << dtypeName(next.dtype) << ", has " << dtypeName(past.dtype);
  for (int64_t d : {0, 1, 3})
    if (failed(n.requireEqual(past.shape[d], next.shape[d], "sizes {0} of the past and {1} differ")))
      return failure();
  OpBuilder &b = n.builder();
  Tensor out;
  out.dtype = next.dtype;
  out.shape = next.shape;
  out.shape[2] = past.shape[2] + next.shape[2];
  Value v = n.empty(out.dtype, out.shape);
  SmallVector<OpFoldResult> offsets(4, b.getIndexAttr(0)), strides(4, b.getIndexAttr(1));
  for (const Tensor *part : {&past, static_cast<const Tensor *>(&next)}) {
    SmallVector<OpFoldResult> sizes;
    for (const Expr &dim : part->shape)
      sizes.push_back(n.symbols().size(b, n.loc(), dim));
    v = tensor::InsertSliceOp::create(b, n.loc(), n.value(*part), v, offsets, sizes, strides);
    offsets[2] = n.symbols().size(b, n.loc(), past.shape[2]);
  }
  out.value = v;
  return out;
}

LogicalResult readPast(Node &n, AttentionOperands &o) {
  if (n.hasInput(4) != n.hasInput(5))
    return n.error() << "expects past_key and past_value together, has one";
  if (n.hasInput(4) && n.hasInput(6))
    return n.error() << "expects either a past or nonpad_kv_seqlen, has both";
  if (n.hasInput(4)) {
    FailureOr<Tensor> key = appended(n, n.input(4), o.key), value = appended(n, n.input(5), o.value);
    if (failed(key) || failed(value))
      return failure();
    o.past = n.input(4).shape[2];
    o.key = {*key, false};
    o.value = {*value, false};
  }
  if (n.hasOutput(1))
    o.presentKey = headsOutside(n, o.key);
  if (n.hasOutput(2))
    o.presentValue = headsOutside(n, o.value);
  return success();
}

} // namespace

/// `t`, each head `group` times: `heads` in all, heads outside.
static HeadTensor repeatedHeads(Node &n, const HeadTensor &t, const Expr &group, const Expr &heads) {
  Tensor source = headsOutside(n, t), out;
  out.dtype = source.dtype;
  out.shape = source.shape;
  out.shape[1] = heads;
  Value from = n.value(source), share = n.symbols().materialize(n.builder(), n.loc(), n.symbols().max(group, 1));
  out.value = n.generate(out.dtype, out.shape, [&](OpBuilder &b, Location loc, ValueRange at) -> Value {
    Value head = arith::DivSIOp::create(b, loc, at[1], share);
    return tensor::ExtractOp::create(b, loc, from, ValueRange{at[0], head, at[2], at[3]});
  });
  return HeadTensor{out, false};
}

LogicalResult checkSizes(Node &n, AttentionOperands &o) {
  if (failed(n.requireEqual(o.query.batch(), o.key.batch(), "the queries have batch {0}, the keys {1}")) ||
      failed(n.requireEqual(o.key.batch(), o.value.batch(), "the keys have batch {0}, the values {1}")) ||
      failed(n.requireEqual(o.key.heads(), o.value.heads(), "there are {0} key heads and {1} value heads")) ||
      failed(n.requireEqual(o.key.length(), o.value.length(), "there are {0} keys and {1} values")) ||
      failed(n.requireEqual(o.query.width(), o.key.width(), "a query has {0} elements, a key {1}")))
    return failure();
  std::optional<int64_t> heads = o.query.heads().constant(), keyHeads = o.key.heads().constant();
  if (heads && keyHeads) {
    if (*keyHeads < 1 || *heads % *keyHeads != 0)
      return n.error() << "expects the number of key heads (" << *keyHeads << ") to divide the number of query heads ("
                       << *heads << ")";
    o.group = *heads / *keyHeads;
  } else if (n.symbols().isEqual(o.query.heads(), o.key.heads()) != true) {
    // How many query heads share a key head only the run knows.
    Expr group = n.symbols().floorDiv(o.query.heads(), o.key.heads());
    if (failed(n.requireEqual(group * o.key.heads(), o.query.heads(), "key heads serve {0} of {1} query heads")))
      return failure();
    o.key = repeatedHeads(n, o.key, group, o.query.heads());
    o.value = repeatedHeads(n, o.value, group, o.query.heads());
  }
  o.sizes = {o.query.batch(), o.query.heads(), o.query.length(), o.key.length()};
  return success();
}

namespace {

FailureOr<AttentionOperands> readOperands(Node &n) {
  if (failed(expectInputs(n, 3)) || failed(expectFloat(n, 0)) || failed(expectSameDType(n, 0, 1)) ||
      failed(expectFloat(n, 2)))
    return failure();
  FailureOr<HeadTensor> query = readHeads(n, 0, "q_num_heads"), key = readHeads(n, 1, "kv_num_heads"),
                        value = readHeads(n, 2, "kv_num_heads");
  if (failed(query) || failed(key) || failed(value))
    return failure();
  AttentionOperands o{*query, *key, *value, query->headsInside, 1, std::nullopt, {}, std::nullopt, std::nullopt};
  if (failed(readPast(n, o)) || failed(checkSizes(n, o)))
    return failure();
  return o;
}

} // namespace

FailureOr<double> defaultScale(Node &n, AttentionOperands &o) {
  const Expr width = o.query.width();
  if (std::optional<int64_t> d = width.constant())
    return *d > 0 ? 1.0 / std::sqrt(double(*d)) : 1.0;
  FailureOr<Tensor> scaled = formula(n, o.query.tensor.dtype, {o.query.tensor, scalarTensor(DType::I64, width)},
                                     [](ArrayRef<Num> v) { return v[0] / sqrt(convert(v[1], v[0].dtype())); });
  if (failed(scaled))
    return failure();
  o.query.tensor = *scaled;
  return 1.0;
}

namespace {

//===----------------------------------------------------------------------===//
// attn.attention
//===----------------------------------------------------------------------===//

AffineMap operandMap(MLIRContext *context, bool headsInside, AttentionOp::Dim row, AttentionOp::Dim column,
                     int64_t group) {
  AffineExpr head = getAffineDimExpr(AttentionOp::H, context);
  if (group > 1)
    head = head.floorDiv(group);
  AffineExpr b = getAffineDimExpr(AttentionOp::B, context), l = getAffineDimExpr(row, context);
  SmallVector<AffineExpr> results{b, headsInside ? l : head, headsInside ? head : l, getAffineDimExpr(column, context)};
  return AffineMap::get(6, 0, results, context);
}

void buildScoreRegion(OpBuilder &b, Location loc, AttentionOp op, const ScoreRule &rule) {
  OpBuilder::InsertionGuard guard(b);
  SmallVector<Type> types{b.getF32Type()};
  for (Value capture : op.getCaptures())
    types.push_back(cast<RankedTensorType>(capture.getType()).getElementType());
  Block *block = b.createBlock(&op.getScore(), {}, types, SmallVector<Location>(types.size(), loc));
  auto index = [&](int64_t dim) -> Value {
    return IndexOp::create(b, loc, b.getIndexType(), b.getI64IntegerAttr(dim));
  };
  Num score(b, loc, DType::F32, block->getArgument(0));
  Num result = rule.apply(score, block->getArguments().drop_front(), index);
  YieldOp::create(b, loc, result.value());
}

/// The result, [batch, queries, heads, width] when packed, else heads first.
Tensor fused(Node &n, const AttentionOperands &o, const ScoreRule &rule) {
  OpBuilder &b = n.builder();
  MLIRContext *context = b.getContext();
  using Dim = AttentionOp::Dim;
  DType dtype = o.query.tensor.dtype;
  SmallVector<AffineMap> maps{operandMap(context, o.query.headsInside, Dim::I, Dim::D, 1),
                              operandMap(context, o.key.headsInside, Dim::J, Dim::D, o.group),
                              operandMap(context, o.value.headsInside, Dim::J, Dim::E, o.group)};
  SmallVector<Value> captures;
  for (const ScoreRule::Capture &capture : rule.captures()) {
    SmallVector<AffineExpr> results;
    for (int64_t dim : capture.dims)
      results.push_back(getAffineDimExpr(dim, context));
    maps.push_back(AffineMap::get(6, 0, results, context));
    captures.push_back(n.value(capture.tensor));
  }
  maps.push_back(operandMap(context, o.isPacked, Dim::I, Dim::E, 1));
  Tensor y;
  y.dtype = dtype;
  y.shape.append({o.sizes.batch, o.sizes.heads, o.sizes.queries, o.value.width()});
  if (o.isPacked)
    std::swap(y.shape[1], y.shape[2]);
  Tensor value = o.value.tensor.dtype == dtype ? o.value.tensor : n.cast(o.value.tensor, dtype);
  auto op = AttentionOp::create(b, n.loc(), n.type(dtype, y.shape), n.value(o.query.tensor), n.value(o.key.tensor),
                                n.value(value), captures, maps, MaskedRows::zero, AttentionBody());
  buildScoreRegion(b, n.loc(), op, rule);
  y.value = op.getResult();
  return y;
}

//===----------------------------------------------------------------------===//
// The decomposed form
//===----------------------------------------------------------------------===//

constexpr Label kBatch = 0, kHead = 1, kGroup = 2, kQuery = 3, kKey = 4, kWidth = 5;

/// [b, h, i, ...] as [b, key head, group, i, ...], with its labels.
FailureOr<LabelledTensor> perGroup(Node &n, const AttentionOperands &o, const Tensor &t, ArrayRef<Label> rest) {
  SmallVector<Expr, 4> shape{t.shape[0], o.key.heads(), Expr(o.group)};
  shape.append(t.shape.begin() + 2, t.shape.end());
  FailureOr<Tensor> view = n.reshape(t, shape);
  if (failed(view))
    return failure();
  LabelledTensor out{*view, {kBatch, kHead, kGroup}};
  out.labels.append(rest.begin(), rest.end());
  return out;
}

} // namespace

FailureOr<Tensor> rawScores(Node &n, const AttentionOperands &o) {
  FailureOr<LabelledTensor> query = perGroup(n, o, headsOutside(n, o.query), {kQuery, kWidth});
  if (failed(query))
    return failure();
  LabelledTensor key{headsOutside(n, o.key), {kBatch, kHead, kKey, kWidth}};
  FailureOr<Tensor> scores =
      contractLabels(n, computeDType(query->tensor.dtype), *query, key, {kBatch, kHead, kGroup, kQuery, kKey});
  if (failed(scores))
    return failure();
  return n.reshape(*scores, {o.sizes.batch, o.sizes.heads, o.sizes.queries, o.sizes.keys});
}

namespace {

/// The scores after the rule's step `last`.
FailureOr<Tensor> ruledScores(Node &n, const Tensor &raw, const ScoreRule &rule, ScoreRule::Step last) {
  std::vector<Tensor> operands{raw};
  for (const ScoreRule::Capture &capture : rule.captures()) {
    SmallVector<Expr, 4> shape(4, Expr(1));
    for (auto [dim, size] : llvm::zip_equal(capture.dims, capture.tensor.shape))
      shape[dim] = size;
    FailureOr<Tensor> view = n.reshape(capture.tensor, shape);
    if (failed(view))
      return failure();
    // The rule reads bools as bytes and nothing widened.
    if (view->dtype == DType::Bool)
      view->dtype = DType::U8;
    operands.push_back(*view);
  }
  Tensor out;
  out.dtype = raw.dtype;
  out.shape = raw.shape;
  out.value = n.elementwise(raw.dtype, raw.shape, operands, [&](OpBuilder &b, Location loc, ValueRange v) -> Value {
    auto index = [&](int64_t dim) -> Value { return linalg::IndexOp::create(b, loc, dim); };
    return rule.apply(Num(b, loc, raw.dtype, v[0]), v.drop_front(), index, last).value();
  });
  return out;
}

/// The softmax over the keys; a row of nothing but -inf becomes zero.
FailureOr<Tensor> weights(Node &n, const Tensor &scores) {
  FailureOr<Tensor> max = keepDims(n, reduce(n, Combine::Max, scores, int64_t(3)), int64_t(3), 4);
  if (failed(max))
    return failure();
  Tensor soft = scores;
  Value v = SoftmaxOp::create(n.builder(), n.loc(), n.value(scores), 3);
  soft.value = v;
  return formula(n, scores.dtype, {soft, *max},
                 [](ArrayRef<Num> v) { return select(v[1] == v[1].lowest(), v[0].constant(0), v[0]); });
}

} // namespace

FailureOr<Tensor> weightedValues(Node &n, const AttentionOperands &o, const Tensor &weights) {
  FailureOr<LabelledTensor> left = perGroup(n, o, weights, {kQuery, kKey});
  if (failed(left))
    return failure();
  LabelledTensor right{n.cast(headsOutside(n, o.value), weights.dtype), {kBatch, kHead, kKey, kWidth}};
  FailureOr<Tensor> y = contractLabels(n, weights.dtype, *left, right, {kBatch, kHead, kGroup, kQuery, kWidth});
  if (succeeded(y))
    y = n.reshape(*y, {o.sizes.batch, o.sizes.heads, o.sizes.queries, o.value.width()});
  if (failed(y))
    return failure();
  return n.cast(o.isPacked ? n.transpose(*y, {0, 2, 1, 3}) : *y, o.query.tensor.dtype);
}

namespace {

/// Sets output 3, the scores after the step that the attribute names.
LogicalResult setScores(Node &n, const AttentionOperands &o, const ScoreRule &rule) {
  int64_t mode = n.intAttr("qk_matmul_output_mode", 0);
  if (mode < 0 || mode > 3)
    return n.error() << "expects qk_matmul_output_mode 0 to 3, has " << mode;
  FailureOr<Tensor> scores = rawScores(n, o);
  if (succeeded(scores))
    scores = ruledScores(n, *scores, rule, ScoreRule::Step(std::min<int64_t>(mode, ScoreRule::Masked)));
  if (succeeded(scores) && mode == 3)
    scores = weights(n, *scores);
  if (failed(scores))
    return failure();
  n.setOutput(3, n.cast(*scores, o.query.tensor.dtype));
  return success();
}

FailureOr<Tensor> decomposed(Node &n, const AttentionOperands &o, const ScoreRule &rule) {
  FailureOr<Tensor> t = rawScores(n, o);
  if (succeeded(t))
    t = ruledScores(n, *t, rule, ScoreRule::Masked);
  if (succeeded(t))
    t = weights(n, *t);
  if (failed(t))
    return failure();
  return weightedValues(n, o, *t);
}

} // namespace

FailureOr<Tensor> maskedScores(Node &n, const AttentionOperands &o, const ScoreRule &rule) {
  FailureOr<Tensor> scores = rawScores(n, o);
  if (succeeded(scores))
    scores = ruledScores(n, *scores, rule, ScoreRule::Masked);
  if (failed(scores))
    return failure();
  return n.cast(*scores, o.query.tensor.dtype);
}

/// The result of heads as the operands came.
static FailureOr<Tensor> packed(Node &n, const AttentionOperands &o, FailureOr<Tensor> y) {
  if (succeeded(y) && o.isPacked)
    y = n.reshape(*y, {y->shape[0], y->shape[1], y->shape[2] * y->shape[3]});
  return y;
}

FailureOr<Tensor> attend(Node &n, const AttentionOperands &o, const ScoreRule &rule) {
  return packed(n, o, o.query.tensor.dtype == DType::F64 ? decomposed(n, o, rule) : fused(n, o, rule));
}

FailureOr<Tensor> attendWithSink(Node &n, const AttentionOperands &o, const ScoreRule &rule, const Tensor &sink) {
  FailureOr<Tensor> scores = rawScores(n, o);
  if (succeeded(scores))
    scores = ruledScores(n, *scores, rule, ScoreRule::Masked);
  if (failed(scores))
    return failure();
  FailureOr<Tensor> column = n.reshape(n.cast(sink, scores->dtype), {Expr(1), o.sizes.heads, Expr(1), Expr(1)});
  if (failed(column))
    return failure();
  SmallVector<Expr, 4> shape(scores->shape);
  shape[3] = Expr(1);
  Tensor last = n.expand(*column, shape);
  shape[3] = o.sizes.keys + Expr(1);
  Tensor all = concatenate(n, {*scores, last}, 3, shape);
  all.value = SoftmaxOp::create(n.builder(), n.loc(), n.value(all), 3);
  return packed(n, o, weightedValues(n, o, n.slice(all, 3, Expr(0), o.sizes.keys)));
}

namespace {

LogicalResult importAttention(Node &n) {
  int64_t precision = n.intAttr("softmax_precision", proto::TensorProto::FLOAT);
  std::optional<DType> softmaxType = dtypeFromProto(precision);
  if (!softmaxType || !isFloat(*softmaxType))
    return n.error() << "softmax_precision " << precision << " is no float type";
  FailureOr<AttentionOperands> o = readOperands(n);
  if (failed(o))
    return failure();
  FailureOr<double> scale = n.hasAttr("scale") ? n.floatAttr("scale", 1.0) : defaultScale(n, *o);
  if (failed(scale))
    return failure();
  FailureOr<ScoreRule> rule = ScoreRule::read(n, o->sizes, o->past, *scale);
  if (failed(rule))
    return failure();
  FailureOr<Tensor> y = attend(n, *o, *rule);
  if (failed(y))
    return failure();
  n.setOutput(0, *y);
  if (o->presentKey)
    n.setOutput(1, *o->presentKey);
  if (o->presentValue)
    n.setOutput(2, *o->presentValue);
  return n.hasOutput(3) ? setScores(n, *o, *rule) : success();
}

} // namespace

void registerAttentionOps(OpRegistry &registry) {
  registry.add("Attention", {23, 24, 25}, importAttention);
  registerRotaryOps(registry);
}

} // namespace attn::onnx
