#include "frontends/graph/layers/Masks.h"
#include <limits>

using namespace mlir;

namespace attn::graph {

void AttentionMask::hide(const Tensor &more) {
  Tensor t = more.rank() == 2 ? l.unsqueeze(more, {1}) : more;
  visible = visible ? l.op("And", {*visible, t}) : t;
}

void AttentionMask::read(const std::optional<Tensor> &query, DType dtype) {
  if (l.flag("causal", false)) {
    Tensor i = l.unsqueeze(l.range(queries), {1}), j = l.unsqueeze(l.range(keys), {0});
    if (!past.is(0))
      i = l.op("Add", {i, l.squeeze(Layer::sizes({past}), {0})});
    visible = l.unsqueeze(l.op("LessOrEqual", {j, i}), {0});
  }
  if (std::optional<Tensor> lengths = l.optional("lengths")) {
    if (!l.expectRank(*lengths, 1, "lengths"))
      return;
    Tensor j = l.unsqueeze(l.range(keys), {0});
    hide(l.op("Less", {j, l.unsqueeze(l.cast(*lengths, DType::I64), {1})}));
    mayHideAll = true;
  }
  if (std::optional<Tensor> mask = l.optional("mask")) {
    if (!l.expectRank(*mask, 2, 3, "the mask"))
      return;
    hide(l.cast(*mask, DType::Bool));
    mayHideAll = true;
  }
  if (const Json *window = l.json.find("window"))
    readWindow(*window, query, dtype);
}

/// Keys · sigmoid(v · tanh(W q)), of as many keys as are there: [batch, queries].
Tensor AttentionMask::predictCentre(const Tensor &query, DType dtype) {
  Tensor hidden = l.op("Tanh", {l.project(query, "position.", false)});
  int64_t width = l.constantDim(hidden, hidden.rank() - 1, "the predicted position");
  Tensor at =
      l.op("Sigmoid", {l.op("MatMul", {hidden, l.unsqueeze(l.weight("position_score.weight", {width}, dtype), {1})})});
  Tensor count;
  if (std::optional<Tensor> lengths = l.optional("lengths"))
    count = l.unsqueeze(l.cast(*lengths, dtype), {1});
  else if (std::optional<Tensor> mask = l.optional("mask"))
    count = l.op("ReduceSum", {l.cast(l.cast(*mask, DType::Bool), dtype), Layer::ints({-1})});
  else
    count = l.cast(Layer::sizes({keys}), dtype);
  at = l.squeeze(at, {at.rank() - 1});
  return l.op("Mul", {at, count});
}

void AttentionMask::readWindow(const Json &window, const std::optional<Tensor> &query, DType dtype) {
  const Json *field = window.find("center"), *wide = window.find("half_width"), *bell = window.find("gaussian");
  Tensor j = l.unsqueeze(l.range(keys), {0, 1});
  Tensor centre; // [batch or 1, queries, 1]
  if (!field) {
    Tensor i = l.range(queries);
    if (!past.is(0))
      i = l.op("Add", {i, l.squeeze(Layer::sizes({past}), {0})});
    centre = l.unsqueeze(i, {0, 2});
  } else if (field->text == "predict") {
    if (!query) {
      l.error(field) << "a predicted centre needs a query";
      return;
    }
    centre = l.unsqueeze(predictCentre(*query, dtype), {2});
  } else {
    Tensor given = l.lookup(*field);
    if (!l.expectRank(given, 0, 2, "the centre of the window"))
      return;
    if (given.rank() == 0)
      centre = l.unsqueeze(given, {0, 1, 2});
    else
      centre = given.rank() == 1 ? l.unsqueeze(given, {1, 2}) : l.unsqueeze(given, {2});
    if (!onnx::isFloat(centre.dtype))
      centre = l.cast(centre, DType::I64);
  }
  Tensor at = l.cast(j, centre.dtype), reach = Layer::scalar(centre.dtype, double(wide->integer));
  hide(l.op("And", {l.op("GreaterOrEqual", {at, l.op("Sub", {centre, reach})}),
                    l.op("LessOrEqual", {at, l.op("Add", {centre, reach})})}));
  mayHideAll = mayHideAll || field;
  if (!bell || !bell->boolean)
    return;
  if (wide->integer == 0) {
    l.error(bell) << "a Gaussian needs a half_width of at least 1";
    return;
  }
  double deviation = double(wide->integer) / 2;
  Tensor offset = l.op("Sub", {l.cast(at, dtype), l.cast(centre, dtype)});
  Tensor square = l.op("Mul", {offset, offset});
  gaussian = l.op("Exp", {l.op("Div", {l.op("Neg", {square}), Layer::scalar(dtype, 2 * deviation * deviation)})});
}

Tensor AttentionMask::withHeads(const Tensor &t, int64_t rank) { return rank == 4 ? l.unsqueeze(t, {1}) : t; }

Tensor AttentionMask::normalise(Tensor scores) {
  double none = -std::numeric_limits<double>::infinity();
  if (l.text("normalizer", "softmax") != "softmax") {
    // Of sigmoids: smoothing divides them by their sum, gates stay as they are.
    Tensor gates = l.op("Sigmoid", {scores});
    if (visible)
      gates = l.op("Where", {withHeads(*visible, scores.rank()), gates, Layer::scalar(scores.dtype, 0)});
    if (l.text("normalizer") == "smoothing")
      gates = l.op("Div", {gates, l.op("ReduceSum", {gates, Layer::ints({-1})})});
    return gaussian ? l.op("Mul", {gates, withHeads(*gaussian, scores.rank())}) : gates;
  }
  if (visible)
    scores = l.op("Where", {withHeads(*visible, scores.rank()), scores, Layer::scalar(scores.dtype, none)});
  Tensor weights = l.op("Softmax", {scores}, {{"axis", int64_t(-1)}});
  if (visible && mayHideAll)
    weights = l.op("Where", {l.op("IsNaN", {weights}), Layer::scalar(weights.dtype, 0), weights});
  return gaussian ? l.op("Mul", {weights, withHeads(*gaussian, scores.rank())}) : weights;
}

} // namespace attn::graph
