#include "frontends/onnx/ops/Families.h"
#include "frontends/onnx/ops/Formula.h"
#include "frontends/onnx/ops/Loops.h"
#include "frontends/onnx/ops/Reduce.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

// LinearAttention, a loop over time that carries the state of each head, and
// CausalConvWithState, the convolution that stands before it.

using namespace mlir;

namespace attn::onnx {
namespace {

/// Operands as [B, T, heads, ...], in f32.
struct LinearOperands {
  Tensor query; // [B, T, Hkv, group, dk]
  Tensor key, value;
  std::optional<Tensor> decay, beta; // [B, T, Hkv, dk or 1, 1], [B, T, Hkv or 1, 1]
  Tensor state;                      // [B, Hkv, dk, dv]
  Value scale;                       // f32
};

FailureOr<Tensor> split(Node &n, size_t input, ArrayRef<int64_t> heads) {
  const Tensor &t = n.input(input);
  if (t.rank() != 3)
    return n.error() << "expects input " << input << " of rank 3, has rank " << t.rank();
  int64_t all = 1;
  SmallVector<Expr, 5> shape{t.shape[0], t.shape[1]};
  for (int64_t count : heads) {
    all *= count;
    shape.push_back(count);
  }
  Expr width = n.symbols().floorDiv(t.shape[2], all);
  if (failed(n.requireEqual(width * Expr(all), t.shape[2], "heads cover {0} of {1} elements")))
    return failure();
  shape.push_back(width);
  return n.reshape(n.cast(t, DType::F32), shape);
}

/// Gates are there exactly where the rule has them.
LogicalResult readGates(Node &n, LinearOperands &o, int64_t heads) {
  std::string rule = n.stringAttr("update_rule", "gated_delta");
  bool gated = rule == "gated" || rule == "gated_delta", delta = rule == "delta" || rule == "gated_delta";
  if (!gated && !delta && rule != "linear")
    return n.error() << "update_rule '" << rule << "' is none of linear, gated, delta and gated_delta";
  if (gated != n.hasInput(4) || delta != n.hasInput(5))
    return n.error() << "update_rule '" << rule << "' " << (gated ? "needs" : "forbids") << " decay and "
                     << (delta ? "needs" : "forbids") << " beta";
  if (gated) {
    FailureOr<Tensor> decay = split(n, 4, heads);
    if (failed(decay))
      return failure();
    SmallVector<Expr, 5> shape(decay->shape.begin(), decay->shape.end());
    shape.push_back(1);
    decay = n.reshape(*decay, shape);
    if (failed(decay))
      return failure();
    o.decay = *decay;
  }
  if (delta) {
    const Tensor &t = n.input(5);
    if (t.rank() != 3)
      return n.error() << "expects input 5 of rank 3, has rank " << t.rank();
    FailureOr<Tensor> beta = n.reshape(n.cast(t, DType::F32), {t.shape[0], t.shape[1], t.shape[2], Expr(1)});
    if (failed(beta))
      return failure();
    o.beta = *beta;
  }
  return success();
}

FailureOr<LinearOperands> readLinear(Node &n) {
  if (failed(expectInputs(n, 3)))
    return failure();
  for (size_t i : {0, 1, 2})
    if (failed(expectFloat(n, i)))
      return failure();
  int64_t heads = n.intAttr("q_num_heads", 0), keyHeads = n.intAttr("kv_num_heads", 0);
  if (keyHeads < 1 || heads < 1 || heads % keyHeads || heads > (1 << 20))
    return n.error() << "expects q_num_heads to be a multiple of kv_num_heads, has " << heads << " and " << keyHeads;
  LinearOperands o;
  FailureOr<Tensor> query = split(n, 0, {keyHeads, heads / keyHeads}), key = split(n, 1, keyHeads);
  FailureOr<Tensor> value = split(n, 2, keyHeads);
  if (failed(query) || failed(key) || failed(value) || failed(readGates(n, o, keyHeads)))
    return failure();
  o.query = *query;
  o.key = *key;
  o.value = *value;
  for (size_t d : {0, 1})
    if (failed(n.requireEqual(o.query.shape[d], o.key.shape[d], "queries have size {0} where keys have {1}")) ||
        failed(n.requireEqual(o.key.shape[d], o.value.shape[d], "keys have size {0} where values have {1}")))
      return failure();
  if (failed(n.requireEqual(o.query.shape[4], o.key.shape[3], "a query has {0} elements, a key {1}")))
    return failure();
  o.state.dtype = DType::F32;
  o.state.shape.append({o.key.shape[0], Expr(keyHeads), o.key.shape[3], o.value.shape[3]});
  if (n.hasInput(3)) {
    const Tensor &past = n.input(3);
    if (past.rank() != 4)
      return n.error() << "expects past_state of rank 4, has rank " << past.rank();
    for (auto [own, expected] : llvm::zip_equal(past.shape, o.state.shape))
      if (failed(n.requireEqual(own, expected, "past_state has size {0} where the state has {1}")))
        return failure();
    o.state.value = n.value(n.cast(past, DType::F32));
  } else {
    o.state.value = n.filled(DType::F32, o.state.shape, n.constant(DType::F32, 0));
  }
  for (auto [gate, dim, size] : {std::make_tuple(&o.decay, 3, o.key.shape[3]), {&o.beta, 2, Expr(keyHeads)}}) {
    if (!*gate)
      continue;
    FailureOr<Tensor> wide = expandInRun(n, **gate, dim, size);
    if (failed(wide))
      return failure();
    *gate = *wide;
  }
  double scale = n.floatAttr("scale", 0.0);
  if (scale == 0) {
    Value width = n.symbols().materialize(n.builder(), n.loc(), o.key.shape[3]);
    Num root = sqrt(fromIndex(n.builder(), n.loc(), DType::F32, width));
    o.scale = (1.0 / root).value();
  } else {
    o.scale = n.constant(DType::F32, scale);
  }
  return o;
}

/// Row `t` of dimension 1, without that dimension.
FailureOr<Tensor> at(Node &n, const Tensor &x, const Expr &t) {
  SmallVector<Expr, 4> shape(x.shape.begin(), x.shape.end());
  shape.erase(shape.begin() + 1);
  return n.reshape(n.slice(x, 1, t, 1), shape);
}

/// `x` with units put in before the dimensions `places` of the result.
FailureOr<Tensor> withUnits(Node &n, const Tensor &x, ArrayRef<int64_t> places) {
  SmallVector<Expr, 5> shape(x.shape.begin(), x.shape.end());
  for (int64_t place : places)
    shape.insert(shape.begin() + place, Expr(1));
  return n.reshape(x, shape);
}

/// sum over dimension `dim` of a * b, which broadcast.
FailureOr<Tensor> sumOfProducts(Node &n, const Tensor &a, const Tensor &b, int64_t dim) {
  FailureOr<Tensor> product = formula(n, DType::F32, {a, b}, [](ArrayRef<Num> v) { return v[0] * v[1]; });
  if (failed(product))
    return failure();
  return reduce(n, Combine::Sum, *product, dim);
}

/// The state after decay and the outer product of key and value, written over
/// the state before: a loop carries one buffer.
Tensor updated(Node &n, const Tensor &state, const std::optional<Tensor> &decay, const Tensor &column,
               const Tensor &row) {
  OpBuilder &b = n.builder();
  SmallVector<Value> operands;
  SmallVector<AffineMap> maps;
  auto add = [&](const Tensor &t) {
    operands.push_back(n.value(t));
    SmallVector<AffineExpr> results;
    for (auto [d, size] : llvm::enumerate(t.shape))
      results.push_back(size.is(1) && !state.shape[d].is(1) ? b.getAffineConstantExpr(0) : b.getAffineDimExpr(d));
    maps.push_back(AffineMap::get(4, 0, results, b.getContext()));
  };
  add(column);
  add(row);
  if (decay)
    add(*decay);
  maps.push_back(b.getMultiDimIdentityMap(4));
  SmallVector<utils::IteratorType> iterators(4, utils::IteratorType::parallel);
  auto body = [&](OpBuilder &b, Location loc, ValueRange v) {
    auto number = [&](Value x) { return Num(b, loc, DType::F32, x); };
    Num old = number(v.back());
    if (decay)
      old = old * exp(number(v[2]));
    linalg::YieldOp::create(b, loc, (old + number(v[0]) * number(v[1])).value());
  };
  Tensor next = state;
  next.value =
      linalg::GenericOp::create(b, n.loc(), state.value.getType(), operands, state.value, maps, iterators, body)
          .getResult(0);
  return next;
}

struct Step {
  Tensor state, output; // [B, H, dk, dv], [B, H, group, dv]
};

FailureOr<Step> step(Node &n, const LinearOperands &o, const Tensor &state, const Expr &t) {
  FailureOr<Tensor> query = at(n, o.query, t), key = at(n, o.key, t), value = at(n, o.value, t);
  if (failed(query) || failed(key) || failed(value))
    return failure();
  FailureOr<Tensor> column = withUnits(n, *key, 3); // [B, H, dk, 1]
  if (failed(column))
    return failure();
  std::optional<Tensor> decay;
  if (o.decay) {
    FailureOr<Tensor> row = at(n, *o.decay, t);
    if (failed(row))
      return failure();
    decay = *row;
  }
  if (o.beta) {
    FailureOr<Tensor> kept = state, beta = at(n, *o.beta, t);
    if (decay)
      kept = formula(n, DType::F32, {state, *decay}, [](ArrayRef<Num> v) { return v[0] * exp(v[1]); });
    if (failed(beta) || failed(kept))
      return failure();
    FailureOr<Tensor> known = sumOfProducts(n, *kept, *column, 2);
    if (failed(known))
      return failure();
    value = formula(n, DType::F32, {*value, *known, *beta}, [](ArrayRef<Num> v) { return v[2] * (v[0] - v[1]); });
  }
  FailureOr<Tensor> row = failure();
  if (succeeded(value))
    row = withUnits(n, *value, 2); // [B, H, 1, dv]
  if (failed(row))
    return failure();
  Tensor next = updated(n, state, decay, *column, *row);
  FailureOr<Tensor> wide = withUnits(n, next, 2), asked = withUnits(n, *query, 4); // [B, H, 1, dk, dv], [.., dk, 1]
  if (failed(wide) || failed(asked))
    return failure();
  FailureOr<Tensor> output = sumOfProducts(n, *wide, *asked, 3);
  if (succeeded(output))
    output = formula(n, DType::F32, *output, [&](ArrayRef<Num> v) { return v[0] * v[0].with(o.scale); });
  if (failed(output))
    return failure();
  return Step{next, *output};
}

LogicalResult importLinearAttention(Node &n) {
  FailureOr<LinearOperands> o = readLinear(n);
  if (failed(o))
    return failure();
  OpBuilder &b = n.builder();
  Tensor result;
  result.dtype = DType::F32;
  ArrayRef<Expr> q = o->query.shape;
  result.shape.append({q[0], q[1], q[2], q[3], o->value.shape[3]});
  SmallVector<Expr, 4> one(result.shape.begin(), result.shape.end());
  one[1] = 1;
  SmallVector<OpFoldResult> sizes, offsets(5, b.getIndexAttr(0)), strides(5, b.getIndexAttr(1));
  for (const Expr &size : one)
    sizes.push_back(n.symbols().size(b, n.loc(), size));
  SmallVector<Value> inits{o->state.value, n.empty(DType::F32, result.shape)};
  Value zero = arith::ConstantIndexOp::create(b, n.loc(), 0), next = arith::ConstantIndexOp::create(b, n.loc(), 1);
  Value steps = n.symbols().materialize(b, n.loc(), q[1]);
  bool failedInside = false;
  auto body = [&](OpBuilder &b, Location loc, Value t, ValueRange carried) {
    Tensor state = o->state;
    state.value = carried[0];
    FailureOr<Step> done = step(n, *o, state, n.symbols().opaque(t, 0));
    failedInside = failed(done);
    if (failedInside) {
      scf::YieldOp::create(b, loc, carried);
      return;
    }
    offsets[1] = t;
    FailureOr<Tensor> row = n.reshape(done->output, one);
    Value written =
        tensor::InsertSliceOp::create(b, loc, n.value(*row), carried[1], offsets, sizes, strides).getResult();
    scf::YieldOp::create(b, loc, {n.value(done->state), written});
  };
  auto loop = scf::ForOp::create(b, n.loc(), zero, steps, next, inits, body);
  if (failedInside)
    return failure();
  result.value = loop.getResult(1);
  FailureOr<Tensor> y = n.reshape(result, {q[0], q[1], q[2] * q[3] * o->value.shape[3]});
  if (failed(y))
    return failure();
  n.setOutput(0, n.cast(*y, n.input(0).dtype));
  Tensor present = o->state;
  present.value = loop.getResult(0);
  n.setOutput(1, n.cast(present, n.hasInput(3) ? n.input(3).dtype : n.input(0).dtype));
  return success();
}

//===----------------------------------------------------------------------===//
// CausalConvWithState
//===----------------------------------------------------------------------===//

/// The past k - 1 positions, or zeros, and then the input.
FailureOr<Tensor> withPast(Node &n, const Expr &kept) {
  const Tensor &x = n.input(0);
  OpBuilder &b = n.builder();
  Tensor out = x;
  out.elements.reset();
  out.weight.clear();
  out.shape[2] = kept + x.shape[2];
  Value v = n.filled(x.dtype, out.shape, n.constant(x.dtype, 0));
  SmallVector<OpFoldResult> offsets(3, b.getIndexAttr(0)), strides(3, b.getIndexAttr(1));
  auto insert = [&](const Tensor &t) {
    SmallVector<OpFoldResult> sizes;
    for (const Expr &size : t.shape)
      sizes.push_back(n.symbols().size(b, n.loc(), size));
    v = tensor::InsertSliceOp::create(b, n.loc(), n.value(t), v, offsets, sizes, strides);
  };
  if (n.hasInput(3)) {
    const Tensor &past = n.input(3);
    if (failed(expectSameDType(n, 0, 3)))
      return failure();
    if (past.rank() != 3)
      return n.error() << "expects past_state of rank 3, has rank " << past.rank();
    const Expr expected[] = {x.shape[0], x.shape[1], kept};
    for (auto [own, size] : llvm::zip_equal(past.shape, expected))
      if (failed(n.requireEqual(own, size, "past_state has size {0}, expected {1}")))
        return failure();
    if (!kept.is(0))
      insert(past);
  }
  offsets[2] = n.symbols().size(b, n.loc(), kept);
  insert(x);
  out.value = v;
  return out;
}

LogicalResult importCausalConvWithState(Node &n) {
  if (failed(expectInputs(n, 2)) || failed(expectFloat(n, 0)) || failed(expectSameDType(n, 0, 1)))
    return failure();
  const Tensor &x = n.input(0), &w = n.input(1);
  std::string activation = n.stringAttr("activation", "none");
  if (activation != "none" && activation != "silu" && activation != "swish")
    return n.error() << "activation '" << activation << "' is none of none, silu and swish";
  if (x.rank() != 3 || w.rank() != 3)
    return n.error() << "expects input and weight of rank 3, has ranks " << x.rank() << " and " << w.rank();
  if (failed(n.requireEqual(x.shape[1], w.shape[0], "the input has {0} channels, the weight {1}")) ||
      failed(n.requireEqual(w.shape[1], 1, "the weight has {0} channels a filter, expected {1}")) ||
      failed(n.requireAtMost(1, w.shape[2], "the filter has {1} elements")))
    return failure();
  Expr kept = w.shape[2] - Expr(1);
  FailureOr<Tensor> padded = withPast(n, kept), filters = n.reshape(w, {w.shape[0], w.shape[2]});
  if (failed(padded) || failed(filters))
    return failure();
  OpBuilder &b = n.builder();
  AffineExpr d[4];
  bindDimsList(b.getContext(), MutableArrayRef(d));
  AffineMap maps[] = {AffineMap::get(4, 0, {d[0], d[1], d[2] + d[3]}, b.getContext()),
                      AffineMap::get(4, 0, {d[1], d[3]}, b.getContext()),
                      AffineMap::get(4, 0, {d[0], d[1], d[2]}, b.getContext())};
  SmallVector<utils::IteratorType> iterators(4, utils::IteratorType::parallel);
  iterators[3] = utils::IteratorType::reduction;
  Tensor sum;
  sum.dtype = computeDType(x.dtype);
  sum.shape = x.shape;
  Value init = n.filled(sum.dtype, sum.shape, n.constant(sum.dtype, 0));
  auto body = [&](OpBuilder &b, Location loc, ValueRange v) {
    Num element = convert(Num(b, loc, x.dtype, v[0]), sum.dtype),
        weight = convert(Num(b, loc, x.dtype, v[1]), sum.dtype);
    linalg::YieldOp::create(b, loc, (Num(b, loc, sum.dtype, v[2]) + element * weight).value());
  };
  SmallVector<Value> operands{n.value(*padded), n.value(*filters)};
  sum.value = linalg::GenericOp::create(b, n.loc(), init.getType(), operands, init, maps, iterators, body).getResult(0);
  n.setOutput(1, n.slice(*padded, 2, x.shape[2], kept));
  std::vector<Tensor> terms{sum};
  if (n.hasInput(2)) {
    FailureOr<Tensor> bias = n.reshape(n.input(2), {x.shape[1], Expr(1)});
    if (failed(bias) || failed(expectSameDType(n, 0, 2)))
      return failure();
    terms.push_back(*bias);
  }
  return setFormula(n, x.dtype, terms, [&](ArrayRef<Num> v) {
    Num y = v.size() > 1 ? v[0] + v[1] : v[0];
    y = convert(convert(y, x.dtype), sum.dtype); // rounded before the activation
    return activation == "none" ? y : y * sigmoid(y);
  });
}

} // namespace

void registerLinearAttentionOps(OpRegistry &registry) {
  registry.add("LinearAttention", {27}, importLinearAttention);
  registry.add("CausalConvWithState", {27}, importCausalConvWithState);
}

} // namespace attn::onnx
