#include "dialects/attn/NodeLocation.h"
#include "frontends/onnx/ops/Families.h"
#include "frontends/onnx/ops/Formula.h"
#include "frontends/onnx/ops/MatMul.h"
#include "frontends/onnx/ops/Window.h"

// Products with an activation, as ONNX Runtime's optimiser joins them (com.microsoft).

using namespace mlir;

namespace attn::onnx {
namespace {

/// An activation of ONNX with up to two numbers: alpha and beta, or what it clips to.
struct Activation {
  std::string name;
  double first, second;

  Num operator()(const Num &x) const {
    if (name == "Relu")
      return select(x < 0.0, x.constant(0), x); // a NaN stays
    if (name == "Tanh")
      return tanh(x);
    if (name == "Sigmoid")
      return sigmoid(x);
    if (name == "LeakyRelu")
      return select(x < 0.0, first * x, x);
    if (name == "HardSigmoid")
      return atMost(atLeast(first * x + second, x.constant(0)), x.constant(1));
    if (name == "Clip")
      return atMost(atLeast(x, x.constant(first)), x.constant(second));
    return x;
  }
};

/// The defaults are those of ONNX Runtime's operators, which always write the numbers that an activation needs.
FailureOr<Activation> readActivation(Node &n, ArrayRef<double> given) {
  struct Known {
    const char *name;
    size_t needs;
    double first, second;
  };
  constexpr Known kKnown[] = {{"", 0, 0, 0},        {"Relu", 0, 0, 0},         {"Tanh", 0, 0, 0},
                              {"Sigmoid", 0, 0, 0}, {"LeakyRelu", 1, 0.01, 0}, {"HardSigmoid", 2, 0.2, 0.5},
                              {"Clip", 2, 0, 0}};
  std::string name = n.stringAttr("activation", "");
  for (const Known &known : kKnown) {
    if (name != known.name)
      continue;
    if (name == "Clip" && given.size() < known.needs)
      return n.error() << "expects two numbers for the activation Clip, has " << given.size();
    return Activation{name, !given.empty() && known.needs > 0 ? given[0] : known.first,
                      given.size() > 1 && known.needs > 1 ? given[1] : known.second};
  }
  return n.unsupported() << "the activation '" << printableName(name) << "'";
}

LogicalResult importFusedGemm(Node &n) {
  SmallVector<double> given;
  for (const char *name : {"activation_alpha", "activation_beta"})
    if (n.hasAttr(name))
      given.push_back(n.floatAttr(name, 0));
  FailureOr<Activation> activation = readActivation(n, given);
  if (failed(activation) || failed(expectFloat(n, 0)))
    return failure();
  FailureOr<Tensor> y = gemm(n);
  if (failed(y))
    return failure();
  return setFormula(n, y->dtype, *y, [&](ArrayRef<Num> v) { return (*activation)(v[0]); });
}

/// activation(Conv(X, W, B) + Z). In NhwcFusedConv channels are last, but in W; in NhwcConv there, too: its files have
/// W as [M, spatial..., C / group], whatever its documentation says.
LogicalResult importFusedConv(Node &n) {
  FailureOr<Activation> activation =
      readActivation(n, n.floatsAttr("activation_params").value_or(SmallVector<double>()));
  if (failed(activation) || failed(expectConvolution(n)))
    return failure();
  bool isLast = n.opType() != "FusedConv";
  FailureOr<Tensor> y = convolution(n, isLast ? channelsFirst(n, n.input(0)) : n.input(0),
                                    n.opType() == "NhwcConv" ? channelsFirst(n, n.input(1)) : n.input(1));
  if (succeeded(y) && isLast)
    y = channelsLast(n, *y);
  if (failed(y))
    return failure();
  std::vector<Tensor> terms{*y};
  if (n.hasInput(3)) {
    const Tensor &z = n.input(3);
    if (failed(expectSameDType(n, 0, 3)))
      return failure();
    if (z.rank() != y->rank())
      return n.error() << "expects Z of the result's rank, " << y->rank() << ", has rank " << z.rank();
    for (int64_t d = 0; d < z.rank(); ++d)
      if (failed(n.requireEqual(z.shape[d], y->shape[d], "Z has {0} elements in a dimension, the result {1}")))
        return failure();
    terms.push_back(z);
  }
  return setFormula(n, y->dtype, terms,
                    [&](ArrayRef<Num> v) { return (*activation)(v.size() > 1 ? v[0] + v[1] : v[0]); });
}

/// Scales are of one element each. Activation, then the scale of the result, as cuBLASLt has them.
LogicalResult importGemmFloat8(Node &n) {
  if (failed(expectInputs(n, 2)))
    return failure();
  std::string name = n.stringAttr("activation", "NONE");
  std::optional<DType> dtype = dtypeFromProto(n.intAttr("dtype", 1));
  if (name != "NONE" && name != "RELU" && name != "GELU")
    return n.unsupported() << "the activation '" << printableName(name) << "'";
  if (!dtype || !(isFloat(*dtype) || isNarrowFloat(*dtype)))
    return n.error() << "expects the dtype of a float type, has " << n.intAttr("dtype", 1);
  Tensor factors[2];
  for (int64_t i : {0, 1}) {
    if (n.input(i).rank() != 2)
      return n.error() << "expects matrices, input " << i << " has rank " << n.input(i).rank();
    factors[i] = n.cast(n.input(i), DType::F32);
    if (n.intAttr(i ? "transB" : "transA", 0))
      factors[i] = n.transpose(factors[i], {1, 0});
  }
  FailureOr<Tensor> sum = matmul(n, factors[0], factors[1], DType::F32);
  auto scaledBy = [&](size_t input) {
    if (succeeded(sum) && n.hasInput(input)) {
      FailureOr<Tensor> scale = n.reshape(n.cast(n.input(input), DType::F32), {});
      sum = failed(scale) ? scale : formula(n, DType::F32, {*sum, *scale}, [](ArrayRef<Num> v) { return v[0] * v[1]; });
    }
  };
  scaledBy(3);
  scaledBy(4);
  if (failed(sum))
    return failure();
  SmallVector<Tensor, 2> operands{*sum};
  if (n.hasInput(2))
    operands.push_back(n.cast(n.input(2), DType::F32));
  double alpha = n.floatAttr("alpha", 1), beta = n.floatAttr("beta", 0);
  sum = formula(n, DType::F32, operands, [&](ArrayRef<Num> v) {
    Num y = v.size() > 1 ? alpha * v[0] + beta * v[1] : alpha * v[0];
    if (name == "RELU")
      return maximum(y, y.constant(0));
    return name == "GELU" ? 0.5 * y * (1.0 + tanh(0.7978845608028654 * (y + 0.044715 * y * y * y))) : y;
  });
  scaledBy(5);
  if (failed(sum))
    return failure();
  n.setOutput(0, n.cast(*sum, *dtype));
  return success();
}

} // namespace

void registerContribFusedOps(OpRegistry &registry) {
  registry.add("GemmFloat8", {1}, importGemmFloat8, "com.microsoft");
  registry.add("FusedGemm", {1}, importFusedGemm, "com.microsoft");
  for (const char *name : {"FusedConv", "NhwcConv", "NhwcFusedConv"})
    registry.add(name, {1}, importFusedConv, "com.microsoft");
}

} // namespace attn::onnx
