#include "dialects/attn/AttnOps.h"
#include "frontends/onnx/ops/AttentionForm.h"
#include "frontends/onnx/ops/Families.h"
#include "frontends/onnx/ops/Formula.h"

// FlexAttention of ai.onnx.preview: the scores and the probabilities pass through graphs of the model's own, which are
// imported in place; the graph passes find the attention in what comes out.

using namespace mlir;

namespace attn::onnx {
namespace {

/// `t` through the graph attribute `name`, if there is one.
FailureOr<Tensor> modified(Node &n, const Tensor &t, StringRef name) {
  if (!n.hasAttr(name))
    return t;
  const Subgraph *graph = n.subgraph(name);
  if (!graph)
    return failure();
  FailureOr<std::vector<Tensor>> results = n.importSubgraph(*graph, t);
  if (failed(results))
    return failure();
  if (results->size() != 1)
    return n.error() << "expects " << name << " to have one output, has " << results->size();
  const Tensor &result = results->front();
  if (result.sequence || result.dtype != t.dtype || result.rank() != t.rank())
    return n.error() << "expects " << name << " to keep type and rank";
  for (auto [own, size] : llvm::zip_equal(result.shape, t.shape))
    if (failed(n.requireEqual(own, size, (name + " makes size {0} of {1}").str())))
      return failure();
  return result;
}

FailureOr<Tensor> scaledScores(Node &n, const AttentionOperands &o, DType precision) {
  FailureOr<Tensor> scores = rawScores(n, o);
  if (failed(scores))
    return failure();
  Tensor wide = n.cast(*scores, precision);
  if (n.hasAttr("scale")) {
    double scale = n.floatAttr("scale", 1.0);
    return formula(n, precision, wide, [&](ArrayRef<Num> v) { return v[0] * scale; });
  }
  return formula(n, precision, {wide, scalarTensor(DType::I64, o.query.width())},
                 [](ArrayRef<Num> v) { return v[0] / sqrt(convert(v[1], v[0].dtype())); });
}

LogicalResult importFlexAttention(Node &n) {
  if (failed(expectInputs(n, 3)) || failed(expectFloat(n, 0)) || failed(expectSameDType(n, 0, 1)) ||
      failed(expectSameDType(n, 0, 2)))
    return failure();
  for (size_t i : {0, 1, 2})
    if (n.input(i).rank() != 4)
      return n.error() << "expects input " << i << " of rank 4, has rank " << n.input(i).rank();
  AttentionOperands o{{n.input(0)}, {n.input(1)}, {n.input(2)}, false, 1, std::nullopt, {}, std::nullopt, std::nullopt};
  if (failed(checkSizes(n, o)))
    return failure();
  DType precision = computeDType(n.input(0).dtype);
  if (n.hasAttr("softmax_precision")) {
    std::optional<DType> asked = dtypeFromProto(n.intAttr("softmax_precision", 0));
    if (!asked || !isFloat(*asked))
      return n.error() << "softmax_precision " << n.intAttr("softmax_precision", 0) << " is no float type";
    precision = *asked;
  }
  FailureOr<Tensor> scores = scaledScores(n, o, precision);
  if (succeeded(scores))
    scores = modified(n, *scores, "score_mod");
  if (failed(scores))
    return failure();
  Tensor wide = n.cast(*scores, computeDType(precision));
  wide.value = SoftmaxOp::create(n.builder(), n.loc(), n.value(wide), 3);
  wide.elements.reset();
  wide.weight.clear();
  FailureOr<Tensor> weights = modified(n, n.cast(wide, precision), "prob_mod");
  if (succeeded(weights))
    weights = weightedValues(n, o, n.cast(*weights, computeDType(n.input(0).dtype)));
  if (failed(weights))
    return failure();
  n.setOutput(0, *weights);
  return success();
}

} // namespace

void registerFlexAttentionOps(OpRegistry &registry) {
  registry.add("FlexAttention", {1}, importFlexAttention, "ai.onnx.preview");
}

} // namespace attn::onnx
