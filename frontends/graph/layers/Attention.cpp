#include "frontends/graph/layers/Masks.h"
#include "llvm/ADT/StringSwitch.h"
#include <cmath>

// One attention, with any of the scores of the literature. Multi-head attention
// with its projections is a layer of its own (MultiHead.cpp).

using namespace mlir;

namespace attn::graph {

void buildMultiHead(Layer &l); // MultiHead.cpp

namespace {

class Attention {
public:
  explicit Attention(Layer &l) : l(l), score(l.text("score")) {}

  void build();

private:
  bool readOperands();
  Tensor scores();
  Tensor dot(const Tensor &q, const Tensor &k);
  Tensor additive();
  Tensor cosine();
  Tensor location();
  Tensor given();
  Tensor unit(const Tensor &t);
  Tensor previousFeatures(int64_t width);
  void attendHard(const Tensor &scores);
  void finish(Tensor weights);
  /// [batch, queries, ...] as the query was given.
  Tensor asQuery(const Tensor &t) { return isSingle ? l.squeeze(t, {1}) : t; }

  Layer &l;
  StringRef score;
  std::optional<Tensor> query; // [batch, queries, width]
  Tensor keys, values;         // [batch, keys, width]
  bool isSingle = true;        // the query is [batch, width], or there is none
  DType dtype = DType::F32;
};

bool Attention::readOperands() {
  query = l.optional("query");
  keys = l.value("keys");
  values = l.has("values") ? l.value("values") : keys;
  if (!l.expectRank(keys, 3, "keys") || !l.expectRank(values, 3, "values") || !l.expectFloat(keys, "keys") ||
      !l.expectSame(keys, values, "keys and values"))
    return false;
  dtype = keys.dtype;
  bool needsQuery = score != "additive" && score != "given";
  if (needsQuery && !query) {
    l.error() << "score '" << score << "' needs a query";
    return false;
  }
  if (!query)
    return true;
  if (!l.expectRank(*query, 2, 3, "the query") || !l.expectSame(*query, keys, "query and keys"))
    return false;
  isSingle = query->rank() == 2;
  if (isSingle)
    query = l.unsqueeze(*query, {1});
  return true;
}

Tensor Attention::dot(const Tensor &q, const Tensor &k) { return l.op("MatMul", {q, l.transpose(k, {0, 2, 1})}); }

/// U f, f the convolution of the alignment of the step before: [batch, keys, width].
Tensor Attention::previousFeatures(int64_t width) {
  Tensor before = l.value("previous");
  if (!l.expectRank(before, 2, "the previous alignment"))
    return before;
  Tensor filters = l.weight("location.weight", {-1, 1, -1}, dtype);
  int64_t taps = l.constantDim(filters, 2, "location.weight");
  if (taps % 2 == 0)
    l.error() << "location.weight has " << taps << " taps, expected an odd number";
  Tensor f = l.op("Conv", {l.unsqueeze(before, {1}), filters}, {{"pads", SmallVector<int64_t>{taps / 2, taps / 2}}});
  return l.project(l.transpose(f, {0, 2, 1}), "location_projection.", false, width);
}

/// v · φ(Wq q + Wk k + b), with the terms there are.
Tensor Attention::additive() {
  bool isConcat = score == "concat";
  Tensor k = keys;
  std::optional<Tensor> q = query;
  if (isConcat) { // one matrix [units, query; keys], applied to each part
    int64_t queryWidth = l.constantDim(*query, 2, "the query"), width = l.constantDim(keys, 2, "keys");
    Tensor both = l.weight("weight", {-1, queryWidth + width}, dtype);
    auto part = [&](int64_t begin, int64_t end) {
      return l.transpose(l.slice(both, 1, Expr(begin), Expr(end)), {1, 0});
    };
    q = l.op("MatMul", {*query, part(0, queryWidth)});
    k = l.op("MatMul", {keys, part(queryWidth, queryWidth + width)});
  } else {
    if (query)
      q = l.project(*query, "query.", false);
    if (!l.flag("keys_projected", false))
      k = l.project(keys, "key.", false);
  }
  int64_t units = l.constantDim(k, 2, "the projected keys");
  if (l.has("previous"))
    k = l.op("Add", {k, previousFeatures(units)});
  if (l.flag("bias", false))
    k = l.op("Add", {k, l.weight("bias", {units}, dtype)});
  if (q && !l.failed() && l.constantDim(*q, 2, "the projected query") != units) {
    l.error() << "the projected query has " << l.shapeText(*q) << ", the projected keys " << l.shapeText(k);
    return k;
  }
  // A single query needs no dimension of its own.
  Tensor sum = k;
  if (q)
    sum = isSingle ? l.op("Add", {*q, k}) : l.op("Add", {l.unsqueeze(*q, {2}), l.unsqueeze(k, {1})});
  Tensor v = l.unsqueeze(l.weight("score.weight", {units}, dtype), {1});
  Tensor e = l.op("MatMul", {l.activate(sum, l.text("activation", "tanh")), v});
  if (l.failed())
    return e;
  e = l.squeeze(e, {e.rank() - 1});
  return isSingle ? l.unsqueeze(e, {1}) : e;
}

Tensor Attention::unit(const Tensor &t) {
  Tensor norm = l.op("ReduceL2", {t, Layer::ints({-1})});
  return l.op("Div", {t, l.op("Add", {norm, Layer::scalar(dtype, l.number("epsilon", 1e-6))})});
}

Tensor Attention::cosine() { return dot(unit(*query), unit(keys)); }

/// Row i of W says what position i gets, whatever its key.
Tensor Attention::location() {
  Tensor all = l.project(*query, "", false);
  Expr longest = Layer::dim(all, 2), count = Layer::dim(keys, 1);
  if (l.failed() || failed(l.graph.operators.with("attention", l.name(), l.loc(), [&](onnx::Node &node) {
        return node.requireAtMost(count, longest, "has {0} keys, its weights are for at most {1}");
      }))) {
    if (!l.failed())
      l.error() << "has " << l.shapeText(keys) << " keys, more than its weights are for";
    return all;
  }
  return l.slice(all, 2, Expr(0), count);
}

Tensor Attention::given() {
  Tensor e = l.value("scores");
  if (!l.expectRank(e, 2, 3, "the scores") || !l.expectSame(e, keys, "scores and keys"))
    return e;
  isSingle = e.rank() == 2;
  return isSingle ? l.unsqueeze(e, {1}) : e;
}

Tensor Attention::scores() {
  if (score == "additive" || score == "concat")
    return additive();
  if (score == "cosine")
    return cosine();
  if (score == "location")
    return location();
  if (score == "given")
    return given();
  Tensor q = *query;
  int64_t width = l.constantDim(keys, 2, "keys");
  if (score == "general") // sᵀ W h, with Wᵀ s as the query
    q = l.op("MatMul", {q, l.weight("weight", {l.constantDim(q, 2, "the query"), width}, dtype)});
  if (!l.failed() && l.constantDim(q, 2, "the query") != width) {
    l.error() << "the query has " << l.shapeText(q) << ", the keys " << l.shapeText(keys)
              << "; their widths must agree";
    return q;
  }
  if (score == "scaled_dot")
    q = l.op("Mul", {q, Layer::scalar(dtype, 1 / std::sqrt(double(std::max<int64_t>(width, 1))))});
  return dot(q, keys);
}

void Attention::finish(Tensor weights) {
  Tensor context = l.op("MatMul", {weights, values});
  l.set(asQuery(context));
  l.set(asQuery(weights), "weights");
}

/// The key of the greatest score, and 1 for it among the weights.
void Attention::attendHard(const Tensor &scores) {
  if (!isSingle) {
    l.unsupported() << "hard attention of several queries at once";
    return;
  }
  if (l.has("normalizer") || l.has("window") || l.has("lengths") || l.has("mask") || l.has("causal")) {
    l.unsupported() << "hard attention with a mask or a normalizer";
    return;
  }
  Tensor best = l.op("ArgMax", {l.squeeze(scores, {1})}, {{"axis", int64_t(1)}, {"keepdims", int64_t(0)}});
  l.set(l.op("GatherND", {values, l.unsqueeze(best, {1})}, {{"batch_dims", int64_t(1)}}));
  Tensor all = l.unsqueeze(l.range(Layer::dim(keys, 1)), {0});
  l.set(l.cast(l.op("Equal", {all, l.unsqueeze(best, {1})}), dtype), "weights");
  l.set(best, "choice");
}

void Attention::build() {
  if (!readOperands())
    return;
  Tensor e = scores();
  if (l.failed())
    return;
  if (const Json *scale = l.json.find("scale")) {
    Tensor factor = Layer::scalar(dtype, scale->number);
    if (scale->is(Json::String)) {
      factor = l.lookup(*scale);
      if (!l.expectRank(factor, 0, 3, "the scale") || !l.expectSame(factor, keys, "scale and keys"))
        return;
      if (factor.rank() == 1 || factor.rank() == 2) // [batch], [batch, queries]
        factor = factor.rank() == 1 ? l.unsqueeze(factor, {1, 2}) : l.unsqueeze(factor, {2});
    }
    e = l.op("Mul", {e, factor});
  }
  l.set(asQuery(e), "scores");
  if (l.flag("hard", false))
    return attendHard(e);
  AttentionMask mask(l, Layer::dim(e, 1), Layer::dim(keys, 1), Expr(0));
  mask.read(query, dtype);
  if (!l.failed())
    finish(mask.normalise(e));
}

} // namespace

LayerFn findAttentionLayer(StringRef type) {
  return llvm::StringSwitch<LayerFn>(type)
      .Case("attention", [](Layer &l) { Attention(l).build(); })
      .Case("multi_head_attention", buildMultiHead)
      .Default(nullptr);
}

} // namespace attn::graph
