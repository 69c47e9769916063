#include "frontends/graph/layers/Masks.h"
#include <cmath>

// softmax(Q Kᵀ / sqrt(d)) V of several heads, with the projections around it and
// a cache in front of the keys and values.

using namespace mlir;

namespace attn::graph {

/// [batch, n, heads * width] as [batch, heads, n, width].
static Tensor split(Layer &l, const Tensor &t, int64_t heads) {
  int64_t width = l.constantDim(t, 2, "a projection");
  if (!l.failed() && width % heads) {
    l.error() << "a projection has width " << width << ", which " << heads << " heads do not divide";
    return t;
  }
  Tensor parts = l.reshape(t, {Layer::dim(t, 0), Layer::dim(t, 1), Expr(heads), Expr(width / heads)});
  return l.transpose(parts, {0, 2, 1, 3});
}

void buildMultiHead(Layer &l) {
  Tensor query = l.value("query");
  Tensor keys = l.has("keys") ? l.value("keys") : query;
  Tensor values = l.has("values") ? l.value("values") : keys;
  for (const Tensor &t : {query, keys, values})
    if (!l.expectRank(t, 3, "query, keys and values") || !l.expectFloat(t, "query, keys and values") ||
        !l.expectSame(query, t, "query, keys and values"))
      return;
  int64_t heads = l.integer("heads", 1);
  bool bias = l.flag("bias", true);
  Tensor q = split(l, l.project(query, "query.", bias), heads);
  Tensor k = split(l, l.project(keys, "key.", bias), heads);
  Tensor v = split(l, l.project(values, "value.", bias), heads);
  if (l.failed())
    return;
  Expr past(0);
  if (const Json *cache = l.json.find("cache")) { // [batch, heads, past, width]
    Tensor pastKeys = l.lookup(*cache->find("keys")), pastValues = l.lookup(*cache->find("values"));
    for (const Tensor &t : {pastKeys, pastValues})
      if (!l.expectRank(t, 4, "the cache") || !l.expectSame(t, k, "cache and keys"))
        return;
    past = Layer::dim(pastKeys, 2);
    k = l.op("Concat", {pastKeys, k}, {{"axis", int64_t(2)}});
    v = l.op("Concat", {pastValues, v}, {{"axis", int64_t(2)}});
  }
  int64_t width = l.constantDim(q, 3, "the projected query");
  if (!l.failed() && l.constantDim(k, 3, "the projected keys") != width) {
    l.error() << "the projected query has width " << width << " a head, the keys "
              << l.constantDim(k, 3, "the projected keys");
    return;
  }
  Tensor scale = Layer::scalar(q.dtype, l.number("scale", 1 / std::sqrt(double(std::max<int64_t>(width, 1)))));
  Tensor scores = l.op("MatMul", {l.op("Mul", {q, scale}), l.transpose(k, {0, 1, 3, 2})});
  AttentionMask mask(l, Layer::dim(q, 2), Layer::dim(k, 2), past);
  mask.read(query, q.dtype);
  if (l.failed())
    return;
  Tensor weights = mask.normalise(scores);
  Tensor heard = l.transpose(l.op("MatMul", {weights, v}), {0, 2, 1, 3});
  int64_t valueWidth = l.constantDim(v, 3, "the projected values");
  Tensor joined = l.reshape(heard, {Layer::dim(heard, 0), Layer::dim(heard, 1), Expr(heads * valueWidth)});
  l.set(l.project(joined, "output.", bias));
  l.set(weights, "weights");
  l.set(k, "keys");
  l.set(v, "values");
}

} // namespace attn::graph
