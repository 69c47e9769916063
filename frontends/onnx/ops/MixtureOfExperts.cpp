#include "dialects/attn/AttnOps.h"
#include "dialects/attn/NodeLocation.h"
#include "dialects/attn/TopKOp.h"
#include "frontends/onnx/ops/Blocks.h"
#include "frontends/onnx/ops/Families.h"
#include "frontends/onnx/ops/Formula.h"
#include "frontends/onnx/ops/MatMul.h"
#include "frontends/onnx/ops/Reduce.h"
#include <cmath>

// MoE and QMoE of ONNX Runtime (com.microsoft). All experts are one matrix, so that both layers are products like any
// other: x [T, K] times [E * N, K], and behind it what each expert made, times its weight or 0, as [T, E * F] times
// [D, E * F]. An expert that a row does not choose is computed and not counted.

using namespace mlir;

namespace attn::onnx {
namespace {

/// Where a layer's inputs stand; `scales` and `zeros` are those of a QMoE.
struct Layer {
  size_t weights, bias, scales, zeros;
  const char *bits;
};

constexpr Layer kLayers[2][3] = {{{2, 3, 0, 0, ""}, {4, 5, 0, 0, ""}, {6, 7, 0, 0, ""}},
                                 {{2, 4, 3, 11, "fc1_expert_weight_bits"},
                                  {5, 7, 6, 12, "fc2_expert_weight_bits"},
                                  {8, 10, 9, 13, "fc3_expert_weight_bits"}}};

struct Mixture {
  Tensor x; // [T, K]
  Expr experts;
  bool isQuantized;
  const Layer *layers;
};

Num activated(const Num &x, StringRef name) {
  if (name == "relu")
    return maximum(x, x.constant(0));
  if (name == "silu")
    return x * sigmoid(x);
  if (name == "gelu") // with a tanh, as its CPU has it
    return 0.5 * x * (1.0 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
  return x;
}

//===----------------------------------------------------------------------===//
// Matrices
//===----------------------------------------------------------------------===//

/// [E, N, K] as [E * N, K], or with the experts `inside` as [N, E * K].
FailureOr<Tensor> joined(Node &n, const Tensor &t, bool inside) {
  Expr rows = inside ? t.shape[1] : t.shape[0] * t.shape[1];
  Expr columns = inside ? t.shape[0] * t.shape[2] : t.shape[2];
  return n.reshape(inside ? n.transpose(t, {1, 0, 2}) : t, {rows, columns});
}

/// Codes of `bits` bits of input `i`, [E, N, bytes], one a byte: `columns` of them in each of the rows.
FailureOr<Tensor> unpackedCodes(Node &n, size_t i, int64_t bits, int64_t experts, int64_t rows, int64_t columns) {
  std::optional<std::vector<char>> bytes = n.constantBytes(n.input(i));
  if (!bytes || n.input(i).dtype != DType::U8)
    return n.unsupported() << "codes or zero points (input " << i << ") that are not a constant of uint8";
  int64_t perByte = 8 / bits, rowBytes = (columns + perByte - 1) / perByte;
  if (static_cast<int64_t>(bytes->size()) != experts * rows * rowBytes)
    return n.error() << "expects " << experts * rows * rowBytes << " bytes for input " << i << " (" << experts
                     << " experts, " << rows << " rows of " << rowBytes << "), has " << bytes->size();
  std::vector<char> codes;
  codes.reserve(experts * rows * columns);
  for (int64_t row = 0; row < experts * rows; ++row)
    for (int64_t at = 0; at < columns; ++at) {
      auto byte = static_cast<uint8_t>((*bytes)[row * rowBytes + at / perByte]);
      codes.push_back(static_cast<char>(byte >> at % perByte * bits & ((1 << bits) - 1)));
    }
  return n.constantTensor(DType::U8, {experts, rows, columns}, codes);
}

/// The matrix of a layer of a QMoE, with a scale for each block of a row, or for each row.
FailureOr<Tensor> quantizedMatrix(Node &n, const Layer &layer, bool inside, DType dtype) {
  const Tensor &codes = n.input(layer.weights);
  int64_t bits = n.intAttr(layer.bits, n.intAttr("expert_weight_bits", 4)), block = n.intAttr("block_size", 0);
  if (bits != 2 && bits != 4 && bits != 8)
    return n.unsupported() << "weights of " << bits << " bits";
  SmallVector<int64_t, 3> sizes;
  for (const Expr &size : codes.shape)
    sizes.push_back(size.constant().value_or(0));
  int64_t columns = sizes[2] > INT32_MAX ? 0 : sizes[2] * (8 / bits);
  if (block <= 0)
    block = columns;
  if (columns == 0 || columns % block)
    return n.error() << "expects rows in whole blocks of " << block << ", has " << columns << " columns";
  if (!n.hasInput(layer.scales) || !isFloat(n.input(layer.scales).dtype))
    return n.error() << "expects float scales (input " << layer.scales << ")";
  FailureOr<Tensor> numbers = unpackedCodes(n, layer.weights, bits, sizes[0], sizes[1], columns);
  FailureOr<Tensor> scales =
      n.reshape(n.cast(n.input(layer.scales), dtype), {Expr(sizes[0]), Expr(sizes[1]), Expr(columns / block)});
  if (failed(numbers) || failed(scales))
    return failure();
  FailureOr<Tensor> matrix = joined(n, *numbers, inside), factors = joined(n, *scales, inside);
  if (failed(matrix) || failed(factors))
    return failure();
  Blocks blocks;
  blocks.codes = *matrix;
  blocks.scales = *factors;
  if (n.hasInput(layer.zeros)) {
    // A zero point for each row lies side by side with the others of its expert.
    bool byRows = block == columns && n.intAttr("block_size", 0) <= 0;
    FailureOr<Tensor> zeros = byRows ? unpackedCodes(n, layer.zeros, bits, sizes[0], 1, sizes[1])
                                     : unpackedCodes(n, layer.zeros, bits, sizes[0], sizes[1], columns / block);
    if (succeeded(zeros))
      zeros = n.reshape(*zeros, {Expr(sizes[0]), Expr(sizes[1]), Expr(columns / block)});
    if (succeeded(zeros))
      zeros = joined(n, *zeros, inside);
    if (failed(zeros))
      return failure();
    blocks.zeros = *zeros;
  }
  blocks.axis = 1;
  blocks.block = block;
  blocks.bits = bits;
  blocks.zeroPoint = int64_t(1) << (bits - 1);
  blocks.narrowRows = n.intAttr("accuracy_level", 0) == 4;
  return dequantizeBlocks(n, blocks);
}

/// The matrix of layer `i`, [E * N, K], or with the experts inside [N, E * K].
FailureOr<Tensor> matrixOf(Node &n, const Mixture &m, int i, bool inside) {
  const Tensor &t = n.input(m.layers[i].weights);
  if (t.rank() != 3)
    return n.error() << "expects weights of rank 3 (input " << m.layers[i].weights << "), has rank " << t.rank();
  if (failed(n.requireEqual(t.shape[0], m.experts, "weights of {0} experts, and {1} in router_probs")))
    return failure();
  if (m.isQuantized)
    return quantizedMatrix(n, m.layers[i], inside, m.x.dtype);
  if (t.dtype != m.x.dtype)
    return n.error() << "expects weights of " << dtypeName(m.x.dtype) << ", has " << dtypeName(t.dtype);
  return joined(n, t, inside);
}

/// a [T, K] times the transpose of `matrix` [N, K].
FailureOr<Tensor> timesTransposed(Node &n, const Tensor &a, const Tensor &matrix) {
  return contractLabels(n, a.dtype, {a, {0, 2}}, {matrix, {1, 2}}, {0, 1});
}

//===----------------------------------------------------------------------===//
// The mixture
//===----------------------------------------------------------------------===//

/// What layer `i` makes of x for each expert, [T, E, N].
FailureOr<Tensor> expertRows(Node &n, const Mixture &m, int i) {
  FailureOr<Tensor> matrix = matrixOf(n, m, i, /*inside=*/false);
  FailureOr<Tensor> y = failed(matrix) ? matrix : timesTransposed(n, m.x, *matrix);
  if (succeeded(y))
    y = n.reshape(*y, {m.x.shape[0], m.experts, n.input(m.layers[i].weights).shape[1]});
  if (failed(y) || !n.hasInput(m.layers[i].bias))
    return y;
  return formula(n, y->dtype, {*y, n.input(m.layers[i].bias)}, [](ArrayRef<Num> v) { return v[0] + v[1]; });
}

/// What stands before the second layer, [T, E, F].
FailureOr<Tensor> hiddenRows(Node &n, const Mixture &m) {
  std::string name = n.stringAttr("activation_type", "relu");
  if (!llvm::is_contained({"relu", "gelu", "silu", "swiglu", "identity"}, name))
    return n.unsupported() << "the activation '" << printableName(name) << "'";
  FailureOr<Tensor> gate = expertRows(n, m, 0);
  if (failed(gate))
    return failure();
  bool isGated = name == "swiglu";
  std::optional<Tensor> linear;
  if (int64_t fusion = isGated ? n.intAttr("swiglu_fusion", 0) : 0) {
    Expr half = n.symbols().floorDiv(gate->shape[2], 2);
    if (fusion > 2 || failed(n.requireEqual(half * Expr(2), gate->shape[2], "halves cover {0} of {1} elements")))
      return fusion > 2 ? n.error() << "swiglu_fusion = " << fusion << " is none of 0, 1 and 2" : failure();
    linear = fusion == 1 ? n.slice(*gate, 2, 1, half, 2) : n.slice(*gate, 2, half, half);
    gate = fusion == 1 ? n.slice(*gate, 2, 0, half, 2) : n.slice(*gate, 2, 0, half);
  } else if (n.hasInput(m.layers[2].weights)) {
    FailureOr<Tensor> third = expertRows(n, m, 2);
    if (failed(third))
      return failure();
    linear = *third;
  }
  if (isGated && !linear)
    return n.error() << "expects fc3_experts_weights beside swiglu_fusion = 0";
  std::vector<Tensor> operands{*gate};
  if (linear)
    operands.push_back(*linear);
  double alpha = n.floatAttr("activation_alpha", 1), beta = n.floatAttr("activation_beta", 0);
  double limit = n.hasAttr("swiglu_limit") ? n.floatAttr("swiglu_limit", 0) : INFINITY;
  return formula(n, m.x.dtype, operands, [&](ArrayRef<Num> v) {
    if (!isGated)
      return v.size() > 1 ? activated(v[0], name) * v[1] : activated(v[0], name);
    Num g = minimum(v[0], v[0].constant(limit));
    Num l = maximum(minimum(v[1], v[1].constant(limit)), v[1].constant(-limit));
    return g * sigmoid(alpha * g) * (l + beta);
  });
}

/// 0, 1, ... for the experts.
Tensor numbered(Node &n, const Mixture &m) {
  Tensor experts;
  experts.dtype = DType::I64;
  experts.shape.push_back(m.experts);
  experts.value = n.generate(DType::I64, experts.shape, [&](OpBuilder &b, Location loc, ValueRange at) -> Value {
    return fromIndex(b, loc, DType::I64, at[0]).value();
  });
  return experts;
}

/// [T, E] in int32: 1 for the k experts of a row that have the greatest scores, of equal ones the last.
FailureOr<Tensor> chosenExperts(Node &n, const Mixture &m, const Tensor &scores, const Expr &k) {
  OpBuilder &b = n.builder();
  Expr rows = m.x.shape[0], last = m.experts - Expr(1);
  // attn.top_k takes the first of equal ones.
  Tensor reversed = n.slice(scores, 1, last, m.experts, -1), chosen;
  auto top = TopKOp::create(b, n.loc(), n.type(DType::F32, {rows, k}), n.type(DType::I64, {rows, k}), n.value(reversed),
                            n.symbols().materialize(b, n.loc(), k), 1, /*smallest=*/false, /*is_unsigned=*/false);
  chosen.dtype = DType::I64;
  chosen.shape.append({rows, k});
  chosen.value = top.getPositions();
  FailureOr<Tensor> places = n.reshape(chosen, {rows, k, Expr(1)});
  if (failed(places))
    return failure();
  Tensor end = scalarTensor(DType::I64, last);
  FailureOr<Tensor> hits = formula(n, DType::I32, {*places, numbered(n, m), end}, [](ArrayRef<Num> v) {
    Num one = constantNum(v[0].builder(), v[0].location(), DType::I32, int64_t(1));
    return select(v[0] + v[1] == v[2], one, one.constant(0));
  });
  if (failed(hits))
    return failure();
  return reduce(n, Combine::Sum, *hits, int64_t(1));
}

/// The scores of a QMoE as the CPU of ONNX Runtime compares them: it begins with the first k experts, and takes none
/// for them whose score is NaN. So such a score is the least; one of the first k makes NaN of all the row's weights.
FailureOr<Tensor> comparedScores(Node &n, const Mixture &m, const Tensor &scores, int64_t k) {
  return formula(n, DType::F32, {scores, numbered(n, m)}, [&](ArrayRef<Num> v) {
    return select(isNaN(v[0]) & (v[1] >= v[1].constant(k)), v[0].lowest(), v[0]);
  });
}

/// [T, E] in f32: what each expert counts for a row, 0 where the row does not choose it.
FailureOr<Tensor> mixingWeights(Node &n, const Mixture &m) {
  int64_t k = n.intAttr("k", 1);
  if (failed(n.requireAtMost(1, k, "k is {1}")) || failed(n.requireAtMost(k, m.experts, "k is {0}, of {1} experts")))
    return failure();
  FailureOr<Tensor> scores = n.cast(n.input(1), DType::F32);
  if (m.isQuantized)
    scores = comparedScores(n, m, *scores, k);
  FailureOr<Tensor> count = failed(scores) ? scores : chosenExperts(n, m, *scores, k);
  if (failed(count))
    return failure();
  Tensor weights = *scores;
  constexpr size_t kRouterWeights = 14; // of a QMoE
  bool hasRouterWeights = m.isQuantized && n.hasInput(kRouterWeights);
  if (hasRouterWeights)
    weights = n.cast(n.input(kRouterWeights), DType::F32);
  else
    weights.value = SoftmaxOp::create(n.builder(), n.loc(), n.value(*scores), 1, /*log=*/false);
  weights.elements.reset();
  FailureOr<Tensor> kept = formula(n, DType::F32, {weights, *count}, [](ArrayRef<Num> v) {
    return select(v[1] == v[1].constant(0), v[0].constant(0), v[0]);
  });
  // ONNX Runtime's QMoE takes the softmax over the experts that are chosen, whatever the attribute says.
  if (succeeded(kept) && ((m.isQuantized && !hasRouterWeights) || n.intAttr("normalize_routing_weights", 0))) {
    FailureOr<Tensor> sum = keepDims(n, reduce(n, Combine::Sum, *kept, int64_t(1)), int64_t(1), 2);
    if (failed(sum))
      return failure();
    kept = formula(n, DType::F32, {*kept, *sum}, [](ArrayRef<Num> v) { return v[0] / v[1]; });
  }
  if (failed(kept))
    return failure();
  // An expert counts with a weight above 0: not with a NaN.
  return formula(n, DType::F32, *kept, [](ArrayRef<Num> v) { return select(v[0] > 0.0, v[0], v[0].constant(0)); });
}

LogicalResult refuseForms(Node &n) {
  for (StringRef name : {"use_sparse_mixer", "weights_prepacked"})
    if (n.intAttr(name, 0) > 0)
      return n.unsupported() << name << " = 1";
  if (std::string type = n.stringAttr("quant_type", "int"); type != "int")
    return n.unsupported() << "quant_type '" << printableName(type) << "'";
  return success();
}

LogicalResult importMoE(Node &n) {
  Mixture m{n.input(0), {}, n.opType() == "QMoE", nullptr};
  m.layers = kLayers[m.isQuantized];
  if (failed(expectInputs(n, 2)) || failed(expectFloat(n, 0)) || failed(expectFloat(n, 1)) || failed(refuseForms(n)))
    return failure();
  for (int i : {0, 1})
    if (!n.hasInput(m.layers[i].weights))
      return n.error() << "has no input " << m.layers[i].weights;
  int64_t rank = m.x.rank();
  if ((rank != 2 && rank != 3) || n.input(1).rank() != 2)
    return n.error() << "expects input of rank 2 or 3 and router_probs of rank 2, has ranks " << rank << " and "
                     << n.input(1).rank();
  m.experts = n.input(1).shape[1];
  Expr rows = product(ArrayRef<Expr>(m.x.shape).drop_back());
  if (failed(n.requireEqual(n.input(1).shape[0], rows, "router_probs has {0} rows for {1} tokens")))
    return failure();
  FailureOr<Tensor> flat = n.reshape(m.x, {rows, m.x.shape.back()});
  if (failed(flat))
    return failure();
  m.x = *flat;
  FailureOr<Tensor> weights = mixingWeights(n, m), hidden = failed(weights) ? weights : hiddenRows(n, m);
  FailureOr<Tensor> each = failed(hidden) ? hidden : n.reshape(*weights, {rows, m.experts, Expr(1)});
  FailureOr<Tensor> matrix = failed(each) ? each : matrixOf(n, m, 1, /*inside=*/true);
  if (failed(matrix))
    return failure();
  FailureOr<Tensor> counted = formula(n, m.x.dtype, {*hidden, *each}, [](ArrayRef<Num> v) {
    return select(v[1] == v[1].constant(0), v[0].constant(0), v[0] * v[1]); // infinity that does not count
  });
  if (succeeded(counted))
    counted = n.reshape(*counted, {rows, m.experts * hidden->shape[2]});
  FailureOr<Tensor> y = failed(counted) ? counted : timesTransposed(n, *counted, *matrix);
  if (succeeded(y) && n.hasInput(m.layers[1].bias)) {
    Tensor bias = n.cast(n.input(m.layers[1].bias), DType::F32);
    FailureOr<Tensor> shift = contractLabels(n, DType::F32, {*weights, {0, 1}}, {bias, {1, 2}}, {0, 2});
    if (failed(shift))
      return failure();
    y = formula(n, y->dtype, {*y, *shift}, [](ArrayRef<Num> v) { return v[0] + v[1]; });
  }
  if (succeeded(y))
    y = n.reshape(*y, n.input(0).shape);
  if (failed(y))
    return failure();
  n.setOutput(0, *y);
  return success();
}

} // namespace

void registerMixtureOps(OpRegistry &registry) {
  registry.add("MoE", {1}, importMoE, "com.microsoft");
  registry.add("QMoE", {1}, importMoE, "com.microsoft");
}

} // namespace attn::onnx
