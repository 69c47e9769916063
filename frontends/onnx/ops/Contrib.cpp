#include "frontends/onnx/ops/Families.h"
#include "frontends/onnx/ops/Formula.h"
#include "frontends/onnx/ops/Loops.h"
#include "frontends/onnx/ops/MatMul.h"
#include "frontends/onnx/ops/Normalize.h"
#include "frontends/onnx/ops/Quantize.h"
#include "frontends/onnx/ops/Reduce.h"
#include "frontends/onnx/ops/Rotary.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include <cmath>

// Operators of ONNX Runtime (com.microsoft) that its optimiser writes, but the
// attentions, which are in ContribAttention.cpp.

using namespace mlir;

namespace attn::onnx {
namespace {

//===----------------------------------------------------------------------===//
// Activations
//===----------------------------------------------------------------------===//

Num erfGelu(const Num &x) { return 0.5 * x * (1.0 + erf(x * std::sqrt(0.5))); }
// ONNX Runtime's constants: sqrt(2 / pi) and that times 0.044715, rounded.
Num tanhGelu(const Num &x) { return 0.5 * x * (1.0 + tanh(x * (0.7978845608028654 + 0.035677408136300125 * x * x))); }

/// An activation of input 0, plus input 1 where there is a bias.
LogicalResult importGelu(Node &n) {
  if (failed(expectInputs(n, n.opType() == "BiasGelu" ? 2 : 1)) || failed(expectFloat(n, 0)))
    return failure();
  std::vector<Tensor> operands{n.input(0)};
  bool hasBias = n.opType() != "QuickGelu" && n.opType() != "Gelu" && n.hasInput(1);
  if (hasBias) {
    if (failed(expectSameDType(n, 0, 1)))
      return failure();
    operands.push_back(n.input(1));
  }
  double alpha = n.floatAttr("alpha", 1.702);
  return setFormula(n, n.input(0).dtype, operands, [&](ArrayRef<Num> v) {
    Num x = v.size() > 1 ? v[0] + v[1] : v[0];
    if (n.opType() == "FastGelu")
      return tanhGelu(x);
    return n.opType() == "QuickGelu" ? x * sigmoid(alpha * x) : erfGelu(x);
  });
}

//===----------------------------------------------------------------------===//
// Normalisations
//===----------------------------------------------------------------------===//

LogicalResult importSkipNormalization(Node &n) {
  bool simplified = n.opType() == "SkipSimplifiedLayerNormalization";
  if (failed(expectInputs(n, 3)) || failed(expectFloat(n, 0)))
    return failure();
  if (n.hasOutput(1) || n.hasOutput(2))
    return n.unsupported() << "the outputs mean and inv_std_var";
  size_t biasInput = simplified ? 3 : 4;
  std::vector<Tensor> terms{n.input(0), n.input(1)};
  if (n.hasInput(biasInput))
    terms.push_back(n.input(biasInput));
  FailureOr<Tensor> sum = formula(n, n.input(0).dtype, terms,
                                  [](ArrayRef<Num> v) { return v.size() > 2 ? v[0] + v[1] + v[2] : v[0] + v[1]; });
  if (failed(sum))
    return failure();
  std::optional<Tensor> beta;
  if (!simplified && n.hasInput(3))
    beta = n.input(3);
  double epsilon = n.floatAttr("epsilon", 1e-12);
  int64_t last = sum->rank() - 1;
  if (last < 0)
    return n.error() << "expects inputs of rank at least 1";
  FailureOr<Tensor> y = simplified ? rmsNormalized(n, *sum, n.input(2), last, epsilon, sum->dtype)
                                   : layerNormalized(n, *sum, n.input(2), beta, last, epsilon);
  if (failed(y))
    return failure();
  n.setOutput(0, *y);
  n.setOutput(3, *sum);
  return success();
}

/// The number of ones in each row of the mask, or zeros without one.
FailureOr<Tensor> maskIndex(Node &n, const Expr &batch) {
  if (n.hasInput(7))
    return n.cast(reduce(n, Combine::Sum, n.cast(n.input(7), DType::I32), int64_t(1)), DType::I32);
  Tensor zeros;
  zeros.dtype = DType::I32;
  zeros.shape.push_back(batch);
  zeros.value = n.filled(DType::I32, batch, n.constant(DType::I32, 0));
  return zeros;
}

/// EmbedLayerNormalization, and with five operands quantised (2 to 6, scales from 8 and zero points from 13 on)
/// QEmbedLayerNormalization.
LogicalResult importEmbedLayerNormalization(Node &n) {
  bool isQuantized = n.opType() == "QEmbedLayerNormalization";
  auto real = [&](FailureOr<Tensor> t, size_t i) {
    return failed(t) || !isQuantized ? t : dequantized(n, *t, i + 6, i + 11);
  };
  if (failed(expectInputs(n, 1)))
    return failure();
  for (size_t i : {2, 3, 5, 6})
    if (!n.hasInput(i))
      return n.error() << "has no input " << i;
  const Tensor &ids = n.input(0);
  if (ids.rank() != 2)
    return n.error() << "expects input_ids of rank 2, has rank " << ids.rank();
  FailureOr<Tensor> words = real(gatherRows(n, n.input(2), ids), 2);
  Tensor positions;
  if (!isQuantized && n.hasInput(8)) {
    positions = n.input(8);
  } else {
    positions.dtype = DType::I64;
    positions.shape.append({Expr(1), ids.shape[1]});
    positions.value = n.generate(DType::I64, positions.shape, [&](OpBuilder &b, Location loc, ValueRange at) -> Value {
      return fromIndex(b, loc, DType::I64, at[1]).value();
    });
  }
  FailureOr<Tensor> places = real(gatherRows(n, n.input(3), positions), 3);
  if (failed(words) || failed(places))
    return failure();
  std::vector<Tensor> terms{*words, *places};
  if (n.hasInput(1) != n.hasInput(4))
    return n.error() << "expects segment_ids and segment_embedding together, has one";
  if (n.hasInput(1)) {
    FailureOr<Tensor> segments = real(gatherRows(n, n.input(4), n.input(1)), 4);
    if (failed(segments))
      return failure();
    terms.push_back(*segments);
  }
  FailureOr<Tensor> sum =
      formula(n, words->dtype, terms, [](ArrayRef<Num> v) { return v.size() > 2 ? v[0] + v[1] + v[2] : v[0] + v[1]; });
  FailureOr<Tensor> gamma = real(n.input(5), 5), beta = real(n.input(6), 6);
  if (failed(sum) || failed(gamma) || failed(beta))
    return failure();
  FailureOr<Tensor> y = layerNormalized(n, *sum, *gamma, *beta, 2, n.floatAttr("epsilon", 1e-12));
  FailureOr<Tensor> mask = maskIndex(n, ids.shape[0]);
  if (failed(y) || failed(mask))
    return failure();
  n.setOutput(0, *y);
  n.setOutput(1, *mask);
  n.setOutput(2, *sum);
  return success();
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

/// The operand as numpy.matmul takes it.
FailureOr<Tensor> arranged(Node &n, size_t i, bool transBatch, bool trans) {
  Tensor t = n.input(i);
  int64_t rank = t.rank();
  SmallVector<int64_t> order = dimsFrom(0, rank);
  trans &= rank != 1; // a vector has no sides
  if ((transBatch && rank < 3) || (trans && rank < 2))
    return n.error() << "cannot transpose input " << i << " of rank " << rank;
  if (transBatch) // [M, batch.., K] as [batch.., M, K]
    std::rotate(order.begin(), order.begin() + 1, order.end() - 1);
  if (trans)
    std::swap(order[rank - 1], order[rank - 2]);
  return n.transpose(t, order);
}

LogicalResult importFusedMatMul(Node &n) {
  if (failed(expectInputs(n, 2)) || failed(expectFloat(n, 0)) || failed(expectSameDType(n, 0, 1)))
    return failure();
  FailureOr<Tensor> a = arranged(n, 0, n.intAttr("transBatchA", 0), n.intAttr("transA", 0));
  FailureOr<Tensor> b = arranged(n, 1, n.intAttr("transBatchB", 0), n.intAttr("transB", 0));
  if (failed(a) || failed(b))
    return failure();
  FailureOr<Tensor> y = matmul(n, *a, *b, a->dtype);
  if (failed(y))
    return failure();
  double alpha = n.floatAttr("alpha", 1.0);
  return setFormula(n, a->dtype, *y, [&](ArrayRef<Num> v) { return alpha == 1 ? v[0] : alpha * v[0]; });
}

//===----------------------------------------------------------------------===//
// RotaryEmbedding
//===----------------------------------------------------------------------===//

LogicalResult importRotary(Node &n) {
  if (failed(expectInputs(n, 4)) || failed(expectFloat(n, 0)))
    return failure();
  if (n.intAttr("is_packed_batching", 0))
    return n.unsupported() << "is_packed_batching = 1";
  const Tensor &x = n.input(0), &cache = n.input(2);
  if (cache.rank() != 2 || n.input(3).rank() != 2)
    return n.error() << "expects caches of rank 2, has ranks " << cache.rank() << " and " << n.input(3).rank();
  int64_t heads = n.intAttr("num_heads", 0), width = n.intAttr("rotary_embedding_dim", 0);
  Rotated r{x, 2, cache.shape[1], n.intAttr("interleaved", 0) != 0};
  if (x.rank() == 3) {
    Expr size = heads > 0 ? n.symbols().floorDiv(x.shape[2], heads) : cache.shape[1] * Expr(2);
    if (heads <= 0 && width > 0)
      return n.error() << "expects num_heads beside rotary_embedding_dim";
    Expr count = heads > 0 ? Expr(heads) : n.symbols().floorDiv(x.shape[2], size);
    FailureOr<Tensor> view = n.reshape(x, {x.shape[0], x.shape[1], count, size});
    if (failed(view))
      return failure();
    r.x = *view;
    r.sequence = 1;
  } else if (x.rank() != 4) {
    return n.error() << "expects an input of rank 3 or 4, has rank " << x.rank();
  }
  if (failed(n.requireAtMost(r.pairs * Expr(2), r.x.shape[3], "{0} elements are rotated, a head has {1}")))
    return failure();
  Tensor ids = n.input(1);
  if (ids.rank() == 1) { // one offset for all
    FailureOr<Tensor> offset = n.reshape(ids, {});
    if (failed(offset))
      return failure();
    Value begin = n.value(*offset);
    ids.shape.assign({x.shape[0], r.x.shape[r.sequence]});
    ids.elements.reset();
    ids.weight.clear();
    ids.value = n.generate(ids.dtype, ids.shape, [&](OpBuilder &b, Location loc, ValueRange at) -> Value {
      return (load(b, loc, begin, ids.dtype, {}) + fromIndex(b, loc, ids.dtype, at[1])).value();
    });
  }
  FailureOr<Tensor> cosine = gatherRows(n, cache, ids), sine = gatherRows(n, n.input(3), ids);
  if (succeeded(cosine) && succeeded(sine)) {
    cosine = alignAngles(n, *cosine, r);
    sine = alignAngles(n, *sine, r);
  }
  if (failed(cosine) || failed(sine))
    return failure();
  FailureOr<Tensor> y = rotated(n, r, *cosine, *sine);
  if (succeeded(y))
    y = n.reshape(*y, x.shape);
  if (failed(y))
    return failure();
  n.setOutput(0, *y);
  return success();
}

} // namespace

void registerContribOps(OpRegistry &registry) {
  const char *domain = "com.microsoft";
  for (const char *name : {"Gelu", "FastGelu", "BiasGelu", "QuickGelu"})
    registry.add(name, {1}, importGelu, domain);
  for (const char *name : {"SkipLayerNormalization", "SkipSimplifiedLayerNormalization"})
    registry.add(name, {1}, importSkipNormalization, domain);
  for (const char *name : {"EmbedLayerNormalization", "QEmbedLayerNormalization"})
    registry.add(name, {1}, importEmbedLayerNormalization, domain);
  registry.add("FusedMatMul", {1}, importFusedMatMul, domain);
  registry.add("RotaryEmbedding", {1}, importRotary, domain);
}

} // namespace attn::onnx
